"""Quantiles of numbers of which there may be millions: those are counted, not sorted."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, repeat
from operator import floordiv, sub

from milabench.analysis.sample_statistics import interpolated, median_absolute_deviation, ranks_around

_SORTED = 50_000
"""Maximum number of values that are sorted: sorting ten million takes seconds, and 40 bytes for each."""
_SAMPLE, _FAR = 1_000, 5  # the most extreme values of the sample do not say how wide a bucket is
_BESIDE_QUARTERS = (0.24, 0.26, 0.74, 0.76)
_BUCKETS = 4_096  # over what lies between those; few, so that counting stays within the processor's caches

Order = Mapping[float, float]
"""Quantiles of some numbers by their q, of which 0.0, 0.5 and 1.0 are the least, the median and the most."""


def order_of(values: Sequence[float], qs: Iterable[float] = ()) -> Order:
    """Return the order of finite numbers, of which there is at least one, with these quantiles."""
    wanted = (0.0, 0.5, 1.0, *_BESIDE_QUARTERS, *qs)
    return dict(zip(wanted, quantiles(values, wanted), strict=True))


def median_distance(values: Sequence[float], order: Order, least: float = 0.0) -> float:
    """Return the median distance from the median, of numbers of this order. A smaller number than `least` may be too large."""
    if len(values) <= _SORTED:
        return median_absolute_deviation(values)
    # Half of them lie between the quarters: the distances of these two are bounds, with few values between.
    centre = order[0.5]
    low = min(centre - order[0.26], order[0.74] - centre)
    high = max(centre - order[0.24], order[0.76] - centre)
    if high < least:
        return high
    nearer, band = 0, []
    for distance in map(abs, map(sub, values, repeat(centre))):
        if distance < low:
            nearer += 1
        elif distance <= high:
            band.append(distance)
    band.sort()
    value_at = {rank: band[rank - nearer] for rank in ranks_around(0.5, len(values))}
    return interpolated(value_at, 0.5, len(values))


def quantiles(values: Sequence[float], qs: Sequence[float]) -> list[float]:
    """Return the quantiles (R7) of finite numbers, of which there is at least one."""
    count = len(values)
    if count <= _SORTED:
        ordered = sorted(values)
        return [interpolated(ordered, q, count) for q in qs]
    # As narrow as suits most of them: what is far from all others has a bucket to itself.
    sample = sorted(values[:: count // _SAMPLE])
    span = sample[-_FAR] - sample[_FAR - 1]
    width = max(1, int(span) // _BUCKETS) if isinstance(span, int) else span / _BUCKETS or 1.0
    sizes = Counter(map(floordiv, values, repeat(width)))
    buckets = sorted(sizes)
    ends = list(accumulate(sizes[each] for each in buckets))
    bucket_of_rank = {rank: buckets[bisect_right(ends, rank)] for q in qs for rank in ranks_around(q, count)}
    wanted = frozenset(bucket_of_rank.values())
    kept = sorted(value for value in values if value // width in wanted)
    left_out = dict(zip(buckets, accumulate(0 if each in wanted else sizes[each] for each in buckets), strict=True))
    value_at = {rank: kept[rank - left_out[bucket]] for rank, bucket in bucket_of_rank.items()}
    return [interpolated(value_at, q, count) for q in qs]
