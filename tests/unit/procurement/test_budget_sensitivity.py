"""Sensitivity: the swing of one input at a time, and what is refused."""

from __future__ import annotations

import math

import pytest

from milabench.errors import UsageError
from milabench.procurement.budget import InputRange, one_at_a_time


def test_one_at_a_time_says_which_end_gives_what() -> None:
    inputs = [
        InputRange(name="rate", value=5, low=4, high=5),
        InputRange(name="price", value=10, low=8, high=12),
        InputRange(name="known", value=1, low=1, high=1),
    ]
    swings = one_at_a_time(lambda x: x["known"] * x["price"] / x["rate"], inputs)
    found = [(swing.input.name, swing.low, swing.high) for swing in swings]
    assert found == [("price", 1.6, 2.4), ("rate", 2.5, 2.0)]
    assert [swing.width for swing in swings] == pytest.approx([0.8, 0.5])


def test_a_result_that_is_no_number_is_refused_in_one_line() -> None:
    angle = InputRange(name="x1", value=0, low=-math.pi, high=math.pi)
    with pytest.raises(UsageError, match=r"the result is nan at x1=-3\.14159: narrow the inputs"):
        one_at_a_time(lambda x: math.nan if x["x1"] < 0 else 1.0, [angle])
