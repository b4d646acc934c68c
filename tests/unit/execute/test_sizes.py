"""Amounts of bytes, for a person."""

from __future__ import annotations

import pytest

from milabench.execute.sizes import size_text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (500, "500 B"),
        (999.6, "1 kB"),
        (12_345, "12 kB"),
        (999_499, "999 kB"),
        (999_500, "1 MB"),
        (412e6, "412 MB"),
        (999.6e6, "1.0 GB"),
        (12.63e9, "12.6 GB"),
        (2.5e12, "2.5 TB"),
        (4e15, "4.0 PB"),
        (2**60, "1.2 EB"),
        (12.3e21, "12,300.0 EB"),
    ],
)
def test_a_size_has_the_unit_that_keeps_it_short(size: float, text: str) -> None:
    assert size_text(size) == text
