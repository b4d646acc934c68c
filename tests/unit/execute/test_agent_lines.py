"""Bytes of a pipe become lines, however they are cut."""

from __future__ import annotations

import json
import re

from hypothesis import given
from hypothesis import strategies as st

from milabench.execute.agent.streams import LINE_BYTES, LineDecoder
from milabench.redaction import Masker

SECRET = "s3cr3t-of-mine"


def texts(records: bytes) -> list[str]:
    return [json.loads(line)["data"] for line in records.splitlines()]


def fed(pieces: list[bytes], *secrets: str) -> list[str]:
    lines = LineDecoder("stdout", Masker(secrets))
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


@given(st.lists(st.sampled_from([b"a", b"--", b" ", b"\n", b"\x85", b"\xff", "é".encode()[:1], "é".encode()[1:]])))
def test_each_line_is_what_its_bytes_are_and_the_last_with_a_word_is_known(pieces: list[bytes]) -> None:
    lines, said = (
        LineDecoder("stdout"),
        [part.decode("utf-8", "backslashreplace") for part in b"".join(pieces).split(b"\n")],
    )
    assert texts(lines.feed(b"".join(pieces), 0.0)) == [f"{text}\n" for text in said[:-1]]
    assert lines.last == next((text.strip() for text in reversed(said[:-1]) if re.search(r"\w", text)), "")


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


@given(st.lists(st.integers(0, 40), max_size=8), st.booleans())
def test_a_secret_is_masked_however_it_was_cut(cuts: list[int], is_shown_early: bool) -> None:
    data = f"before {SECRET} after\n{SECRET}\r{SECRET}".encode()
    lines, found = LineDecoder("stdout", Masker([SECRET])), []
    for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(data)], strict=True):
        found += texts(lines.feed(data[start:end], 0.0))
        if is_shown_early:
            found += texts(lines.partial(0.0))
    said = "".join(found + texts(lines.partial(0.0, last=True)))
    assert SECRET[:-1] not in said
    assert said.startswith("before *** after\n")


def test_what_may_begin_a_secret_is_shown_when_it_turns_out_to_be_none() -> None:
    lines = LineDecoder("stderr", Masker([SECRET]))
    lines.feed(b"Loading s3cr", 0.0)
    assert texts(lines.partial(0.0)) == ["Loading "]
    assert texts(lines.partial(0.0)) == []
    assert texts(lines.feed(b"umbs\n", 0.0)) == ["s3crumbs\n"]


def test_no_secret_lies_across_the_pieces_of_a_line_without_end() -> None:
    for before in (LINE_BYTES - 5, LINE_BYTES - 14, LINE_BYTES + 1):
        said = fed([b"x" * before + SECRET[:9].encode(), SECRET[9:].encode() + b"y" * LINE_BYTES + b"\n"], SECRET)
        assert "".join(said) == "x" * before + "***" + "y" * LINE_BYTES + "\n"


def test_a_key_of_several_lines_is_masked_in_each() -> None:
    assert fed([b"a\nfirst-line-of-it\nsecond-li", b"ne-of-it\nb"], "first-line-of-it\nsecond-line-of-it\n") == [
        *("a\n", "***\n", "***\n", "b")
    ]
