"""Centres and spreads of a list of numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

_BLOCK = 1024


def mean(values: Sequence[float]) -> float:
    """Return the arithmetic mean. Raises ValueError when there is no value."""
    if not values:
        raise ValueError("the mean of nothing")
    return math.fsum(values) / len(values)


def geometric_mean(values: Sequence[float], weights: Sequence[float] | None = None) -> float:
    """Return exp of the (weighted) mean of the logarithms. Values are above zero, weights not all zero.

    Exact for a single value.
    """
    if len(values) == 1:
        return values[0]
    if weights is None:
        return math.exp(mean([math.log(value) for value in values]))
    logs = math.fsum(weight * math.log(value) for value, weight in zip(values, weights, strict=True))
    return math.exp(logs / math.fsum(weights))


def means_without_each(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Return `geometric_mean` of all values except one, for each in turn. There are two or more."""
    if len(values) == 2:
        return [values[1], values[0]]
    terms = [weight * math.log(value) for value, weight in zip(values, weights, strict=True)]
    # The sum of what is left: `fsum` rounds once, so that the order does not matter, and what is taken off leaves no error.
    logs, totals = ([math.fsum([*parts, -part]) for part in parts] for parts in (terms, weights))
    return [math.exp(log / total) for log, total in zip(logs, totals, strict=True)]


def stdev(values: Sequence[float]) -> float:
    """Return the sample standard deviation (n-1), in two passes: the naive sum of squares fails NIST's NumAcc3 and 4."""
    if len(values) < 2:
        raise ValueError("the spread of fewer than two values")
    centre = mean(values)
    return math.sqrt(math.fsum((value - centre) ** 2 for value in values) / (len(values) - 1))


def variation(values: Sequence[float]) -> float | None:
    """Return the coefficient of variation, stdev / |mean|. None below two values or around zero."""
    if len(values) < 2:
        return None
    centre = mean(values)
    return stdev(values) / abs(centre) if centre else None


def log_stdev(values: Sequence[float]) -> float | None:
    """Return the standard deviation of the natural logarithms: a relative spread that is the same for a rate and its inverse.

    None below two values.
    """
    return stdev([math.log(value) for value in values]) if len(values) >= 2 else None


def pooled_log_stdev(groups: Iterable[Sequence[float]]) -> float | None:
    """Return the spread of logarithms within groups, pooled by degrees of freedom. None when no group has two values."""
    squares, freedom = 0.0, 0
    for group in groups:
        if len(group) >= 2:
            spread = stdev([math.log(value) for value in group])
            squares += spread * spread * (len(group) - 1)
            freedom += len(group) - 1
    return math.sqrt(squares / freedom) if freedom else None


def in_blocks(values: Sequence[float]) -> Iterator[Sequence[float]]:
    """Yield numbers some at a time: so few that they stay within the processor's caches."""
    for start in range(0, len(values), _BLOCK):
        yield values[start : start + _BLOCK]


def variation_of_blocks(blocks: Iterable[Sequence[float]], near: float) -> float | None:
    """Return `variation` of numbers that come in blocks, in one pass; `near` is a number near their mean.

    Sums are of differences from `near`, so that nothing cancels as in the naive sum of squares.
    """
    # One pass, because the rates of millions of observations are computed on the way and never kept. `dist` errs by a rounding
    # and takes a quarter of the time of a loop.
    count = 0
    totals: list[float] = []
    squares: list[float] = []
    for block in blocks:
        numbers = tuple(block)
        squares.append(math.dist(numbers, (near,) * len(numbers)) ** 2)
        totals.append(sum(numbers) - len(numbers) * near)
        count += len(numbers)
    if count < 2:
        return None
    off = math.fsum(totals) / count
    centred = max(0.0, math.fsum(squares) - count * off * off)
    return math.sqrt(centred / (count - 1)) / abs(near + off) if near + off else None


def quantile(values: Sequence[float], q: float) -> float:
    """Return the q-quantile by linear interpolation (R7, numpy's default). Raises ValueError when there is no value."""
    if not values:
        raise ValueError("a quantile of nothing")
    return interpolated(sorted(values), q, len(values))


def ranks_around(q: float, length: int) -> tuple[int, int]:
    """Return the ranks, from 0, between which the q-quantile of so many values lies."""
    low = math.floor(q * (length - 1))
    return low, min(low + 1, length - 1)


def interpolated(value_at: Mapping[int, float] | Sequence[float], q: float, length: int) -> float:
    """Return the q-quantile by linear interpolation, given the values at the ranks around it."""
    low, high = ranks_around(q, length)
    return value_at[low] + (q * (length - 1) - low) * (value_at[high] - value_at[low])


def median(values: Sequence[float]) -> float:
    """Return the 0.5-quantile."""
    return quantile(values, 0.5)


# What the median absolute deviation of a normal distribution is multiplied by to be its standard deviation: 1 / Phi^-1(3/4).
MAD_TO_SD = 1.4826


def median_absolute_deviation(values: Sequence[float]) -> float:
    """Return the median distance from the median."""
    centre = median(values)
    return median([abs(value - centre) for value in values])
