"""Very many numbers are counted in buckets, and come to exactly what sorting them does."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Sequence

import pytest

from milabench.analysis.order_statistics import OrderStatistics, order_statistics, quantiles
from milabench.analysis.sample_statistics import median, median_absolute_deviation, quantile

MANY = 50_001  # the least that is counted
QS = (0.0, 0.01, 0.5, 0.9, 0.99, 0.9999, 1.0)

Draw = Callable[[random.Random], float]
KINDS: dict[str, tuple[str, Draw]] = {
    "durations": ("I", lambda draw: int(draw.gauss(1e6, 5e4))),
    "one value": ("I", lambda draw: 1_000_000),
    "two neighbours": ("I", lambda draw: draw.choice((999_999, 1_000_000))),
    "two far apart": ("I", lambda draw: draw.choice((10, 2**31))),
    "a long tail": ("I", lambda draw: int(2**31 * draw.random() ** 8)),
    "rare stalls": ("I", lambda draw: int(draw.gauss(1e6, 5e4)) * (1 if draw.random() < 0.999 else 1000)),
    "seconds": ("d", lambda draw: draw.gauss(1e-3, 5e-5)),
    "one value in seconds": ("d", lambda draw: 1e-3),
    "the extremes of floats": ("d", lambda draw: draw.choice((1e-50, 1e50))),
    "many orders of magnitude": ("d", lambda draw: draw.random() ** 20),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("more", [0, 1])
def test_very_many_numbers_come_to_what_sorting_them_does(kind: str, more: int) -> None:
    typecode, value = KINDS[kind]
    draw = random.Random(kind)
    values: Sequence[float] = memoryview(array(typecode, (value(draw) for _ in range(MANY + more))))
    ordered = sorted(values)
    assert quantiles(values, QS) == [quantile(ordered, q) for q in QS]
    assert order_statistics(values, QS) == OrderStatistics(
        least=ordered[0],
        most=ordered[-1],
        median=median(ordered),
        deviation=median_absolute_deviation(ordered),
        quantiles={q: quantile(ordered, q) for q in QS},
    )


def test_few_numbers_are_sorted() -> None:
    assert quantiles([3.0, 1.0, 2.0], [0.0, 0.25, 1.0]) == [1.0, 1.5, 3.0]
    found = order_statistics([9.0, 1.0, 2.0], [0.25])
    assert (found.least, found.median, found.most, found.deviation) == (1.0, 2.0, 9.0, 1.0)
    assert found.quantiles == {0.25: 1.5}
