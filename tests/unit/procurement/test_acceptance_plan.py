"""How many launches and nodes an acceptance takes: the power that is promised is the one that `accept` has."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from milabench.acceptance.bounds import BoundTarget, decide_bound
from milabench.acceptance.criteria import parse_criteria
from milabench.analysis.sample_statistics import log_stdev, mean, stdev
from milabench.analysis.summary import summarise
from milabench.analysis.summary_model import Summary
from milabench.analysis.uncertainty import MeasuredLaunch, uncertainty_of
from milabench.procurement.acceptance_plan import AcceptancePlan, plan_acceptance
from milabench.procurement.acceptance_plan_report import render_plan
from milabench.procurement.statistical_power import Noise, PowerQuestion, fewest_launches, launch_plan
from tests.changed_values import replace
from tests.recorded_run import Recorded, rates, record


def run(base: Path, nodes: Mapping[str, Sequence[float]], name: str = "pilot") -> Summary:
    """A run of one benchmark on one device of each node, with these rates of its launches."""
    steps = [
        Recorded(bench="a", node=node, repeat=repeat, group=f"a.{repeat}", events=rates(*[value] * 3))
        for node, values in nodes.items()
        for repeat, value in enumerate(values)
    ]
    return summarise(record(base / name, *steps, name=name))


def planned(text: str, pilot: Summary, reference: Summary | None = None, **more: float) -> AcceptancePlan:
    return plan_acceptance(parse_criteria(text.encode(), "a.yaml"), pilot, reference, seconds={"a": 60.0}, **more)


def minimum(bound: str, more: str = "") -> str:
    return f"benchmarks: {{a: {{minimum: '{bound}'{more}}}}}"


PILOT = (97.0, 100.0, 103.0, 99.0, 101.0)


def test_the_fewest_launches_have_the_power_and_one_less_has_not(tmp_path: Path) -> None:
    plan = planned(minimum("97 images/s"), run(tmp_path, {"local": PILOT}))
    (criterion,) = plan.criteria
    spread = log_stdev(PILOT)
    assert criterion.spread == pytest.approx(spread, rel=1e-9)
    assert criterion.launches is not None
    assert spread is not None
    noise = Noise(between_nodes=0.0, between_launches=spread)
    question = PowerQuestion(expected=criterion.expected or 0.0, bound=97.0)
    powers = [launch_plan(question, noise, 1, n).power for n in (criterion.launches - 1, criterion.launches)]
    assert powers[0] < 0.95 <= powers[1]
    assert criterion.power == pytest.approx(powers[1], rel=1e-12)


@pytest.mark.parametrize("wanted", [0.8, 0.95])
def test_so_many_launches_pass_as_often_as_promised(tmp_path: Path, wanted: float) -> None:
    """4,000 acceptances by the code that decides them, of a system like the pilot."""
    (criterion,) = planned(minimum("97 images/s"), run(tmp_path, {"local": PILOT}), power=wanted).criteria
    assert criterion.launches is not None
    assert criterion.expected is not None
    assert criterion.spread is not None
    noise, target = random.Random(3), BoundTarget(value=97.0, is_minimum=True, confidence=0.95, to_fail=0.95)
    passed = sum(
        decide_bound(
            [criterion.expected * math.exp(noise.gauss(0, criterion.spread)) for _ in range(criterion.launches)],
            [],
            target,
        ).verdict
        == "PASS"
        for _ in range(4000)
    )
    assert passed / 4000 == pytest.approx(criterion.power, abs=0.02)
    assert passed / 4000 >= wanted - 0.02


def test_a_reference_is_the_pilot_and_its_own_error_counts(tmp_path: Path) -> None:
    reference = run(tmp_path, {"local": PILOT})
    (beside,) = planned(minimum("0.95 x reference"), reference, reference).criteria
    (alone,) = planned(minimum("95 images/s"), reference).criteria
    assert beside.expected == pytest.approx(1.0)
    assert (beside.launches or 0) > (alone.launches or 0)


def disturbed(pilot: Summary, others: float) -> Summary:
    """The same pilot, beside others that may have taken this share of its processors."""
    (bench,) = pilot.benchmarks
    launches = [MeasuredLaunch(rate=math.log(each.throughput.value)) for each in bench.processes]
    known = uncertainty_of(bench.perf or 0.0, [replace(each, effects={"others": others}) for each in launches])
    return replace(pilot, benchmarks=(replace(bench, uncertainty=known),))


def test_what_disturbances_may_have_cost_is_taken_off_the_distance(tmp_path: Path) -> None:
    """It reaches upwards: it counts against what a number has to stay below."""
    pilot, most = run(tmp_path, {"local": PILOT}), "benchmarks: {a: {maximum: 105 images/s}}"
    launches = [planned(most, disturbed(pilot, share)).criteria[0].launches or 0 for share in (0.0, 0.01, 0.02)]
    assert launches == sorted(set(launches))
    (criterion,) = planned(most, disturbed(pilot, 0.06)).criteria
    assert criterion.launches is None
    assert criterion.missing == "a calmer pilot: the possible cost of disturbances (6.50%) exceeds the bound"
    assert (
        planned(minimum("97 images/s"), disturbed(pilot, 0.06)).criteria[0].launches
        == planned(minimum("97 images/s"), pilot).criteria[0].launches
    )


@pytest.mark.parametrize(("bound", "launches"), [("98 images/s", 3), ("99 images/s", 6), ("99.8 images/s", 28)])
def test_launches_that_agree_exactly_may_all_have_missed_a_mode(tmp_path: Path, bound: str, launches: int) -> None:
    pilot = run(tmp_path, {"local": (100.0, 100.0, 100.0)})
    assert planned(minimum(bound), pilot).criteria[0].launches == launches


def test_nearer_bounds_take_more_launches_and_their_hours(tmp_path: Path) -> None:
    pilot = run(tmp_path, {"local": PILOT})
    plans = [planned(minimum(f"{bound} images/s"), pilot) for bound in (90, 97, 99)]
    launches = [plan.benchmarks[0].launches or 0 for plan in plans]
    assert launches == sorted(set(launches))
    assert [plan.hours for plan in plans] == pytest.approx([n / 60 for n in launches])


def test_a_sample_of_nodes_follows_from_how_they_differ(tmp_path: Path) -> None:
    nodes = {"n1": (99.0, 100.0, 101.0), "n2": (103.0, 104.0, 105.0), "n3": (95.0, 96.0, 97.0)}
    (criterion,) = planned(minimum("90 images/s"), run(tmp_path, nodes)).criteria
    logs = [[math.log(value) for value in values] for values in nodes.values()]
    within = mean([stdev(values) ** 2 for values in logs])
    between = math.sqrt(stdev([mean(values) for values in logs]) ** 2 - within / 3)
    assert criterion.spread_nodes == pytest.approx(between, rel=1e-9)
    assert criterion.sample is not None
    assert criterion.sample.power >= 0.95
    assert criterion.sample.nodes > 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (minimum("1.2 x reference"), "a better system"),
        (minimum("100 tokens/s"), "the same units: tokens/s is asked for; the pilot: in images/s"),
        (minimum("99.97 images/s"), "a larger distance"),
        ("benchmarks: {other: {minimum: 1 images/s}}", "a measurement of its rate in the pilot"),
        ("benchmarks: {a: {energy: 1 J/image}}", "a measurement of its energy"),
        ("benchmarks: {a: {serving: {slo_concurrency: {minimum: 16}}}}", "points of curves"),
    ],
)
def test_what_cannot_be_planned_says_why(tmp_path: Path, text: str, words: str) -> None:
    pilot = run(tmp_path, {"local": PILOT})
    (criterion,) = planned(text, pilot, pilot).criteria
    assert criterion.launches is None
    assert words in criterion.missing


def test_a_pilot_in_doubt_promises_nothing_unless_the_doubt_is_accepted(tmp_path: Path) -> None:
    doubted = run(tmp_path, {"local": PILOT})
    (bench,) = doubted.benchmarks
    pilot = replace(doubted, benchmarks=(replace(bench, validity="suspect", doubts=("contended", "short")),))
    accepted = planned(minimum("97 images/s", ", allow: [contended, short]"), pilot)
    assert accepted.is_complete and accepted.criteria[0].power is not None
    plan = planned(minimum("97 images/s", ", allow: [short]"), pilot)
    (criterion,) = plan.criteria
    assert (criterion.launches, criterion.power) == (accepted.criteria[0].launches, None)
    text = render_plan(plan, "text")
    assert "(contended)" in text and text.index("contended") < text.index("97 images/s")
    assert "0 of 1 criteria" in text and "probability of at least" not in text
    assert "probability of at least" in render_plan(accepted, "text")


def test_two_launches_tell_no_spread(tmp_path: Path) -> None:
    (criterion,) = planned(minimum("90 images/s"), run(tmp_path, {"local": (100.0, 101.0)})).criteria
    assert "2 of at least 3" in criterion.missing


def test_without_a_confidence_one_launch_decides(tmp_path: Path) -> None:
    plan = planned(minimum("90 images/s", ", confidence: none"), run(tmp_path, {"local": (100.0,)}))
    assert (plan.criteria[0].launches, plan.benchmarks[0].hours) == (1, 1 / 60)


def test_fewest_launches_is_none_where_no_number_is_enough() -> None:
    noise = Noise(between_nodes=0.0, between_launches=0.01)
    assert fewest_launches(PowerQuestion(expected=100, bound=99, reference_error=0.05), noise) is None
    found = fewest_launches(PowerQuestion(expected=100, bound=90), noise, least=3)
    assert found is not None
    assert (found.nodes, found.launches) == (1, 3)
