"""The recheck of an installed system against the clause's rule and computed numbers."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from milabench.analysis.sample_statistics import geometric_mean
from milabench.analysis.throughput import Direction
from milabench.analysis.two_samples import welch
from milabench.procurement.recheck import recheck_ratio
from milabench.procurement.uncertainty import UncertainValue, constant


def close(value: Any, rel: float = 1e-12) -> Any:
    return pytest.approx(value, rel=rel)


def test_k_euro_4_every_benchmark_decides_for_itself() -> None:
    """Source: EuroHPC hosting agreement, clause "Performance Testing"; computed."""
    rows = [recheck_ratio("b", constant(then), [now]) for then, now in ((100, 93), (250, 224), (40, 37))]
    assert [row.ratio for row in rows] == close([0.93, 0.896, 0.925])
    assert [row.is_kept for row in rows] == [True, False, True]
    assert geometric_mean([row.ratio for row in rows]) > 0.9
    assert [(row.lower, row.upper) for row in rows] == [(None, None)] * 3


def test_k_euro_5_how_sure_a_ratio_is() -> None:
    """Source: t test of the logarithms against the clause's 90 %, what was installed being a constant; computed with scipy."""
    row = recheck_ratio("b", constant(100), [91.8, 92.6, 90.9, 91.5, 92.2])
    assert row.is_kept
    assert row.lower is not None
    assert (100 * row.ratio, 100 * row.lower) == close((91.79814667169963, 91.17834914865557))


def test_times_are_inverted_and_equal_runs_are_certain() -> None:
    row = recheck_ratio("b", constant(90), [100, 100], direction="lower")
    assert (row.ratio, row.lower, row.is_kept) == (close(0.9), close(0.9), True)


@pytest.mark.parametrize("direction", ["higher", "lower"])
def test_the_spread_of_the_accepted_run_is_in_the_bound(direction: Direction) -> None:
    """Against a Welch interval of the ratio on logarithms, as comparisons have it."""
    then, now = [99.0, 101.0, 100.4, 99.6], [91.8, 92.6, 90.9, 91.5, 92.2]
    row = recheck_ratio("b", UncertainValue.of_launches(then), now, direction=direction)
    ends = ([math.log(x) for x in then], [math.log(x) for x in now])
    low, high = welch(*(ends if direction == "higher" else ends[::-1])).ratio_interval(0.90)
    assert (row.lower, row.upper) == (close(low), close(high))
    alone = recheck_ratio("b", constant(UncertainValue.of_launches(then).value), now, direction=direction)
    assert alone.lower is not None and row.lower < alone.lower < row.ratio
    assert row.ratio == alone.ratio  # the point decides, as it did


@pytest.mark.slow
@pytest.mark.parametrize(("launches", "spread"), [(3, 0.01), (5, 0.03)])
def test_the_bound_covers_what_it_says_where_both_runs_vary(launches: int, spread: float) -> None:
    draw, truth, tries, covered, narrow = random.Random(launches), 0.95, 4000, 0, 0
    for _ in range(tries):
        then = [draw.lognormvariate(0, spread) for _ in range(launches)]
        now = [truth * draw.lognormvariate(0, spread) for _ in range(launches)]
        row = recheck_ratio("b", UncertainValue.of_launches(then), now)
        alone = recheck_ratio("b", constant(UncertainValue.of_launches(then).value), now)
        assert row.lower is not None and alone.lower is not None
        covered += row.lower <= truth
        narrow += alone.lower <= truth
    # Four standard errors of a share of 0.95.
    assert abs(covered / tries - 0.95) <= 4 * math.sqrt(0.95 * 0.05 / tries) + 0.005
    assert narrow / tries < 0.92


def test_a_single_launch_then_leaves_open_how_sure_it_is() -> None:
    row = recheck_ratio("b", UncertainValue.of_launches([100.0]), [91.8, 92.6])
    assert (row.lower, row.upper, row.is_kept) == (None, None, True)
