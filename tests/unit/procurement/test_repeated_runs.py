"""Rules on repeated runs, against the rules' examples and computed numbers."""

from __future__ import annotations

import math
from typing import Any

import pytest

from milabench.analysis.sample_statistics import geometric_mean
from milabench.errors import ConfigError
from milabench.procurement.repeated_runs import (
    MLPERF_RUNS,
    ReferenceConvergence,
    check_convergence,
    olympic_mean,
    recheck_ratio,
    windowed_score,
)

INF = math.inf


def close(value: Any, rel: float = 1e-12) -> Any:
    return pytest.approx(value, rel=rel)


def test_k_mlt_1_olympic_mean() -> None:
    """Source: training_rules.adoc, the rule; computed."""
    runs = [61.2, 60.8, 60.9, 61.5, 60.7, 61.0, 62.4, 60.9, 61.1, 60.6]
    assert olympic_mean(runs) == close(61.0125)


def test_k_mlt_2_one_run_may_fail_to_converge() -> None:
    """Source: training_rules.adoc, the rule."""
    assert olympic_mean([5, INF, 4, 3, 2]) == 4
    assert olympic_mean([5, INF, 4, INF, 2]) == INF
    runs, drop = MLPERF_RUNS["UNet3D"]
    assert math.isfinite(olympic_mean([INF] * 4 + [1.0] * (runs - 4), drop))
    assert olympic_mean([INF] * 5 + [1.0] * (runs - 5), drop) == INF


def test_k_mlt_3_windows_and_the_slower_of_the_middle_two() -> None:
    """Source: training_rules.adoc, the rule; computed."""
    score = windowed_score([30.1, 29.5, 31.2, INF, 29.9, 30.4, 28.8, 30.0, 29.7, 30.6], 5)
    assert score.windows == close((30.4, 30.5, 30.5, 30.1, 29.866666666666664, 30.03333333333333))
    assert score.middle == close((30.1, 30.4))
    assert score.value == score.middle[1]


def test_an_odd_number_of_windows_has_one_in_the_middle_and_an_invalid_one_is_the_slowest() -> None:
    score = windowed_score([3, 1, 2, 4, 5], 3)
    assert (score.windows, score.middle) == ((2, 2, 4), (2, 2))
    assert windowed_score([INF, INF, 1, INF, INF], 3).value == INF


SMALL = [16, 14, 16, 17, 16, 16, 15, 16, 15, 16]
LARGE = [20, 21, 21, 20, 22, 22, 21, 21, 20, 20]


@pytest.mark.parametrize(
    ("epochs", "mean", "sd", "least", "speedup", "printed"),
    [
        pytest.param(
            SMALL, 15.75, 0.4330127018922193, 15.212621138195814, 0.03532454117686101, (0.43, 15.21, 3.53), id="K-MLT-4"
        ),
        pytest.param(
            LARGE, 20.75, 0.6614378277661477, 19.929140229637703, 0.04118892039013056, (0.66, 19.93, 4.12), id="K-MLT-5"
        ),
    ],
)
def test_k_mlt_4_and_5_reference_convergence(
    epochs: list[float], mean: float, sd: float, least: float, speedup: float, printed: tuple[float, float, float]
) -> None:
    """Source: training_rules.adoc, the example, reproduced."""
    reference = ReferenceConvergence.of_points(epochs)
    assert (reference.mean, reference.sd, reference.points) == (close(mean), close(sd), 8)
    assert reference.least_mean(3) == close(least)
    assert reference.most_speedup(3) == close(speedup, rel=1e-10)
    shown = (reference.sd, reference.least_mean(3), 100 * reference.most_speedup(3))
    assert tuple(round(number, 2) for number in shown) == printed


def between() -> ReferenceConvergence:
    low, high = (ReferenceConvergence.of_points(epochs) for epochs in (SMALL, LARGE))
    return ReferenceConvergence.between(192, (128, low), (256, high), points=10)


def test_k_mlt_6_a_batch_size_between_two() -> None:
    """Source: training_rules.adoc, the example, reproduced with n = 2 N = 10."""
    reference = between()
    assert (reference.mean, reference.sd) == (close(18.25), close(0.5472252648291835))
    assert reference.least_mean(3) == close(17.603072417603347)
    assert reference.most_speedup(3) == close(0.03675083343687868, rel=1e-10)


@pytest.mark.parametrize(
    ("reference", "epochs", "mean", "is_passed"),
    [
        (ReferenceConvergence.of_points(SMALL), [15, 15, 15, 16, 16], 15.33, True),
        (ReferenceConvergence.of_points(LARGE), [19, 19, 19, 20, 21], 19.33, False),
        (between(), [17, 18, 18, 18, 20], 18, True),
    ],
)
def test_k_mlt_7_submissions(
    reference: ReferenceConvergence, epochs: list[float], mean: float, is_passed: bool
) -> None:
    """Source: training_rules.adoc, the example, reproduced."""
    result = check_convergence(reference, epochs)
    assert round(result.mean, 2) == mean
    assert result.is_passed is is_passed


def test_a_faster_convergence_is_scaled_and_a_slower_one_is_not() -> None:
    reference = ReferenceConvergence.of_points(SMALL)
    assert check_convergence(reference, [15, 15, 15, 16, 16]).factor == close(15.75 / (46 / 3))
    assert check_convergence(reference, [17, 17, 17]).factor == 1.0


def test_what_did_not_converge_passes_nothing_and_is_no_reference() -> None:
    assert not check_convergence(ReferenceConvergence.of_points(SMALL), [16, INF, INF]).is_passed
    with pytest.raises(ConfigError, match="reference: more than 1 of its points did not converge"):
        ReferenceConvergence.of_points([16, 16, INF, INF])


@pytest.mark.parametrize("runs", [[1, 2], [1, 2, math.nan], [0, 1, 2]])
def test_runs_that_give_no_mean_are_refused(runs: list[float]) -> None:
    with pytest.raises(ConfigError, match="runs: "):
        olympic_mean(runs)


def test_fewer_runs_than_a_window_and_a_batch_outside_are_refused() -> None:
    with pytest.raises(ConfigError, match="runs: 3 runs, 5 are needed"):
        windowed_score([1, 2, 3], 5)
    reference = ReferenceConvergence.of_points(SMALL)
    with pytest.raises(ConfigError, match="batch: 300 is not between 128 and 256"):
        ReferenceConvergence.between(300, (128, reference), (256, reference), points=10)


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
