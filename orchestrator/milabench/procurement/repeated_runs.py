"""What rules make of repeated runs: Olympic means, windows, reference convergence, and the recheck of an installed system.

MLPerf Training: github mlcommons/training_policies d73e20f, training_rules.adoc. Recheck: EuroHPC hosting agreement, clause
"Performance Testing".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from milabench.analysis.intervals import t_quantile
from milabench.analysis.sample_statistics import mean, stdev
from milabench.analysis.throughput import Direction
from milabench.analysis.two_samples import tail
from milabench.errors import ConfigError, Problem

# Runs that the rules v6.0 ask for, and how many are dropped at either end.
MLPERF_RUNS: Final[Mapping[str, tuple[int, int]]] = MappingProxyType(
    {
        "text to image": (10, 1),
        "small LLM MoE pretraining": (10, 1),
        "small LLM pretraining": (10, 1),
        "LLM pretraining": (3, 1),
        "LLM MoE pretraining": (3, 1),
        "LLM finetuning": (10, 1),
        "recommendation": (10, 1),
        "UNet3D": (40, 4),
    }
)


def olympic_mean(runs: Sequence[float], drop: int = 1) -> float:
    """Return the mean of what is left without the `drop` fastest and slowest; infinite when more did not converge.

    A run that did not converge is infinite. Raises ConfigError where nothing would be left.
    """
    if len(runs) <= 2 * drop:
        raise ConfigError(Problem("", "runs", f"{len(runs)} runs, {2 * drop + 1} are the least that leave one"))
    if any(math.isnan(run) or run <= 0 for run in runs):
        raise ConfigError(Problem("", "runs", f"expected times above zero, got {list(runs)}"))
    return mean(_trimmed(runs, drop))


def _trimmed(runs: Sequence[float], drop: int) -> Sequence[float]:
    return sorted(runs)[drop : len(runs) - drop]


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowedScore:
    """Olympic means of all windows, in their order, and the two middle ones of them, which are one for an odd number."""

    windows: tuple[float, ...]
    middle: tuple[float, float]

    @property
    def value(self) -> float:
        """The slower of the middle two: the rules do not say which one counts. Infinite for an invalid result."""
        return self.middle[1]


def windowed_score(runs: Sequence[float], size: int, drop: int = 1) -> WindowedScore:
    """Return the score of more runs than asked for, in the order in which they began: windows of `size` slide over them."""
    if len(runs) < size:
        raise ConfigError(Problem("", "runs", f"{len(runs)} runs, {size} are needed"))
    windows = tuple(olympic_mean(runs[first : first + size], drop) for first in range(len(runs) - size + 1))
    ordered = sorted(windows)
    return WindowedScore(windows=windows, middle=(ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceConvergence:
    """Epochs to converge of the reference at one batch size: mean, standard deviation and number of the points that count."""

    mean: float
    sd: float
    points: int

    @classmethod
    def of_points(cls, epochs: Sequence[float], drop: int = 1) -> ReferenceConvergence:
        """Return that of the points but the lowest and the highest; the deviation divides by n, as in the rules' example."""
        centre = olympic_mean(epochs, drop)
        if not math.isfinite(centre):
            raise ConfigError(Problem("", "reference", f"more than {drop} of its points did not converge"))
        kept = _trimmed(epochs, drop)
        return cls(mean=centre, sd=math.sqrt(mean([(point - centre) ** 2 for point in kept])), points=len(kept))

    @classmethod
    def between(
        cls,
        batch: float,
        low: tuple[float, ReferenceConvergence],
        high: tuple[float, ReferenceConvergence],
        points: int,
    ) -> ReferenceConvergence:
        """Return that of a batch size between two, in proportion; `points` are twice the runs asked for in the rules' example."""
        (low_batch, below), (high_batch, above) = low, high
        if not low_batch < batch < high_batch:
            raise ConfigError(Problem("", "batch", f"{batch:g} is not between {low_batch:g} and {high_batch:g}"))
        share = (batch - low_batch) / (high_batch - low_batch)
        return cls(
            mean=below.mean + share * (above.mean - below.mean),
            sd=below.sd + share * (above.sd - below.sd),
            points=points,
        )

    def least_mean(self, runs: int, p: float = 0.05) -> float:
        """Return the lowest mean of a submission of so many kept runs that a one-sided t test does not call faster."""
        margin = self.sd * math.sqrt(1 / self.points + 1 / runs)
        return self.mean - t_quantile(1 - p, self.points + runs - 2) * margin

    def most_speedup(self, runs: int) -> float:
        """Return by which share a submission may converge faster."""
        return self.mean / self.least_mean(runs) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvergenceResult:
    """The mean of a submission, the lowest one allowed, and what an accepted score is multiplied by: never below 1."""

    mean: float
    least: float
    factor: float

    @property
    def is_passed(self) -> bool:
        """Whether it converged, and no faster than the reference lets expect."""
        return self.least <= self.mean < math.inf


def check_convergence(reference: ReferenceConvergence, epochs: Sequence[float], drop: int = 1) -> ConvergenceResult:
    """Return how the epochs of a submission compare with the reference."""
    centre = olympic_mean(epochs, drop)
    least = reference.least_mean(len(epochs) - 2 * drop)
    return ConvergenceResult(mean=centre, least=least, factor=max(1.0, reference.mean / centre))


@dataclass(frozen=True, slots=True, kw_only=True)
class RecheckRatio:
    """One benchmark today over what was measured after installation; the point decides, the lower bound says how sure it is.

    `ratio` above 1: better now. `se`, `lower` (one-sided, 95 %), `t` and `p` (of the ratio being at most the limit) are None
    for a single run. The value after installation is a constant of the contract.
    """

    name: str
    ratio: float
    limit: float
    se: float | None = None
    lower: float | None = None
    t: float | None = None
    p: float | None = None

    @property
    def is_kept(self) -> bool:
        """Whether the ratio reaches the limit; the last bits of logarithms and back decide nothing."""
        return self.ratio >= self.limit or math.isclose(self.ratio, self.limit, rel_tol=1e-12)


def recheck_ratio(
    name: str,
    installed: float,
    now: Sequence[float],
    *,
    limit: float = 0.9,
    direction: Direction = "higher",
    level: float = 0.95,
) -> RecheckRatio:
    """Return the recheck of one benchmark, of all of which each has to reach the limit: a mean over them decides nothing."""
    if not now or any(not 0 < value < math.inf for value in (installed, *now)) or direction == "none":
        what = f"expected numbers above zero whose direction is known, got {list(now)} against {installed:g}"
        raise ConfigError(Problem("", name, what))
    ratios = [installed / value if direction == "lower" else value / installed for value in now]
    centre = mean(ratios)
    if len(ratios) == 1:
        return RecheckRatio(name=name, ratio=centre, limit=limit)
    freedom = len(ratios) - 1
    se = stdev(ratios) / math.sqrt(len(ratios))
    away = centre - limit
    return RecheckRatio(
        name=name,
        ratio=centre,
        limit=limit,
        se=se,
        lower=centre - t_quantile(level, freedom) * se,
        t=away / se if se else math.copysign(math.inf, away) if away else 0.0,
        p=tail(away, se, freedom),
    )
