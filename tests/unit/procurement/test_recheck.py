"""The recheck of an installed system against the clause's rule and computed numbers."""

from __future__ import annotations

import math
from typing import Any

import pytest

from milabench.analysis.sample_statistics import geometric_mean
from milabench.errors import ConfigError
from milabench.procurement.recheck import recheck_ratio


def close(value: Any, rel: float = 1e-12) -> Any:
    return pytest.approx(value, rel=rel)


def test_k_euro_4_every_benchmark_decides_for_itself() -> None:
    """Source: EuroHPC hosting agreement, clause "Performance Testing"; computed."""
    rows = [recheck_ratio("b", then, [now]) for then, now in ((100, 93), (250, 224), (40, 37))]
    assert [row.ratio for row in rows] == close([0.93, 0.896, 0.925])
    assert [row.is_kept for row in rows] == [True, False, True]
    assert geometric_mean([row.ratio for row in rows]) > 0.9
    assert [(row.se, row.lower, row.p) for row in rows] == [(None, None, None)] * 3


def test_k_euro_5_how_sure_a_ratio_is() -> None:
    """Source: t test against the clause's 90 %, computed."""
    row = recheck_ratio("b", 100, [91.8, 92.6, 90.9, 91.5, 92.2])
    assert row.is_kept
    assert row.se is not None and row.lower is not None
    assert (100 * row.ratio, 100 * row.se, 100 * row.lower) == close((91.8, 0.29154759474226355, 91.17846519708742))
    assert row.t == close(6.173949065130291)
    assert row.p == close(0.0017477859739654903, rel=1e-10)


def test_times_are_inverted_and_equal_runs_are_certain() -> None:
    row = recheck_ratio("b", 90, [100, 100], direction="lower")
    assert (row.ratio, row.lower, row.is_kept, row.p) == (0.9, 0.9, True, 0.5)
    assert recheck_ratio("b", 90, [110, 110], direction="lower").p == 1.0


@pytest.mark.parametrize(("installed", "now"), [(0, [1]), (1, []), (1, [math.nan]), (1, [-1])])
def test_a_recheck_of_no_numbers_is_refused(installed: float, now: list[float]) -> None:
    with pytest.raises(ConfigError, match="hpl: expected numbers above zero"):
        recheck_ratio("hpl", installed, now)
