"""Criteria on the curve of a server: what a file may ask for, what it must not, and what passes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator, ValidationError

from milabench.acceptance.criteria import Bound, ServingCriterion, parse_criteria
from milabench.acceptance.evaluate import evaluate_criteria
from milabench.analysis.acceptance_model import Acceptance, CriterionResult
from milabench.analysis.serving_model import CurvePoint, PointValue, ServingCurve
from milabench.analysis.summary_model import Summary
from milabench.errors import ConfigError
from milabench.suite_check.schemas import schema_file
from tests.unit.analysis.test_compare import bench, system
from tests.unit.sweeps.test_comparison import A, B, curve, number, point

# One-sided bounds of A's mean at 95 %, by scipy 1.17: exp(mean -+ t_{.95,4} sem) of the logarithms.
LOW, HIGH = 9.949380, 10.250889
FAILED = CurvePoint(name="concurrency=16", concurrency=16, state="failed", why="the server ended")


def run(one: ServingCurve | None, **more: Any) -> Summary:
    return system("run", bench("chat", serving=one, **more)).summary


def with_values(*launches: float, **more: Any) -> ServingCurve:
    values = {
        "ttft_p90_ms": number(*launches),
        "error_rate": PointValue(value=0.01, launches=(0.0, 0.02)),
        "goodput": PointValue(value=0.0, launches=(0.0, 0.0, 0.0)),
    }
    return curve(replace(point(8), values=values, meets_slo="slo_concurrency" in more), FAILED, **more)


def asked(serving: str, more: str = "") -> str:
    return f"benchmarks: {{chat: {{serving: {{{serving}}}{more}}}}}"


def held(text: str, one: ServingCurve | None, reference: ServingCurve | None = None, **more: Any) -> Acceptance:
    criteria = parse_criteria(text.encode(), "a.yaml")
    return evaluate_criteria(criteria, run(one, **more), run(reference) if reference else None)


def only(found: Acceptance) -> CriterionResult:
    [check] = [check for check in found.checks if check.criterion != "runs"]
    return check


def test_a_file_asks_for_numbers_of_points_and_of_the_curve() -> None:
    text = """
benchmarks:
  chat:
    serving:
      concurrency=8: {ttft_p90_ms: {maximum: 500 ms}, output_tps: {minimum: 1.2 x reference}}
      rate=2.5: {error_rate: {maximum: 1 %}}
      slo_concurrency: {minimum: 16}
      area: {minimum: 0.9 x reference, maximum: 1e6 (tokens/s)^2}
"""
    criteria = parse_criteria(text.encode(), "a.yaml")
    assert criteria.benchmarks[0].serving == (
        ServingCriterion(
            point="concurrency=8", metric="ttft_p90_ms", maximum=Bound(value=500, units="ms", where="a.yaml:5:46")
        ),
        ServingCriterion(
            point="concurrency=8",
            metric="output_tps",
            minimum=Bound(value=1.2, is_relative=True, where="a.yaml:5:77"),
        ),
        ServingCriterion(point="rate=2.5", metric="error_rate", maximum=Bound(value=0.01, where="a.yaml:6:40")),
        ServingCriterion(point="", metric="slo_concurrency", minimum=Bound(value=16, where="a.yaml:7:34")),
        ServingCriterion(
            point="",
            metric="area",
            minimum=Bound(value=0.9, is_relative=True, where="a.yaml:8:23"),
            maximum=Bound(value=1e6, units="(tokens/s)^2", where="a.yaml:8:49"),
        ),
    )
    assert criteria.is_relative and len(criteria.bounds) == 6
    schema().validate(yaml.safe_load(text))


def schema() -> Draft202012Validator:
    return Draft202012Validator(json.loads(schema_file("acceptance").read_text()))


@pytest.mark.parametrize(
    ("serving", "at", "why"),
    [
        ("concurrent=8: {}", "concurrent", "unknown point 'concurrent=8'. Name a point such as 'concurrency=8'"),
        ("slo_concurency: {minimum: 1}", "slo_con", "Did you mean 'slo_concurrency'?"),
        ("rate=2: {ttft_p90: {maximum: 5 ms}}", "ttft", "Did you mean 'ttft_p90_ms'?"),
        ("rate=2: {ttft_p90_ms: {maximum: 0.5 s}}", "0.5", "'0.5 s': its units are ms. Write '800 ms'"),
        ("rate=2: {ttft_p90_ms: {maximum: 500}}", "500", "500 has no unit. Write '800 ms' or '1.2 x reference'"),
        ("rate=2: {error_rate: {maximum: 5 ms}}", "5 ms", "'5 ms': it has no units"),
        ("rate=2: {error_rate: {maximum: -1}}", "-1", "expected such as '800' or '1.2 x reference', got -1"),
        ("rate=2: {error_rate: {atmost: 1}}", "atmost", "unknown key 'atmost'"),
        ("rate=2: {error_rate: {}}", "{}", "asks for nothing. Give it a minimum or a maximum"),
        ("rate=2: [1]", "[1]", "expected a mapping"),
    ],
)
def test_a_mistake_is_told_at_its_place(serving: str, at: str, why: str) -> None:
    before = "  chat: {serving: {"
    with pytest.raises(ConfigError) as caught:
        parse_criteria(f"benchmarks:\n{before}{serving}}}}}\n".encode(), "a.yaml")
    assert str(caught.value).startswith(f"a.yaml:2:{len(before) + serving.index(at) + 1}: ")
    assert why in str(caught.value)


@pytest.mark.parametrize("serving", [{"rate=2": {"ttft_p90": {}}}, {"rate": {}}, {"slo_rate": {"minimum": []}}])
def test_the_schema_refuses_what_the_parser_does(serving: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        schema().validate({"benchmarks": {"chat": {"serving": serving}}})


def test_a_bound_of_a_point_is_decided_over_launches() -> None:
    one = with_values(*A)
    check = only(held(asked("concurrency=8: {ttft_p90_ms: {maximum: 10.3 ms}}"), one))
    assert (check.verdict, check.criterion, check.requirement) == (
        "PASS",
        "concurrency=8 ttft_p90_ms",
        "at most 10.3 ms",
    )
    assert check.bounds == pytest.approx((HIGH, LOW), abs=1e-6)
    assert only(held(asked("concurrency=8: {ttft_p90_ms: {maximum: 10.2 ms}}"), one)).verdict == "INCONCLUSIVE"
    assert only(held(asked("concurrency=8: {ttft_p90_ms: {maximum: 9.9 ms}}"), one)).verdict == "FAIL"
    few = only(held(asked("concurrency=8: {ttft_p90_ms: {maximum: 99 ms}}"), with_values(10, 11)))
    assert few.missing == "repeats: 2 of at least 3. Measure with --repeat 3"


def test_a_bound_against_a_reference_is_welchs() -> None:
    text = asked("concurrency=8: {ttft_p90_ms: {maximum: 0.9 x reference}}", ", confidence: 0.975")
    check = only(held(text, with_values(*B), with_values(*A)))
    assert (check.verdict, check.value) == ("PASS", pytest.approx(0.797046, abs=1e-6))
    assert check.bounds == pytest.approx((0.814481, 0.779985), abs=1e-6)
    lacking = only(held(text, with_values(*B), curve(point(4))))
    assert lacking.missing == "its number in the reference (this point. The sweep has concurrency=4)"


def test_other_requests_than_the_reference_s_decide_nothing() -> None:
    criteria = parse_criteria(asked("concurrency=8: {ttft_p90_ms: {maximum: 2 x reference}}").encode(), "a.yaml")
    reference, one = run(with_values(*A)), run(with_values(*A))
    assert only(evaluate_criteria(criteria, one, reference)).verdict == "PASS"
    check = only(evaluate_criteria(criteria, one, reference, {"chat": ("", "serve.output_tokens 32 / 8")}))
    assert (check.verdict, check.missing.endswith("serve.output_tokens 32 / 8")) == ("INCONCLUSIVE", True)


def test_what_has_no_unit_is_decided_by_what_was_measured() -> None:
    one = with_values(*A, slo={"ttft_p90_ms": 5.0}, slo_concurrency=8.0)
    assert only(held(asked("concurrency=8: {error_rate: {maximum: 1 %}}"), one)).verdict == "PASS"
    assert only(held(asked("concurrency=8: {error_rate: {maximum: 0}}"), one)).verdict == "FAIL"
    assert only(held(asked("slo_concurrency: {minimum: 8}"), one)).verdict == "PASS"
    assert only(held(asked("slo_concurrency: {minimum: 16}"), one)).verdict == "FAIL"
    none = only(held(asked("slo_concurrency: {minimum: 1}"), with_values(*A, slo={"ttft_p90_ms": 5.0})))
    assert (none.verdict, none.measured) == ("FAIL", "no point meets the SLO")
    without = only(held(asked("slo_rate: {minimum: 1}"), with_values(*A)))
    assert (without.verdict, without.missing) == ("INCONCLUSIVE", "an `slo` of this benchmark in the suite")


@pytest.mark.parametrize("bound", ["minimum", "maximum"])
@pytest.mark.parametrize("load", ["rate", "concurrency"])
def test_a_sweep_without_such_a_load_decides_nothing_on_the_largest(bound: str, load: str) -> None:
    by_rate = curve(CurvePoint(name="rate=2", rate=2.0), slo={"ttft_p90_ms": 5.0}, slo_rate=2.0)
    one = by_rate if load == "concurrency" else with_values(*A, slo={"ttft_p90_ms": 5.0}, slo_concurrency=8.0)
    check = only(held(asked(f"slo_{load}: {{{bound}: 2}}"), one))
    known = "rate=2" if load == "concurrency" else "concurrency=8, concurrency=16"
    assert (check.verdict, check.measured) == ("INCONCLUSIVE", f"no {load}")
    assert check.missing == f"a point with a {load}. The sweep has {known}"


@pytest.mark.parametrize(
    ("serving", "missing"),
    [
        ("concurrency=9: {ttft_p90_ms: {maximum: 1 ms}}", "this point. The sweep has concurrency=8, concurrency=16"),
        ("concurrency=16: {ttft_p90_ms: {maximum: 1 ms}}", "a measurement of this point"),
        ("concurrency=8: {tpot_p90_ms: {maximum: 1 ms}}", "a measurement of its tpot_p90_ms"),
        ("concurrency=8: {goodput: {minimum: 1 requests/s}}", "a goodput above zero in every repeat"),
        ("area: {minimum: 1 (tokens/s)^2}", "a measurement of its area"),
    ],
)
def test_what_a_curve_lacks_is_missing(serving: str, missing: str) -> None:
    check = only(held(asked(serving), with_values(*A)))
    assert (check.verdict, check.missing) == ("INCONCLUSIVE", missing)


def test_a_benchmark_without_a_curve_lacks_one() -> None:
    check = only(held(asked("slo_rate: {minimum: 1}"), None))
    assert (check.verdict, check.missing) == ("INCONCLUSIVE", "a sweep over a server")


def test_areas_are_compared_over_the_same_points() -> None:
    text = asked("area: {minimum: 0.7 x reference}")
    first, other = with_values(*A, area=A), with_values(*A, area=B)
    assert only(held(text, other, first)).verdict == "PASS"
    fewer = curve(point(4), area=A)
    assert only(held(text, other, fewer)).missing == "the reference's area over the same points"


def test_a_doubtful_curve_decides_nothing_unless_its_reason_is_allowed() -> None:
    serving, doubt = "slo_concurrency: {minimum: 8}", {"validity": "suspect", "doubts": ("client-bound",)}
    one = with_values(*A, slo={"ttft_p90_ms": 5.0}, slo_concurrency=8.0)
    assert only(held(asked(serving), one, **doubt)).verdict == "INCONCLUSIVE"
    assert only(held(asked(serving, ", allow: [client-bound]"), one, **doubt)).verdict == "PASS"
