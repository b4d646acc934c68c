"""Quantiles, the median and the deviation from it of numbers of which there may be millions: those are counted, not sorted."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, repeat
from operator import floordiv, pos

from milabench.analysis.sample_statistics import interpolated, median_absolute_deviation, quantile, ranks_around

_SORTED = 50_000
"""Maximum number of values that are sorted: sorting ten million takes seconds, and 40 bytes for each."""
_SAMPLE, _FAR = 1_000, 5  # the most extreme values of the sample do not say how wide a bucket is
_BUCKETS = 4_096  # over what lies between those; few, so that counting stays within the processor's caches
_SLACK = 2  # the distance of a value lies within one bucket of that of its bucket: of two on either side of a rank, within two


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderStatistics:
    """Order statistics of numbers. `deviation` is the median distance from the median, `quantiles` are by R7."""

    least: float
    most: float
    median: float
    deviation: float
    quantiles: Mapping[float, float]


def order_statistics(values: Sequence[float], qs: Iterable[float] = ()) -> OrderStatistics:
    """Return the order statistics of finite numbers, of which there is at least one."""
    if len(values) > _SORTED:
        return _Counted(values).order_statistics(tuple(qs))
    ordered = sorted(values)
    return OrderStatistics(
        least=ordered[0],
        most=ordered[-1],
        median=quantile(ordered, 0.5),
        deviation=median_absolute_deviation(ordered),
        quantiles={q: quantile(ordered, q) for q in qs},
    )


def quantiles(values: Sequence[float], qs: Sequence[float]) -> list[float]:
    """Return the quantiles (R7) of finite numbers."""
    if len(values) <= _SORTED:
        ordered = sorted(values)
        return [quantile(ordered, q) for q in qs]
    return _Counted(values).quantiles(qs)


@dataclass(frozen=True, slots=True)
class _RankBuckets:
    """The key of the bucket of each rank, the buckets to look at, and how many values with a lower key are in none of these."""

    key_of_rank: Mapping[int, float]
    buckets: frozenset[float]
    left_out: Mapping[float, int]


class _Counted:
    """Values, and the count of each bucket: the bucket is the value divided by the width, rounded down."""

    def __init__(self, values: Sequence[float]) -> None:
        # As narrow as suits most of them: what is far from all others has a bucket to itself.
        sample = sorted(values[:: len(values) // _SAMPLE])
        span = sample[-_FAR] - sample[_FAR - 1]
        self._width = max(1, int(span) // _BUCKETS) if isinstance(span, int) else span / _BUCKETS or 1.0
        self._values = values
        self._counts = Counter(map(floordiv, values, repeat(self._width)))
        self._seen: frozenset[float] = frozenset()
        self._kept: Sequence[float] = ()

    def quantiles(self, qs: Sequence[float]) -> list[float]:
        """Return the quantiles (R7)."""
        n = len(self._values)
        value_at = self._values_at(self._locate([rank for q in qs for rank in ranks_around(q, n)]))
        return [interpolated(value_at, q, n) for q in qs]

    def order_statistics(self, qs: Sequence[float]) -> OrderStatistics:
        """Return all order statistics, in a single pass over the values."""
        n = len(self._values)
        middle = ranks_around(0.5, n)
        located = self._locate([rank for q in (0.0, 0.5, 1.0, *qs) for rank in ranks_around(q, n)])
        home = located.key_of_rank[middle[0]]
        far = self._locate(middle, lambda bucket: abs(bucket - home), _SLACK)
        self._look_into(located.buckets | far.buckets)
        value_at = self._values_at(located)
        centre = interpolated(value_at, 0.5, n)
        if centre // self._width != home:  # it lies between two buckets
            home = centre // self._width
            far = self._locate(middle, lambda bucket: abs(bucket - home), _SLACK)
        return OrderStatistics(
            least=value_at[0],
            most=value_at[n - 1],
            median=centre,
            deviation=interpolated(self._values_at(far, lambda value: abs(value - centre)), 0.5, n),
            quantiles={q: interpolated(value_at, q, n) for q in qs},
        )

    def _locate(self, ranks: Iterable[int], key: Callable[[float], float] = pos, slack: int = 0) -> _RankBuckets:
        """Return where the ranks lie among values sorted by the keys of their buckets. A value is off by `slack` keys at most."""
        counts = Counter[float]()
        for bucket, count in self._counts.items():
            counts[key(bucket)] += count
        keys = sorted(counts)
        ends = list(accumulate(counts[each] for each in keys))
        key_of_rank = {rank: keys[bisect_right(ends, rank)] for rank in ranks}
        distinct = set(key_of_rank.values())
        wanted: set[float] = set()
        for own in distinct:
            wanted.update(keys[bisect_left(keys, own - slack) : bisect_right(keys, own + slack)])
        left_out = {}
        for own in distinct:
            below = ends[bisect_left(keys, own)] - counts[own]
            left_out[own] = below - sum(counts[each] for each in wanted if each < own)
        return _RankBuckets(
            key_of_rank, frozenset(bucket for bucket in self._counts if key(bucket) in wanted), left_out
        )

    def _look_into(self, buckets: frozenset[float]) -> None:
        """Keep the values of some buckets."""
        if not buckets <= self._seen:
            seen, width = self._seen | buckets, self._width
            self._seen, self._kept = seen, [value for value in self._values if value // width in seen]

    def _values_at(self, located: _RankBuckets, value: Callable[[float], float] = pos) -> dict[int, float]:
        """Return the values at the ranks if `value` of all were sorted."""
        self._look_into(located.buckets)
        buckets, width = located.buckets, self._width
        kept = sorted(map(value, (each for each in self._kept if each // width in buckets)))
        return {rank: kept[rank - located.left_out[key]] for rank, key in located.key_of_rank.items()}
