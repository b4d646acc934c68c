"""Means and spreads of lists of numbers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from milabench.analysis.sample_statistics import geometric_mean, means_without_each

PAIRS = st.lists(st.tuples(st.floats(1e-50, 1e50), st.floats(1e-6, 1e6)), min_size=2, max_size=60)


@given(PAIRS)
def test_the_means_without_each_are_to_the_last_digit_those_of_the_others(pairs: list[tuple[float, float]]) -> None:
    values, weights = map(list, zip(*pairs, strict=True))
    others = [(values[:at] + values[at + 1 :], weights[:at] + weights[at + 1 :]) for at in range(len(values))]
    assert means_without_each(values, weights) == [geometric_mean(*rest) for rest in others]
