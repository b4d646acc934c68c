"""Quantiles, the median and the deviation from it of numbers of which there may be millions: those are counted, not sorted."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, repeat
from operator import floordiv, pos

from milabench.analysis.sample_statistics import median, median_absolute_deviation, quantile
from milabench.dataclass import dataclass

_SORTED = 50_000
"""Up to so many values are sorted: sorting ten million takes seconds, and 40 bytes for each."""
_SAMPLE, _FAR = 1_000, 5  # the most extreme values of the sample do not say how wide a bucket is
_BUCKETS = 4_096  # over what lies between those; few, so that counting stays within the processor's caches


def quantiles(values: Sequence[float], qs: Sequence[float]) -> list[float]:
    """Return the quantiles (R7) of finite numbers."""
    if len(values) <= _SORTED:
        ordered = sorted(values)
        return [quantile(ordered, q) for q in qs]
    return _Counted.of(values).quantiles(qs)


def median_and_deviation(values: Sequence[float]) -> tuple[float, float]:
    """Return the median of finite numbers, and the median distance from it."""
    if len(values) <= _SORTED:
        return median(values), median_absolute_deviation(values)
    counted = _Counted.of(values)
    (centre,) = counted.quantiles([0.5])
    return centre, counted.deviation(centre)


@dataclass(frozen=True, slots=True)
class _Counted:
    """Values, and how many lie in each bucket: that of a value is the value divided by `width`, rounded down."""

    values: Sequence[float]
    width: float
    counts: Counter[float]

    @classmethod
    def of(cls, values: Sequence[float]) -> _Counted:
        """Count values, in buckets as narrow as suits most of them: what is far from all others has a bucket to itself."""
        sample = sorted(values[:: len(values) // _SAMPLE])
        span = sample[-_FAR] - sample[_FAR - 1]
        width = max(1, int(span) // _BUCKETS) if isinstance(span, int) else span / _BUCKETS or 1.0
        return cls(values, width, Counter(map(floordiv, values, repeat(width))))

    def quantiles(self, qs: Sequence[float]) -> list[float]:
        """Return the quantiles (R7)."""
        ranks = {q: _ranks(q, len(self.values)) for q in qs}
        value_at = self._values_at([rank for pair in ranks.values() for rank in pair], place=pos, value=pos)
        return [_between(value_at, q, len(self.values)) for q in qs]

    def deviation(self, centre: float) -> float:
        """Return the median distance from a centre."""
        home = centre // self.width
        # The distance of a value lies within one bucket of that of its bucket: what may lie on either side of the rank is
        # within two.
        value_at = self._values_at(
            _ranks(0.5, len(self.values)),
            place=lambda bucket: abs(bucket - home),
            value=lambda value: abs(value - centre),
            slack=2,
        )
        return _between(value_at, 0.5, len(self.values))

    def _values_at(
        self,
        ranks: Iterable[int],
        place: Callable[[float], float],
        value: Callable[[float], float],
        slack: int = 0,
    ) -> dict[int, float]:
        """Return what would stand at some ranks if `value` of all were sorted.

        It is in the order of the places of the buckets, but for what is no more than `slack` places from its own. So only what
        is near to a rank is looked at.
        """
        counts = Counter[float]()
        for bucket, count in self.counts.items():
            counts[place(bucket)] += count
        places = sorted(counts)
        ends = list(accumulate(counts[each] for each in places))
        place_of = {rank: places[bisect_right(ends, rank)] for rank in ranks}
        wanted = {each for each in places if any(abs(each - found) <= slack for found in set(place_of.values()))}
        buckets, width = {bucket for bucket in self.counts if place(bucket) in wanted}, self.width
        kept = sorted(map(value, (each for each in self.values if each // width in buckets)))
        left_out = {
            found: sum(counts[each] for each in places if each < found and each not in wanted)
            for found in set(place_of.values())
        }
        return {rank: kept[rank - left_out[found]] for rank, found in place_of.items()}


def _ranks(q: float, length: int) -> tuple[int, int]:
    low = math.floor(q * (length - 1))
    return low, min(low + 1, length - 1)


def _between(value_at: dict[int, float], q: float, length: int) -> float:
    low, high = _ranks(q, length)
    return value_at[low] + (q * (length - 1) - low) * (value_at[high] - value_at[low])
