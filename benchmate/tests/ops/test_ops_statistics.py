"""The median, its exact interval, and when measuring stops."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmate.ops.statistics import StopRule, estimate, interval_rank, quantile


@pytest.mark.parametrize(("count", "rank"), [(6, 1), (9, 2), (10, 2), (20, 6), (30, 10), (100, 40)])
def test_the_ranks_of_the_exact_interval(count, rank):
    assert interval_rank(count) == rank


def test_five_samples_bound_nothing():
    assert interval_rank(5) is None
    found = estimate([3.0, 1.0, 2.0])
    assert (found.median, found.ci95, found.half_width, found.min, found.mad) == (2.0, None, None, 1.0, 1.0)
    with pytest.raises(ValueError, match="no samples"):
        estimate([])


def test_beyond_a_thousand_the_rank_goes_on_as_before():
    exact = [interval_rank(count) / count for count in (900, 1000)]
    assert exact[0] < interval_rank(1001) / 1001 + 1e-3
    assert interval_rank(10_000) == 4902


@pytest.mark.parametrize(("share", "value"), [(0.25, 3.25), (0.5, 5.5), (0.75, 7.75), (0.9, 9.1), (0.99, 9.91)])
def test_quantiles_are_interpolated(share, value):
    assert quantile(list(range(1, 11)), share) == pytest.approx(value)


@given(st.lists(st.floats(1e-9, 1e3), min_size=6, max_size=200))
def test_the_interval_holds_the_median(samples):
    found = estimate(samples)
    assert found.min <= found.ci95[0] <= found.median <= found.ci95[1]


def test_measuring_stops_when_the_interval_is_narrow_and_time_has_passed():
    rule = StopRule(precision=0.01, seconds=0.5)
    narrow, wide = estimate([1.0, 1.001] * 20), estimate([1.0, 1.5] * 20)
    assert rule.is_converged(narrow, 0.6)
    assert not rule.is_converged(narrow, 0.4)
    assert not rule.is_converged(wide, 10)
    assert [count for count in range(100) if rule.is_time_to_look(count)] == [30, 46, 62, 78, 94]
