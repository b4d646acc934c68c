from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milabench.events.values import one_line


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("\x1b[1;31mbad\x1b[0m batch", "bad batch"),
        ("one\ntwo\r\n\tthree ", "one two three"),
        ("\x1b]0;title\x07hello", "hello"),
        ("\x07\x00beep", "beep"),
        ("µs \udcff", "µs"),
    ],
)
def test_nothing_is_left_that_a_terminal_would_obey(said: str, shown: str) -> None:
    assert one_line(said) == shown


@given(st.text())
def test_what_is_shown_is_one_printable_line(said: str) -> None:
    assert one_line(said).isprintable()
