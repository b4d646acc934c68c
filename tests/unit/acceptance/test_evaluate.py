"""Criteria against runs: what passes, what fails, and what is missing when neither can be said."""

from __future__ import annotations

import csv
import io
import json
import math
import random
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from milabench.acceptance.criteria import parse_criteria
from milabench.acceptance.evaluate import evaluate_criteria, replicate_values
from milabench.analysis.acceptance_model import Acceptance, CriterionResult
from milabench.analysis.summary import summarise
from milabench.analysis.summary_model import Summary
from milabench.report.registry import FORMATS
from tests.recorded_run import Recorded, data, rates, record


def run(
    base: Path, *levels: float, name: str = "run", devices: int = 2, bench: str = "digits", spread: float = 0.0
) -> Summary:
    """A run of one benchmark, a replicate for each level."""
    steps = [
        Recorded(
            bench=bench,
            tag=f"D{device}",
            devices=(device,),
            repeat=repeat,
            events=(
                *rates(*[level * (1 + spread * device)] * 3),
                data(metric="energy", value=level * 3 * 0.5, units="J", direction="lower"),
                data(metric="first_step", value=2.0 + repeat / 100, units="s", direction="lower"),
            ),
        )
        for repeat, level in enumerate(levels)
        for device in range(devices)
    ]
    return summarise(record(base / name, *steps, name=name))


def held(summary: Summary, text: str, reference: Summary | None = None) -> Acceptance:
    return evaluate_criteria(parse_criteria(text.encode(), "a.yaml"), summary, reference)


def only(found: Acceptance, criterion: str) -> CriterionResult:
    [check] = [check for check in found.checks if check.criterion == criterion]
    return check


def minimum(bound: str, more: str = "") -> str:
    return f"benchmarks: {{digits: {{minimum: '{bound}'{more}}}}}"


def test_an_absolute_minimum_passes_by_its_lower_bound_and_fails_by_its_upper_one(tmp_path: Path) -> None:
    found = run(tmp_path, 798, 800, 802)
    # t_{.95,2} = 2.92, s = 0.0025: the one-sided bounds are 800 exp(-+0.00421), and modes that three launches may miss, 0.011,
    # are more than the 0.0062 of their scatter at 95 % by 0.0048.
    assert held(found, minimum("790 images/s")).verdict == "PASS"
    assert only(held(found, minimum("790 images/s")), "minimum").bounds == pytest.approx((792.83, 807.23), abs=0.02)
    assert held(found, minimum("810 images/s")).verdict == "FAIL"
    undecided = held(found, minimum("801 images/s"))
    assert undecided.verdict == "INCONCLUSIVE"
    assert only(undecided, "minimum").missing.startswith("repeats: about ")


def test_without_confidence_what_was_measured_decides(tmp_path: Path) -> None:
    found = run(tmp_path, 800)
    assert held(found, minimum("799 images/s", ", confidence: none")).verdict == "PASS"
    assert held(found, minimum("801 images/s", ", confidence: none")).verdict == "FAIL"


def test_one_replicate_decides_nothing(tmp_path: Path) -> None:
    check = only(held(run(tmp_path, 800), minimum("100 images/s")), "minimum")
    assert (check.verdict, check.missing) == (
        "INCONCLUSIVE",
        "repeats: 1 of at least 3. Measure with --repeat 3",
    )


def test_a_minimum_against_a_reference_is_welchs_interval_of_the_ratio(tmp_path: Path) -> None:
    old = run(tmp_path, 10, 10.2, 9.9, 10.1, 10.3, name="old")
    new = run(tmp_path, 8, 8.1, 7.9, 8.2, 8.05, name="new")
    check = only(held(new, minimum("0.7 x reference", ", confidence: 0.975"), old), "minimum")
    assert check.value == pytest.approx(0.797046, abs=1e-6)  # METHODOLOGY: log-Welch .797046 [.779985, .814481]
    assert check.bounds == pytest.approx((0.779985, 0.814481), abs=1e-6)
    assert held(new, minimum("0.9 x reference"), old).verdict == "FAIL"


def test_what_the_reference_lacks_is_missing(tmp_path: Path) -> None:
    other = run(tmp_path, 1, 2, 3, name="other", bench="bert")
    check = only(held(run(tmp_path, 800, 801, 802), minimum("1 x reference"), other), "minimum")
    assert (check.verdict, check.missing) == ("INCONCLUSIVE", "this benchmark in the reference")


def test_other_units_are_not_compared(tmp_path: Path) -> None:
    check = only(held(run(tmp_path, 800, 801, 802), minimum("1 items/s")), "minimum")
    assert (check.verdict, check.missing) == ("INCONCLUSIVE", "the same units: items/s is asked for")


def test_energy_is_asked_for_an_item(tmp_path: Path) -> None:
    found = run(tmp_path, 800, 801, 802)
    assert held(found, "benchmarks: {digits: {energy: 0.6 J/image}}").verdict == "PASS"
    failed = held(found, "benchmarks: {digits: {energy: 0.4 J/image}}")
    assert only(failed, "energy").verdict == "FAIL"
    assert only(failed, "energy").value == pytest.approx(0.5)


def test_the_whole_system_and_the_first_step_can_be_asked_for(tmp_path: Path) -> None:
    found = run(tmp_path, 800, 801, 802)
    assert held(found, "benchmarks: {digits: {of: system, minimum: 1500 images/s}}").verdict == "PASS"
    assert held(found, "benchmarks: {digits: {of: first_step, maximum: 1 s}}").verdict == "FAIL"


def latency(base: Path, *levels: float, name: str = "run", cases: tuple[str, ...] = ("mm",)) -> Summary:
    """A run of three launches of two instances, each of which tells seconds."""
    steps = [
        Recorded(
            bench="digits",
            tag=f"D{device}",
            devices=(device,),
            repeat=repeat,
            events=tuple(
                data(metric="time", value=level, units="s", direction="lower", main=True, case=case) for case in cases
            ),
        )
        for repeat, level in enumerate(levels)
        for device in (0, 1)
    ]
    return summarise(record(base / name, *steps, name=name))


def test_where_less_is_better_a_system_of_two_takes_half_of_the_time(tmp_path: Path) -> None:
    found = held(latency(tmp_path, 2.0, 2.01, 1.99), "benchmarks: {digits: {of: system, maximum: 1.1 s}}")
    assert only(found, "maximum").value == pytest.approx(1.0, abs=1e-4)
    assert found.verdict == "PASS"


def test_a_mean_over_other_cases_is_not_held_against_the_reference(tmp_path: Path) -> None:
    reference = latency(tmp_path, 2.0, 2.01, 1.99, name="reference", cases=("mm", "bmm"))
    found = held(latency(tmp_path, 1.0, 1.01, 0.99), "benchmarks: {digits: {maximum: 0.9 x reference}}", reference)
    check = only(found, "maximum")
    assert (check.verdict, check.value) == ("INCONCLUSIVE", None)
    assert check.missing == "the same cases as the reference: 1 of 2 cases are not in both: time bmm"


def test_a_launch_of_which_one_instance_failed_is_no_replicate(tmp_path: Path) -> None:
    def launch(repeat: int, *levels: float) -> list[Recorded]:
        return [
            Recorded(
                tag=f"D{device}",
                devices=(device,),
                repeat=repeat,
                events=rates(*[level] * 3),
                **({} if level else {"outcome": "failed", "why": "exit"}),
            )
            for device, level in enumerate(levels)
        ]

    # Device 1 is slow, and fails now and then: what device 0 did alone says nothing about both.
    steps = [step for repeat in range(3) for step in launch(repeat, 900.0 + repeat, 400.0)]
    steps += [step for repeat in range(3, 6) for step in launch(repeat, 900.0 + repeat, 0.0)]
    (bench,) = summarise(record(tmp_path, *steps)).benchmarks
    assert replicate_values(bench, "rate") == [pytest.approx(math.sqrt((900 + each) * 400)) for each in range(3)]
    found = held(summarise(record(tmp_path / "again", *steps)), minimum("1000 images/s", ", failure_rate: 0.5"))
    assert only(found, "minimum").verdict == "FAIL"


def test_processes_in_unlike_units_have_no_value_that_could_be_held_against_anything(tmp_path: Path) -> None:
    steps = [
        Recorded(repeat=repeat, events=rates(900.0, units=units)) for repeat, units in enumerate(("a/s", "b/s", "a/s"))
    ]
    check = only(held(summarise(record(tmp_path, *steps)), minimum("1 a/s")), "minimum")
    assert (check.verdict, check.measured, check.value) == ("INCONCLUSIVE", "no number", None)


def test_the_spread_between_devices(tmp_path: Path) -> None:
    asked = "benchmarks: {digits: {device_spread: 1 %}}"
    assert held(run(tmp_path, 800, 801, 802), asked).verdict == "PASS"
    apart = held(run(tmp_path, 800, 800, 800, name="b", spread=0.1), asked)
    assert apart.verdict == "FAIL"
    assert only(apart, "device_spread").measured.endswith(" over 2 devices, from 800 images/s on D0 to 880 on D1")
    one = only(held(run(tmp_path, 800, 801, name="c", devices=1), asked), "device_spread")
    assert (one.verdict, one.missing) == ("INCONCLUSIVE", "a second device: this number needs several")


def test_failures_fail_unless_so_many_are_allowed(tmp_path: Path) -> None:
    steps = [
        Recorded(repeat=repeat, outcome="failed" if repeat == 3 else "passed", why=None, events=rates(800, 800, 800))
        for repeat in range(4)
    ]
    found = summarise(record(tmp_path, *steps))
    assert only(held(found, "required: [digits]"), "runs").verdict == "FAIL"
    assert held(found, "benchmarks: {digits: {failure_rate: 25 %}}").verdict == "PASS"
    assert held(found, "benchmarks: {digits: {failure_rate: 24 %}}").verdict == "FAIL"
    assert held(found, "failure_rate: 0").verdict == "FAIL"


def test_a_wrong_result_fails_whatever_share_of_failures_is_allowed(tmp_path: Path) -> None:
    steps = [
        Recorded(
            repeat=repeat,
            outcome="failed" if repeat == 3 else "passed",
            why="wrong" if repeat == 3 else None,
            detail="burn: cuda:0: bit 4",
            events=rates(800, 800, 800),
        )
        for repeat in range(4)
    ]
    found = summarise(record(tmp_path, *steps))
    failures_allowed = held(found, "benchmarks: {digits: {failure_rate: 50 %}}")
    check = only(failures_allowed, "wrong")
    assert (failures_allowed.verdict, check.verdict) == ("FAIL", "FAIL")
    assert check.measured == "1 of 4 steps (digits.D0.R3: burn: cuda:0: bit 4)"
    assert only(held(found, "benchmarks: {digits: {failure_rate: 50 %, wrong: 1}}"), "wrong").verdict == "PASS"
    # Its number decides nothing, although three launches have passed.
    assert only(held(found, "benchmarks: {digits: {minimum: '100 images/s', wrong: 1}}"), "minimum").verdict == (
        "INCONCLUSIVE"
    )


def test_a_required_benchmark_that_was_not_run_is_missing(tmp_path: Path) -> None:
    found = held(run(tmp_path, 800, 801, 802), "required: [bert]")
    assert (found.verdict, found.checks[0].where) == ("INCONCLUSIVE", "a.yaml:1:12")
    optional = held(run(tmp_path, 800, name="b"), "benchmarks: {bert: {required: false}, digits: }")
    assert optional.verdict == "PASS"


def test_a_doubtful_number_decides_nothing_unless_its_reason_is_allowed(tmp_path: Path) -> None:
    steps = [Recorded(repeat=r, events=rates(800, 800, 800), reasons=("throttled",)) for r in range(3)]
    found = summarise(record(tmp_path, *steps))
    check = only(held(found, minimum("100 images/s")), "minimum")
    assert check.verdict == "INCONCLUSIVE"
    assert "suspect (throttled)" in check.missing
    assert held(found, minimum("100 images/s", ", allow: [throttled]")).verdict == "PASS"


def test_a_run_that_has_not_ended_is_not_accepted(tmp_path: Path) -> None:
    steps = [Recorded(repeat=r, events=rates(800, 800, 800)) for r in range(3)]
    found = held(summarise(record(tmp_path, *steps, is_ended=False)), minimum("100 images/s"))
    assert (found.verdict, found.checks[0].criterion) == ("INCONCLUSIVE", "ended")


def test_a_system_at_the_bound_passes_as_seldom_as_the_confidence_says(tmp_path: Path) -> None:
    template = run(tmp_path, 800, 800, 800, devices=1)
    from tests.changed_values import replace

    bench, rng, passed, failed, n = template.benchmarks[0], random.Random(5), 0, 0, 500
    criteria = parse_criteria(minimum("800 images/s").encode(), "a.yaml")
    for _ in range(n):
        processes = tuple(
            replace(one, throughput=replace(one.throughput, value=800 * math.exp(rng.gauss(0, 0.02))))
            for one in bench.processes
        )
        verdict = evaluate_criteria(
            criteria, replace(template, benchmarks=(replace(bench, processes=processes),))
        ).verdict
        passed, failed = passed + (verdict == "PASS"), failed + (verdict == "FAIL")
    allowed = 0.05 * n + 3 * math.sqrt(0.05 * 0.95 * n)
    assert max(passed, failed) <= allowed


def test_every_format_says_the_verdict(tmp_path: Path) -> None:
    found = held(run(tmp_path, 798, 800, 802), f"title: new\n{minimum('810 images/s')}\n")
    written = {name: form.renderer.render_acceptance(found) for name, form in FORMATS.items()}
    assert written["text"].startswith("FAIL: new\n")
    assert written["markdown"].startswith("# FAIL: new\n")
    assert '<h1 id="top">FAIL: new</h1>' in written["html"]
    assert [row["verdict"] for row in csv.DictReader(io.StringIO(written["csv"]))] == ["PASS", "FAIL"]
    assert json.loads(written["json"])["verdict"] == "FAIL"
    suite = ET.fromstring(written["junit"])
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("2", "1", "0")
