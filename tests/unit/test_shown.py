"""Foreign text wherever it is shown: a terminal obeys none of it, a table keeps its cells, a spreadsheet its values."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milabench import cli
from milabench.display.live import Live
from milabench.display.plain import Plain
from milabench.shown import csv_cell, cut_text, visible, visible_line, visible_output
from tests.mutations import TERMINAL
from tests.recorded_run import SYSTEM, Recorded, data, message, rates, record

Milabench = Callable[..., Any]

OBEYED = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
FORMULA = "=cmd|'calc'!A1 [x](http:evil) `<b>`"


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "␛[31mred␛[0m"),
        ("\x1b]52;c;ZXZpbA==\x07", "␛]52;c;ZXZpbA==␇"),
        ("a\x9b2Jb\x7f", "a\ufffd2Jb␡"),
        ("photo\u202egnp.exe", "photo\ufffdgnp.exe"),
        ("one\u2028two\u2029three\x85four", "one\ufffdtwo\ufffdthree\ufffdfour"),
        ("over\rwritten\r\n\tkept\n", "over␍written\r\n\tkept\n"),
        ("\udcff\ud800", "\ufffd\ufffd"),
        ("µs — 時間 🙂", "µs — 時間 🙂"),
    ],
)
def test_what_is_not_to_be_read_is_a_sign(said: str, shown: str) -> None:
    assert visible(said) == shown


@given(st.text(st.characters()))
def test_whatever_was_said_can_be_written_keeps_its_width_and_is_shown_once_and_for_all(said: str) -> None:
    shown = visible(said)
    assert not OBEYED.search(shown)
    shown.encode()
    assert (len(shown), visible(shown)) == (len(said), shown)
    assert len(visible_line(said).splitlines()) <= 1


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        (FORMULA, f"'{FORMULA}"),
        ("+1+1", "'+1+1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("-cmd", "'-cmd"),
        ("\t=1", "'␉=1"),
        ("\r=1", "'␍=1"),
        ("\uff1d1", "'\uff1d1"),
        ("a\nb", "a␊b"),
        ("-1.5", "-1.5"),
        ("+2e-3", "+2e-3"),
        (-1.5, -1.5),
        (None, None),
        ("images/s", "images/s"),
    ],
)
def test_no_cell_is_a_formula_and_a_number_stays_one(value: object, cell: object) -> None:
    assert csv_cell(value) == cell


def test_output_keeps_its_colours_and_nothing_is_written_over() -> None:
    assert visible_output("\x1b[1;31mbad\x1b[0m 10%\r50%\r\n\x1b[2J") == "\x1b[1;31mbad\x1b[0m 10%\n50%\n␛[2J"


# ---------------------------------------------------------------------------------------------------------- every command


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A run in which every name and text is an attack."""
    evil = TERMINAL + FORMULA
    machine = {**SYSTEM["nodes"][0], "name": evil, "hostname": evil, "cpu": {"model": evil, "count": 3}, "os": evil}
    machine["devices"] = [{"index": 0, "name": evil, "arch": "cuda", "uuid": evil}]
    events = (
        *rates(5.0, 6.0, 7.0, units=evil),
        message(evil),
        data(metric=evil, value=-1.5, units=evil, case=evil, params={evil: evil}),
        data(metric="level", value=-1.5, units="dB"),
    )
    steps = [
        Recorded(bench=FORMULA, tag="", node="local", events=events, stderr=f"\x1b[32mok\x1b[0m {evil}\n"),
        Recorded(bench="bad", tag="", outcome="failed", why=evil, detail=evil),
    ]
    told = {
        "profile": evil,
        "version": evil,
        "created": evil,
        "system": {"arch": "cuda", "nodes": [machine]},
        "name": evil,
    }
    run = record(tmp_path / "base", *steps, manifest=told, skipped=[{"bench": evil, "why": evil}])
    for path in (run.path / "manifest.json", run.path / "journal.jsonl"):
        path.write_text(path.read_text().replace('"bench": "bad"', json.dumps({"bench": evil})[1:-1]))
    return run.path


@pytest.mark.parametrize(
    "command",
    [
        *(f"report RUN -f {form}" for form in ("text", "markdown", "html", "csv", "json", "junit")),
        *(f"compare RUN RUN -f {form} --why" for form in ("text", "markdown", "html", "csv", "junit")),
        "runs",
        "status RUN",
        "replay RUN --speed 0 -v --display plain",
        "bundle RUN -o o.zip",
        "logs EVIL --run RUN",
        "report EVIL",
    ],
)
def test_no_text_of_a_run_is_obeyed_by_a_terminal(milabench: Milabench, hostile: Path, command: str) -> None:
    words = {"RUN": str(hostile), "EVIL": TERMINAL.replace("\x00", "")}
    said = milabench(*(words.get(word, word) for word in command.split()))
    assert said.code in (0, 1, 3), said
    assert not OBEYED.search(said.out + said.err)


def test_no_text_of_a_run_is_obeyed_in_a_file(milabench: Milabench, hostile: Path, tmp_path: Path) -> None:
    for ending in ("txt", "md", "html", "csv", "xml"):
        path = tmp_path / f"report.{ending}"
        assert milabench("report", str(hostile), "-o", str(path)).code == 0
        assert not OBEYED.search(path.read_bytes().decode())
    ET.parse(tmp_path / "report.xml")
    table = list(csv.reader((tmp_path / "report.csv").read_text().splitlines()))
    assert {len(row) for row in table} == {len(table[0])}
    assert all(not cell.startswith(("=", "@", "+")) for row in table for cell in row)
    lines = (tmp_path / "report.md").read_text().splitlines()
    read = [line for line in lines if not line.startswith("  - ")]  # the others are code
    assert not re.search(r"(?<!\\)(\]\(|<b>|`)", "\n".join(read))
    at = next(number for number, line in enumerate(lines) if line.startswith("| bench"))
    cells = [len(re.findall(r"(?<!\\)\|", line)) for line in itertools.takewhile(bool, lines[at:])]
    assert len(cells) > 3
    assert len(set(cells)) == 1


def test_a_query_as_csv_has_no_formula_and_its_negative_numbers(milabench: Milabench, hostile: Path) -> None:
    assert milabench("db", "add", str(hostile), "--db", "o.db").code == 0
    said = milabench("db", "query", "SELECT bench, value FROM metrics WHERE metric = 'level'", "--db", "o.db", "--csv")
    assert list(csv.reader(io.StringIO(said.out))) == [["bench", "value"], [f"'{FORMULA}", "-1.5"]]


def test_logs_are_filtered_on_a_terminal_and_as_written_elsewhere(
    milabench: Milabench, hostile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = milabench("logs", FORMULA, "--run", str(hostile)).out
    assert "\x1b]0;owned\x07" in raw
    monkeypatch.setattr(cli.VisibleStream, "isatty", lambda _: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    said = milabench("logs", FORMULA, "--run", str(hostile)).out
    assert said.startswith("\x1b[32mok\x1b[0m ␛]0;owned␇")
    assert not OBEYED.search(said.replace("\x1b[32m", "").replace("\x1b[0m", ""))
    assert milabench("logs", FORMULA, "--run", str(hostile), "--raw").out == raw


def test_displays_draw_with_what_a_terminal_obeys_and_nobody_else_does() -> None:
    for make in (Plain, Live):
        stream = io.StringIO()
        display = make(stream)
        display.on_start(TERMINAL)
        display.on_progress(TERMINAL, {"rate": 5.0, "units": TERMINAL})
        display.on_end(TERMINAL, "failed", TERMINAL, TERMINAL)
        display.on_message(TERMINAL)
        display.close()
        assert "]0;owned" in stream.getvalue()
        assert not re.search("\x1b\\]|\x07|\x9b|\u202e|\u2028|\x1b\\[2J[^\x1b]*gnp", stream.getvalue())
        assert stream.getvalue().encode()


def test_a_stream_that_lacks_letters_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    stream = cli.VisibleStream(io.TextIOWrapper(raw, encoding="ascii", write_through=True))
    stream.write("µ\x1b")
    assert raw.getvalue() == b"\\xb5\\u241b"


@pytest.mark.parametrize("make", [Plain, Live])
def test_a_name_with_a_line_break_makes_no_line_of_its_own(make: Callable[[io.StringIO], Plain | Live]) -> None:
    stream = io.StringIO()
    display = make(stream)
    display.on_start("digits\n0/1 other: passed")
    display.on_end("digits\n0/1 other: passed", "failed", "why")
    display.on_message("two\nlines")
    display.close()
    lines = [line.strip() for line in stream.getvalue().splitlines()]
    assert not [line for line in lines if line.startswith("0/1 other")]
    assert any(line.endswith("two") for line in lines)
    assert any(line.endswith("lines") for line in lines)


def test_a_text_is_cut_at_a_word_or_anywhere() -> None:
    assert cut_text("one two", 7) == "one two"
    assert cut_text("one two three", 10) == "one two…"
    assert cut_text("one two three", 10, at_word=False) == "one two t…"
    assert cut_text("indivisible", 5) == "indi…"
