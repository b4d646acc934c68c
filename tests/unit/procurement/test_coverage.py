"""How often nominal 95 % intervals of scores and costs hold the truth, over simulated tenders with fixed seeds."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from milabench.procurement.costs import OwnershipCosts, of_items, yearly_cost
from milabench.procurement.scores import BenchmarkFigures, MachineSize, offer_score
from milabench.procurement.uncertainty import UncertainValue, constant
from tests.examples import ONLY_ALL

TENDERS = 4000
MACHINE = MachineSize(nodes=1024, reference_nodes=5586)
# Of each benchmark: true time and that of the reference in s, spread of ln t between launches, launches, weight, c, n, n_ref.
BENCHMARKS = (
    (350.0, 699.78, 0.01, 5, 1.0, 1.0, 200, 1376),
    (1500.0, 2411.04, 0.03, 5, 2.0, 4.0, 512, 2048),
    (40.0, 60.0, 0.02, 4, 1.0, 1.0, 50, 400),
    (90.0, 100.0, 0.05, 8, 0.5, 1.0, 100, 768),
)


def launches(draw: random.Random, true: float, spread: float, count: int, source: str = "") -> UncertainValue:
    return UncertainValue.of_launches([true * math.exp(draw.gauss(0, spread)) for _ in range(count)], "s", source)


def tender(
    draw: random.Random, *, is_reference_measured: bool, is_weighted: bool, is_exact: bool
) -> list[BenchmarkFigures]:
    return [
        BenchmarkFigures(
            name=str(index),
            offered=constant(t, "s") if is_exact else launches(draw, t, spread, count),
            reference=launches(draw, ref, spread, 3) if is_reference_measured and not is_exact else constant(ref, "s"),
            direction="lower",
            weight=w if is_weighted else 1.0,
            capability=c,
            nodes=n,
            reference_nodes=n_ref,
            work=constant(1000 * t, "TFLOP"),
        )
        for index, (t, ref, spread, count, w, c, n, n_ref) in enumerate(BENCHMARKS)
    ]


def score_of(metric: str, *, is_reference_measured: bool = False) -> Callable[[random.Random, bool], UncertainValue]:
    def value(draw: random.Random, is_exact: bool) -> UncertainValue:
        benches = tender(
            draw, is_reference_measured=is_reference_measured, is_weighted=metric != "ssp", is_exact=is_exact
        )
        return offer_score(metric, benches, MACHINE, "arithmetic" if metric == "ssp" else None).value

    return value


def cost(draw: random.Random, is_exact: bool) -> UncertainValue:
    """The cost of a million tokens: declared prices that are really off by what is declared, a rate from five launches."""

    def declared(true: float, share: float, units: str = "") -> UncertainValue:
        if is_exact:
            return constant(true, units)
        sd = math.log1p(share) / 1.959963984540054
        return UncertainValue.within(true * math.exp(draw.gauss(0, sd)), share, units)

    costs = OwnershipCosts(
        price=declared(300000, 0.05, "$"),
        years=constant(5),
        interest=0.05,
        upkeep=0.06,
        power_kw=declared(10.2, 0.03),
        pue=declared(1.3, 0.08),
        electricity=declared(0.12, 0.3, "$"),
    )
    rate = constant(20000, "s") if is_exact else launches(draw, 20000, 0.02, 5)
    return of_items(yearly_cost(costs).total, rate, items=1e6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "draw_one",
    [
        pytest.param(score_of("ssi"), id="ssi", marks=ONLY_ALL),
        pytest.param(score_of("ssi", is_reference_measured=True), id="ssi, reference measured", marks=ONLY_ALL),
        pytest.param(score_of("ssp"), id="ssp, arithmetic", marks=ONLY_ALL),
        pytest.param(score_of("index", is_reference_measured=True), id="index, reference measured"),
        pytest.param(cost, id="cost of a million tokens"),
    ],
)
def test_nominal_intervals_hold_the_truth_in_93_to_97_of_100_tenders(
    draw_one: Callable[[random.Random, bool], UncertainValue],
) -> None:
    draw = random.Random(20)
    true = draw_one(draw, True).value
    held = 0
    for _ in range(TENDERS):
        interval = draw_one(draw, False).interval()
        assert interval is not None
        held += interval[0] <= true <= interval[1]
    assert 0.93 <= held / TENDERS <= 0.97


@pytest.mark.slow
def test_a_ratio_of_two_scores_over_one_measured_reference_leaves_its_error_out() -> None:
    """With the reference counted for each side, as if it were two, the interval would be far too wide."""
    draw = random.Random(21)
    widths = {"": 0.0, "reference": 0.0}
    held = dict.fromkeys(widths, 0)
    for _ in range(TENDERS // 4):
        runs = {system: [draw.gauss(0, 0.01) for _ in range(5)] for system in ("a", "b")}
        reference_runs = [100 * math.exp(draw.gauss(0, 0.05)) for _ in range(3)]
        for source in widths:
            reference = UncertainValue.of_launches(reference_runs, "s", source)
            scores = [
                offer_score(
                    "index",
                    [
                        BenchmarkFigures(
                            name="a",
                            offered=UncertainValue.of_launches([50 * math.exp(log) for log in logs], "s"),
                            reference=reference,
                            direction="lower",
                        )
                    ],
                )
                for logs in runs.values()
            ]
            rates = [
                BenchmarkFigures(name="ratio", offered=scores[0].value, reference=scores[1].value, direction="higher")
            ]
            interval = offer_score("index", rates).value.interval()
            assert interval is not None
            widths[source] += math.log(interval[1] / interval[0])
            held[source] += interval[0] <= 1 <= interval[1]
    assert 0.93 <= held["reference"] / (TENDERS // 4) <= 0.97
    assert held[""] / (TENDERS // 4) > 0.99
    assert widths[""] > 3 * widths["reference"]
