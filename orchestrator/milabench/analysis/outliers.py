"""Values that lie far out: labelled, never left out."""

from __future__ import annotations

from collections.abc import Sequence

from milabench.analysis.intervals import Interval
from milabench.analysis.spread import median, quantile

# A modified z-score above this is far out; 1.4826 makes the median absolute deviation a standard deviation (Iglewicz, Hoaglin).
FAR = 14.826
_TO_SIGMA = 0.6745


def deviation(values: Sequence[float]) -> float:
    """The median absolute deviation from the median."""
    centre = median(values)
    return median([abs(value - centre) for value in values])


def modified_z(values: Sequence[float]) -> list[float]:
    """(value - median) / median absolute deviation; where that is zero, 0 at the median and infinite elsewhere."""
    centre, scale = median(values), deviation(values)
    if not scale:
        return [0.0 if value == centre else float("inf") if value > centre else float("-inf") for value in values]
    return [(value - centre) / scale for value in values]


def iglewicz(values: Sequence[float]) -> list[float]:
    """0.6745 (value - median) / median absolute deviation: a z-score that outliers do not move."""
    return [_TO_SIGMA * z for z in modified_z(values)]


def tukey_fences(values: Sequence[float], k: float = 1.5) -> Interval:
    """The quartiles (R7) less and plus k times what is between them; k = 3 for values that are severely far out."""
    low, high = quantile(values, 0.25), quantile(values, 0.75)
    return low - k * (high - low), high + k * (high - low)


def outlier_indices(values: Sequence[float], limit: float = FAR) -> list[int]:
    """The places of the values whose modified z-score is beyond the limit."""
    return [place for place, z in enumerate(modified_z(values)) if abs(z) > limit]
