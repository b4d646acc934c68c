"""Sensitivity: the swing of one input at a time, and what is refused."""

from __future__ import annotations

import math

import pytest

from milabench.errors import UsageError
from milabench.procurement.budget import VariedInput, one_at_a_time


def test_one_at_a_time_says_which_end_gives_what() -> None:
    inputs = [
        VariedInput(name="rate", value=5, range=(4, 5)),
        VariedInput(name="price", value=10, range=(8, 12)),
        VariedInput(name="known", value=1, range=(1, 1)),
    ]
    swings = one_at_a_time(lambda x: x["known"] * x["price"] / x["rate"], inputs)
    found = [(swing.name, *swing.swing) for swing in swings]
    assert found == [("price", 1.6, 2.4), ("rate", 2.5, 2.0)]
    assert [swing.width for swing in swings] == pytest.approx([0.8, 0.5])


def test_a_result_that_is_no_number_is_refused_in_one_line() -> None:
    angle = VariedInput(name="x1", value=0, range=(-math.pi, math.pi))
    with pytest.raises(UsageError, match=r"the result is nan at x1=-3\.14159: narrow the inputs"):
        one_at_a_time(lambda x: math.nan if x["x1"] < 0 else 1.0, [angle])
