"""Many benchmarks of an A/B run: as many claims as benchmarks, and few of them may be false."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest

from milabench.analysis.ab_run import ab_of
from milabench.analysis.paired_comparison import AB, Pair, paired_verdicts, with_ratio
from milabench.analysis.summary import summarise
from milabench.analysis.two_samples import DEFAULT_MARGIN
from milabench.events.model import Event
from milabench.report.run_tables import pair_table
from tests.recorded_run import Recorded, data, rates, record

WOBBLE = (0.004, -0.004, 0.002, -0.002, 0.0)


def pair(bench: str, ratio: float, wobble: tuple[float, ...] = WOBBLE) -> Pair:
    a = dict.fromkeys(range(len(wobble)), 1.0)
    b = {block: ratio * math.exp(each) for block, each in enumerate(wobble)}
    return paired_verdicts([with_ratio(Pair(bench=bench, a="A", b="B"), a, b)])[0]


def test_a_difference_that_is_claimed_alone_is_not_claimed_among_many() -> None:
    alone = pair("x", 1.0175)
    assert alone.verdict == "FASTER"
    assert alone.p_holm is not None
    assert alone.p_holm == pytest.approx(0.00638, abs=1e-5)  # t = 5.232 at four degrees of freedom
    among = paired_verdicts([alone, *(pair(f"other{place}", 1.0) for place in range(19))])
    assert among[0].p_holm == pytest.approx(20 * alone.p_holm)
    assert among[0].verdict == "INCONCLUSIVE"
    assert among[0].ci95 == alone.ci95
    assert paired_verdicts([alone, *(pair(f"other{place}", 1.0) for place in range(3))])[0].verdict == "FASTER"


def test_too_few_pairs_are_no_claim_and_cost_the_others_nothing() -> None:
    few = pair("few", 2.0, (0.0, 0.0))
    alone = pair("x", 1.0175)
    assert paired_verdicts([few, alone]) == (few, alone)


def test_an_interval_without_a_width_says_why_it_has_none() -> None:
    still = pair("still", 1.1, (0.0,) * 5)
    assert (still.ci95, still.verdict) == (pytest.approx((1.1, 1.1)), "FASTER")
    told = AB(suites=("a", "b"), pairs=(still,))
    assert "too few digits to see a spread" in pair_table(told).rows[0][-1]
    assert pair("x", 1.1).note == ""


def test_in_a_run_of_30_benchmarks_at_the_margin_a_false_claim_is_rare() -> None:
    draw = random.Random(5)
    trials, false = 60, 0
    for _ in range(trials):
        wobbles = [tuple(draw.gauss(0, 0.01) for _ in range(5)) for _ in range(30)]
        family = paired_verdicts([pair(str(place), 1 + DEFAULT_MARGIN, wobble) for place, wobble in enumerate(wobbles)])
        false += any(one.verdict in ("FASTER", "SLOWER") for one in family)
    assert false / trials <= 0.10  # one by one, half of such runs have one


def ab(base: Path, a: tuple[Event, ...], b: tuple[Event, ...], reasons: tuple[str, ...] = ()) -> AB:
    """Three pairs of one benchmark."""
    steps = [
        Recorded(bench=f"x@{side}", repeat=repeat, events=events, reasons=reasons if side == "B" else ())
        for side, events in (("A", a), ("B", b))
        for repeat in range(3)
    ]
    told = {"suites": ["a.yaml", "b.yaml"], "pairs": {"x": {"A": "x@A", "B": "x@B"}}}
    run = record(base, *steps, manifest={"ab": told})
    found = ab_of(run.manifest, summarise(run).benchmarks)
    assert found is not None
    return found


def test_a_pair_says_why_it_is_suspect(tmp_path: Path) -> None:
    found = ab(tmp_path, rates(100.0), rates(120.0), reasons=("throttled",))
    (row,) = pair_table(found).rows
    assert (found.pairs[0].doubts, found.to_json()["pairs"][0]["reasons"]) == (("throttled",), ["throttled"])
    assert (row[-2], row[-1].split("; ")[-1]) == ("FASTER", "suspect (throttled)")


def test_of_what_is_neither_better_nor_worse_none_is_faster(tmp_path: Path) -> None:
    a, b = ((data(metric="depth", value=value, direction="none", main=True),) for value in (10.0, 20.0))
    found = ab(tmp_path, a, b)
    assert (found.pairs[0].ratio, found.pairs[0].verdict) == (pytest.approx(2.0), "INCONCLUSIVE")
    assert pair_table(found).rows[0][-1] == "neither higher nor lower is better"


def test_sides_of_other_cases_are_no_pair(tmp_path: Path) -> None:
    a, b = ((data(metric="time", value=2.0, direction="lower", main=True, case=case),) for case in ("mm", "conv"))
    (one,) = ab(tmp_path, a, b).pairs
    assert (one.ratio, one.why) == (None, "2 of 2 cases are not in both: time conv; time mm")
