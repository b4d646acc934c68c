"""Bounds for planned looks: to eight digits against an independent integration, and against simulated walks."""

from __future__ import annotations

import math
import random

import pytest

from milabench.analysis.intervals import normal_quantile
from milabench.errors import UsageError
from milabench.procurement.group_sequential import Sides, shaped_bounds, spending_bounds


def even(looks: int) -> list[float]:
    return [(look + 1) / looks for look in range(looks)]


# K-GS-1: computed.
@pytest.mark.parametrize(
    ("looks", "bounds"),
    [
        (3, (3.4710914423342, 2.4544322969931, 2.0040355786135)),
        (5, (4.5617422979, 3.2256389129, 2.6337231437, 2.2808711490, 2.0400731748)),
    ],
)
def test_obrien_and_fleming(looks: int, bounds: tuple[float, ...]) -> None:
    plan = shaped_bounds("obrien-fleming", even(looks))
    assert plan.bounds == pytest.approx(bounds, rel=1e-8)
    assert plan.crossed[-1] == pytest.approx(0.05, rel=1e-9)


# K-GS-2: computed.
@pytest.mark.parametrize(("looks", "bound"), [(2, 2.1782720887), (3, 2.2894780611), (5, 2.4131762201)])
def test_pocock(looks: int, bound: float) -> None:
    assert shaped_bounds("pocock", even(looks)).bounds == pytest.approx((bound,) * looks, rel=1e-8)


# K-GS-3: computed after the formula of gsDesign's sfLDOF.
def test_spending_like_obrien_and_fleming_of_one_side() -> None:
    plan = spending_bounds((0.5, 0.75, 1), alpha=0.025)
    assert plan.crossed == pytest.approx((0.0015253227579890005, 0.009649324953511895, 0.025), rel=1e-10)
    assert plan.bounds == pytest.approx((2.9625880427275, 2.3590177072405, 2.0140836682405), rel=1e-8)


# K-GS-4: computed.
def test_spending_five_per_cent_over_five_looks() -> None:
    plan = spending_bounds((0.2, 0.4, 0.6, 0.8, 1), alpha=0.05)
    spent = (1.1726446842441618e-05, 0.0019419129967408466, 0.011396418465313252, 0.0284296307530727, 0.05)
    assert plan.crossed == pytest.approx(spent, rel=1e-10)
    assert plan.bounds == pytest.approx(
        (4.2291950593, 2.8881365483, 2.2980902839, 1.9618214656, 1.7397044994), rel=1e-8
    )


# K-GS-5: computed. Five looks at the bound of one, 1.959964, have a real error of 14.2 %.
def test_five_looks_at_the_bound_of_one() -> None:
    plan = shaped_bounds("pocock", even(5), alpha=0.1416893326)
    assert plan.bounds == pytest.approx((normal_quantile(0.975),) * 5, rel=1e-8)


def test_one_look_is_the_ordinary_test() -> None:
    assert shaped_bounds("pocock", [1.0]).bounds == pytest.approx((1.959963984540054,), rel=1e-10)
    assert spending_bounds((1.0,), alpha=0.05, sides=2).bounds == pytest.approx((1.959963984540054,), rel=1e-10)


def test_many_looks() -> None:
    plan = shaped_bounds("pocock", even(20))
    assert plan.crossed[-1] == pytest.approx(0.05, rel=1e-9)
    assert plan.bounds[0] > shaped_bounds("pocock", even(10)).bounds[0]


def test_spending_on_two_sides_halves_alpha_for_each() -> None:
    one, two = (spending_bounds((0.3, 1), alpha=alpha, sides=sides) for alpha, sides in ((0.025, 1), (0.05, 2)))
    assert two.bounds[0] == pytest.approx(one.bounds[0], rel=1e-10)
    assert two.bounds[1] == pytest.approx(one.bounds[1], rel=1e-3)


@pytest.mark.parametrize("shape", ["obrien-fleming", "pocock"])
@pytest.mark.parametrize("sides", [1, 2])
def test_looks_that_are_not_evenly_spaced_cross_as_often_as_simulated_walks(shape: str, sides: Sides) -> None:
    plan, noise, tries, crossed = shaped_bounds(shape, (0.3, 0.4, 1.0), 0.1, sides), random.Random(2), 4000, 0
    for _ in range(tries):
        total, before = 0.0, 0.0
        for fraction, bound in zip(plan.fractions, plan.bounds, strict=True):
            total += noise.gauss(0, math.sqrt(fraction - before))
            before, z = fraction, total / math.sqrt(fraction)
            if (abs(z) if sides == 2 else z) >= bound:
                crossed += 1
                break
    assert abs(crossed / tries - 0.1) <= 4 * math.sqrt(0.1 * 0.9 / tries)
    assert plan.crossed[-1] == pytest.approx(0.1, rel=1e-9)


@pytest.mark.parametrize(
    ("fractions", "alpha", "message"),
    [
        ((), 0.05, "they rise from above 0 to 1 at most"),
        ((0.5, 0.5), 0.05, "they rise"),
        ((0.5, 1.2), 0.05, "they rise"),
        ((0.5, 1), 0, "an error rate of 0"),
    ],
)
def test_looks_that_are_none_are_refused(fractions: tuple[float, ...], alpha: float, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        spending_bounds(fractions, alpha=alpha)


def test_an_unknown_name_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(UsageError, match="unknown shape of bounds 'wald'; known: pocock, obrien-fleming"):
        shaped_bounds("wald", [0.5, 1.0])
