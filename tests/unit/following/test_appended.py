"""A file that is still written is read part by part, in whole lines."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from milabench.errors import RecordError
from milabench.following.appended import Appended


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pieces=st.lists(st.binary(max_size=20), max_size=8))
def test_however_it_is_written_each_whole_line_comes_once_and_in_order(tmp_path: Path, pieces: list[bytes]) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"")
    appended, seen = Appended(path), []
    for piece in pieces:
        with path.open("ab") as file:
            file.write(piece)
        seen += appended.lines()
    assert seen == b"".join(pieces).split(b"\n")[:-1]


def test_it_may_begin_later_than_its_file_does(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    early = Appended(path)
    assert early.lines() == []
    path.write_bytes(b"first\nsecond\nthird\n")
    assert early.lines() == [b"first", b"second", b"third"]
    assert Appended(path, start=8).lines() == [b"cond", b"third"]


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="cannot be read: is a directory"):
        Appended(tmp_path).lines()
