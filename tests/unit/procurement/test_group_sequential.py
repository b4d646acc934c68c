"""Bounds for planned looks: to eight digits against an independent integration, and against simulated walks."""

from __future__ import annotations

import math
import random

import pytest

from milabench.procurement.group_sequential import spending_bounds


# K-GS-3: computed after the formula of gsDesign's sfLDOF.
def test_spending_like_obrien_and_fleming_of_one_side() -> None:
    bounds = spending_bounds((0.5, 0.75, 1), alpha=0.025)
    assert bounds == pytest.approx((2.9625880427275, 2.3590177072405, 2.0140836682405), rel=1e-8)


# K-GS-4: computed.
def test_spending_five_per_cent_over_five_looks() -> None:
    bounds = spending_bounds((0.2, 0.4, 0.6, 0.8, 1), alpha=0.05)
    assert bounds == pytest.approx((4.2291950593, 2.8881365483, 2.2980902839, 1.9618214656, 1.7397044994), rel=1e-8)


def test_one_look_is_the_ordinary_test() -> None:
    assert spending_bounds((1.0,), alpha=0.025) == pytest.approx((1.959963984540054,), rel=1e-10)


def test_looks_that_are_not_evenly_spaced_cross_as_often_as_simulated_walks() -> None:
    fractions = (0.3, 0.4, 1.0)
    bounds, noise, tries, crossed = spending_bounds(fractions, 0.1), random.Random(2), 4000, 0
    for _ in range(tries):
        total, before = 0.0, 0.0
        for fraction, bound in zip(fractions, bounds, strict=True):
            total += noise.gauss(0, math.sqrt(fraction - before))
            before, z = fraction, total / math.sqrt(fraction)
            if z >= bound:
                crossed += 1
                break
    assert abs(crossed / tries - 0.1) <= 4 * math.sqrt(0.1 * 0.9 / tries)
