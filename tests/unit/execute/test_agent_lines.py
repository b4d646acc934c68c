"""Bytes of a pipe become lines, however they are cut."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from milabench.execute.agent.streams import LineDecoder


def texts(records: bytes) -> list[str]:
    return [json.loads(line)["data"] for line in records.splitlines()]


def fed(pieces: list[bytes]) -> list[str]:
    lines = LineDecoder("stdout")
    found = [text for piece in pieces for text in texts(lines.feed(piece, 0.0))]
    return found + texts(lines.partial(0.0, last=True))


@given(
    st.text(alphabet=st.characters(blacklist_characters="\r", blacklist_categories=["Cs"])),
    st.lists(st.integers(0, 50)),
)
def test_text_is_read_back_however_it_was_cut(text: str, cuts: list[int]) -> None:
    data, pieces = text.encode(), []
    for cut in cuts:
        pieces.append(data[:cut])
        data = data[cut:]
    assert "".join(fed([*pieces, data])) == text


@given(st.binary())
def test_any_bytes_become_records_of_whole_lines(data: bytes) -> None:
    found = fed([data])
    assert all(text.endswith("\n") for text in found[:-1])
    assert "".join(found).count("\n") == data.count(b"\n")


@given(st.lists(st.sampled_from([b"a", b"bc", b"\r", b"\n", "é".encode()[:1], "é".encode()[1:]])))
def test_what_carriage_returns_overwrote_is_gone_however_it_was_cut(pieces: list[bytes]) -> None:
    assert fed(pieces) == fed([b"".join(pieces)])


def test_a_partial_line_and_its_rest_are_the_line() -> None:
    lines = LineDecoder("stderr")
    assert texts(lines.feed(b"Loading", 0.0)) == []
    assert texts(lines.partial(0.0)) == ["Loading"]
    assert texts(lines.partial(0.0)) == []
    assert texts(lines.feed(b" done\n", 0.0)) == [" done\n"]


def test_an_update_that_is_shown_early_stays_an_update() -> None:
    lines = LineDecoder("stderr")
    lines.feed(b"\r10%\r20%", 0.0)
    assert texts(lines.partial(0.0)) == ["20%\r"]
    assert texts(lines.feed(b"\r30%\r40%\n", 0.0)) == ["40%\n"]
