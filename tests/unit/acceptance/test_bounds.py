"""One bound and some replicates: values computed by hand."""

from __future__ import annotations

import math

import pytest

from milabench.acceptance.bounds import BoundTarget, decide_bound


def wanted(
    value: float, *, is_minimum: bool = True, confidence: float | None = 0.95, to_fail: float = 0.95
) -> BoundTarget:
    return BoundTarget(value=value, is_minimum=is_minimum, confidence=confidence, to_fail=to_fail)


def test_equal_replicates_keep_a_bound_that_they_meet_exactly() -> None:
    for value in (800.0, 0.1, 1 / 3, 7e11):
        for is_minimum in (True, False):
            assert decide_bound([value] * 3, [], wanted(value, is_minimum=is_minimum)).verdict == "PASS"


def test_a_bound_that_rests_on_no_spread_says_so() -> None:
    for base in ([], [400.0] * 3):
        assert "all repeats equal" in decide_bound([800.0] * 3, base, wanted(2.0)).sure
    assert "alike" not in decide_bound([800.0, 800.0, 800.1], [], wanted(2.0)).sure


def test_the_bounds_are_students_on_logarithms() -> None:
    values = [math.exp(x) for x in (0.0, 0.1, 0.2)]  # mean .1, sd .1; t_{.95,2} = 2.919986, t_{.99,2} = 6.964557
    kept, missed = decide_bound(values, [], wanted(1.0, to_fail=0.99)).bounds or (0, 0)
    assert kept == pytest.approx(math.exp(0.1 - 2.919986 * 0.1 / math.sqrt(3)), rel=1e-6)
    assert missed == pytest.approx(math.exp(0.1 + 6.964557 * 0.1 / math.sqrt(3)), rel=1e-6)


def test_a_maximum_mirrors_a_minimum() -> None:
    values = [1.98, 2.0, 2.02]
    low = [decide_bound(values, [], wanted(bound)).verdict for bound in (1.9, 2.0, 2.1)]
    high = [decide_bound(values, [], wanted(bound, is_minimum=False)).verdict for bound in (1.9, 2.0, 2.1)]
    assert (low, high) == (["PASS", "INCONCLUSIVE", "FAIL"], ["FAIL", "INCONCLUSIVE", "PASS"])


def test_two_replicates_are_too_few_on_either_side() -> None:
    assert decide_bound([2.0, 2.0], [], wanted(1.0)).verdict == "INCONCLUSIVE"
    assert decide_bound([2.0] * 3, [1.0, 1.0], wanted(1.0)).missing.startswith("repeats: 2 of at least 3")


def test_the_replicates_that_are_said_to_decide_do() -> None:
    values = [math.exp(x) for x in (-0.02, 0.0, 0.02)]
    missing = decide_bound(values, [], wanted(0.99)).missing
    needed = int(missing.split("about ")[1].split()[0])
    more = [math.exp(0.02 * (place % 3 - 1)) for place in range(3 * math.ceil(needed / 3))]
    assert decide_bound(more, [], wanted(0.99)).verdict == "PASS"
