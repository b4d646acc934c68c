"""Rehearsals with fixed seeds: the truth is known, so what a rate has to be is known too."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from milabench.acceptance.criteria import BenchCriteria, Bound, Criteria
from milabench.errors import ConfigError
from milabench.procurement.tender import Tender, parse_tender
from tests.examples import ONLY_ALL
from tests.rehearsal.__main__ import main
from tests.rehearsal.model import (
    ANY_WRONG,
    AWARD,
    BAD,
    BLAMED,
    COVERAGE,
    FAILED,
    FLEET,
    FOUND,
    GOOD,
    NONE,
    OF_BENCHMARKS,
    OF_RATIOS,
    OF_SCORES,
    PASSED,
    RIGHT,
    SHOWN,
    SHOWN_WRONG,
    UNDECIDED,
    VERDICTS,
    WON,
    WRONG,
    Rehearsal,
    RehearsalPlan,
    share_interval,
)
from tests.rehearsal.noise import RunNoise
from tests.rehearsal.tenders import rehearse

TENDER = """\
metric: ssi
reference: {nodes: 1024}
benchmarks:
  bert: {weight: 2, reference: {value: 699.78 s, nodes: 64}}
  llama: {capability: 4, reference: {value: 2411 s, nodes: 128}}
  dlrm: {reference: {value: 1000 items/s, nodes: 32}}
  vit: {reference: {value: 42.7 s, nodes: 64}}
"""


def tender(text: str = TENDER) -> Tender:
    return parse_tender(text.encode(), "procurement.yaml")


def rehearsal(noise: RunNoise, plan: RehearsalPlan, criteria: Criteria | None = None, text: str = TENDER) -> Rehearsal:
    asked = tender(text)
    return rehearse(asked, dict.fromkeys(asked.benchmarks, noise), plan, random.Random(plan.seed), criteria=criteria)


def required(share: float, **more: float) -> Criteria:
    bound = Bound(value=share, is_relative=True)
    benches = tuple(BenchCriteria(name=name, minimum=bound, **more) for name in ("bert",))
    return Criteria(title="", file="criteria.yaml", benchmarks=benches)


def share(found: Rehearsal, group: str, name: str) -> float:
    value = found.rate(group, name).share
    assert value is not None
    return value


@pytest.mark.slow
@pytest.mark.parametrize(
    ("launches", "cv", "metric"),
    [
        (5, 0.01, "ssi"),
        *(pytest.param(*case, marks=ONLY_ALL) for case in ((4, 0.03, "index"), (5, 0.01, "index"), (4, 0.03, "ssi"))),
    ],
)
def test_the_stated_confidence_is_kept_within_two_points(metric: str, launches: int, cv: float) -> None:
    plan = RehearsalPlan(ratios=(1.5, 1.53, 1.5606, 1.6), nodes=4, launches=launches, metric=metric, seed=7)
    found = rehearsal(RunNoise(launches=cv, within=cv / 2), plan)
    assert found.rate(COVERAGE, OF_BENCHMARKS).trials == 200 * 4 * 4
    # Above it where launches scatter by less than the least error of a side.
    assert share(found, COVERAGE, OF_BENCHMARKS) >= 0.93
    for of in (OF_SCORES, OF_RATIOS):
        interval = found.rate(COVERAGE, of).interval
        assert interval is not None and interval[0] - 0.02 <= 0.95 <= interval[1] + 0.02
    assert share(found, VERDICTS, ANY_WRONG) <= 0.05 + 0.02


def test_nodes_that_differ_are_in_no_interval_of_launches_on_one_of_them() -> None:
    one = TENDER.replace("nodes: 64", "nodes: 1").replace("nodes: 128", "nodes: 1").replace("nodes: 32", "nodes: 1")
    plan = RehearsalPlan(ratios=(1.5,), nodes=16, tenders=15, metric="index")
    assert share(rehearsal(RunNoise(launches=0.002, nodes=0.02), plan, text=one), COVERAGE, OF_BENCHMARKS) < 0.4
    assert share(rehearsal(RunNoise(launches=0.002), plan, text=one), COVERAGE, OF_BENCHMARKS) > 0.9


def test_without_noise_everything_is_right_and_bad_nodes_are_found() -> None:
    plan = RehearsalPlan(ratios=(1.5, 1.6, 1.4), nodes=16, bad_nodes=2, tenders=3)
    found = rehearsal(RunNoise(), plan)
    assert [offer.won.hits for offer in found.offers] == [0, 3, 0]
    assert (share(found, AWARD, WON), share(found, AWARD, SHOWN), share(found, AWARD, SHOWN_WRONG)) == (1, 1, 0)
    assert (share(found, VERDICTS, RIGHT), share(found, VERDICTS, NONE)) == (1, 0)
    assert (share(found, GOOD, PASSED), share(found, BAD, FAILED)) == (1, 1)
    assert (share(found, FLEET, FOUND), share(found, FLEET, BLAMED)) == (1, 0)
    assert (
        share(found, COVERAGE, OF_BENCHMARKS) == 1
    )  # nothing varies: intervals are those of the least error of a side


def test_a_mean_over_all_nodes_does_not_see_two_bad_ones_among_sixteen() -> None:
    plan = RehearsalPlan(ratios=(1.5,), nodes=16, bad_nodes=2, slowdown=0.1, tenders=20)
    assert share(rehearsal(RunNoise(launches=0.001), plan, required(0.97)), BAD, PASSED) == 1
    assert share(rehearsal(RunNoise(launches=0.001), plan, required(0.97, device_spread=0.01)), BAD, FAILED) == 1


@pytest.mark.e2e
@pytest.mark.long
def test_a_system_exactly_at_the_bound_passes_no_more_often_than_the_confidence_leaves_open() -> None:
    plan = RehearsalPlan(ratios=(1.5,), nodes=2, tenders=600, launches=5)
    found = rehearsal(RunNoise(launches=0.01), plan, required(1.0)).rate(GOOD, PASSED)
    assert found.interval is not None and 0 < found.interval[0] <= 0.05


def test_equal_offers_have_no_wrong_winner_and_offers_below_the_reference_none_at_all() -> None:
    plan = RehearsalPlan(ratios=(1.5, 1.5), nodes=2, tenders=30)
    found = rehearsal(RunNoise(launches=0.01), plan)
    assert share(found, AWARD, WON) == 1
    assert 0 < found.offers[0].won.hits < 30
    below = rehearsal(RunNoise(launches=0.001), replace(plan, ratios=(0.9, 0.8)))
    assert share(below, AWARD, WON) == 0
    assert all(offer.breaks_rule and offer.won.hits == 0 for offer in below.offers)


def test_more_noise_makes_more_verdicts_undecided_and_not_more_of_them_wrong() -> None:
    plan = RehearsalPlan(ratios=(1.5, 1.53), nodes=2, tenders=20, metric="index")
    little, much = (rehearsal(RunNoise(launches=cv), plan) for cv in (0.002, 0.03))
    assert share(little, VERDICTS, NONE) < 0.1 < 0.5 < share(much, VERDICTS, NONE)
    assert share(much, VERDICTS, WRONG) <= 0.1


def test_steps_that_fail_fail_the_acceptance() -> None:
    plan = RehearsalPlan(ratios=(1.5,), nodes=8, tenders=20)
    assert share(rehearsal(RunNoise(launches=0.001, failures=0.5), plan), GOOD, FAILED) == 1


def test_a_seed_gives_one_rehearsal() -> None:
    plan = RehearsalPlan(ratios=(1.5, 1.52), nodes=2, tenders=10)
    first, again, other = (rehearsal(RunNoise(launches=0.02), replace(plan, seed=seed)).groups for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize("metric", ["ssi", "ssni", "ssp", "throughput", "index"])
def test_every_metric_is_rehearsed(metric: str) -> None:
    text = """\
metric: index
reference: {nodes: 64}
benchmarks:
  a: {reference: {value: 100 s, nodes: 8}, work: 1000 TFLOP}
  b: {reference: {value: 40 s, nodes: 4}, work: 3000 TFLOP}
"""
    plan = RehearsalPlan(ratios=(1.5, 2.0), nodes=8, tenders=2, metric=metric)
    found = rehearsal(RunNoise(launches=0.001), plan, text=text)
    assert [offer.won.hits for offer in found.offers] == [0, 2]
    assert all(offer.score for offer in found.offers)


def test_a_published_value_with_an_error_is_off_by_it() -> None:
    text = "metric: index\nbenchmarks:\n  a: {reference: {value: 100 s +- 5 %}}\n"
    plan = RehearsalPlan(ratios=(1.5,), nodes=2, tenders=100)
    found = rehearsal(RunNoise(launches=0.001), plan, text=text)
    assert 0.88 <= share(found, COVERAGE, OF_SCORES) <= 0.99


def test_criteria_on_what_is_not_in_the_tender_are_refused_and_what_is_not_simulated_is_said() -> None:
    plan = RehearsalPlan(ratios=(1.5,), nodes=2, tenders=1)
    unknown = Criteria(title="", file="c.yaml", benchmarks=(BenchCriteria(name="brt", where="c.yaml:2:3"),))
    with pytest.raises(ConfigError, match=r"c.yaml:2:3: benchmarks.brt: is not in procurement.yaml.*bert"):
        rehearsal(RunNoise(), plan, unknown)
    energy = BenchCriteria(name="bert", energy=Bound(value=1, units="J/item"), where="c.yaml:2:3")
    found = rehearsal(RunNoise(), plan, Criteria(title="", file="c.yaml", benchmarks=(energy,)))
    assert found.notes == ("not rehearsed, always taken as kept: bert energy (c.yaml:2:3)",)
    assert share(found, GOOD, PASSED) == 1
    assert share(found, GOOD, UNDECIDED) == 0


# By quantiles of the beta distribution, scipy 1.17.1.
@pytest.mark.parametrize(
    ("hits", "trials", "interval"),
    [
        (0, 10, (0.0, 0.3084971)),
        (5, 10, (0.1870860, 0.8129140)),
        (10, 10, (0.6915029, 1.0)),
        (190, 200, (0.90997246, 0.97576583)),
    ],
)
def test_exact_binomial_intervals(hits: int, trials: int, interval: tuple[float, float]) -> None:
    assert share_interval(hits, trials) == pytest.approx(interval, abs=1e-6)


def test_the_program_says_how_often_each_thing_happens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = tmp_path / "procurement.yaml"
    asked.write_text("metric: index\nbenchmarks:\n  bert: {reference: {value: 699.78 s}}\n")
    main(
        [
            str(asked),
            "--noise",
            "0.1%",
            "--true-ratios",
            "1.5,1.6",
            "--tenders",
            "3",
            "--nodes",
            "6",
            "--bad-nodes",
            "1",
        ]
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["A (1.5): wins 0 of 3", "B (1.6): wins 3 of 3"]
    assert "award: the best offer has the highest score: 100.0% (29.2% to 100.0%) of 3" in lines
    assert any(line.startswith("acceptance with bad nodes: FAIL") for line in lines)
