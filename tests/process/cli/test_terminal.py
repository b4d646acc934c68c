"""What is different on a terminal: tables that fit it, colours, and who switches them off."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import fork_server
from tests.commands import ROOT, Said
from tests.processes import until

from .written import suite

Terminal = Callable[..., str]


@pytest.fixture
def terminal(environ: dict[str, str]) -> Terminal:
    """What a terminal of some columns shows of `milabench ARGUMENTS`."""

    def run(*argv: str, columns: int = 80, **more: str) -> str:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        known = {name: text for name, text in environ.items() if name not in ("COLUMNS", "NO_COLOR", "FORCE_COLOR")}
        streams = (os.open(os.devnull, os.O_RDONLY), theirs, os.dup(theirs))
        command = fork_server.Command(argv, {**known, "TERM": "xterm-256color", **more}, ROOT, streams)
        shown = b""
        with contextlib.suppress(OSError):  # what reading from a terminal says when its last process has ended
            while piece := os.read(ours, 65536):
                shown += piece
        os.close(ours)
        command.wait()
        command.end()
        return shown.decode().replace("\r\n", "\n")

    return run


@pytest.fixture
def recorded(milabench: Callable[..., Said], tmp_path: Path) -> Callable[..., Said]:
    """`milabench`, with one run of several benchmarks."""
    said = milabench("run", *suite(tmp_path, **{f"benchmark-{number}": "echo fine" for number in range(3)}))
    assert said.code == 0, said.err
    assert milabench("db", "add").code == 0
    return milabench


QUERY = ("db", "query", "SELECT run, created, summary, verdict, profile FROM runs")


@pytest.mark.parametrize("argv", [("runs",), QUERY], ids=["runs", "db query"])
def test_a_table_fits_the_terminal_and_says_what_it_left_out(
    recorded: Callable[..., Said], terminal: Terminal, argv: tuple[str, ...]
) -> None:
    table = terminal(*argv, columns=60).splitlines()
    (note,) = [line for line in table if line.endswith(". --wide shows everything")]
    assert "left out" in note
    assert max(len(line) for line in table if line != note) <= 60
    whole = recorded(*argv).out
    assert "--wide" not in whole
    assert len(whole.splitlines()[0]) > 60
    assert terminal(*argv, "--wide", columns=60) == whole
    assert terminal(*argv, columns=60, MILABENCH_WIDE="1") == whole


def test_a_terminal_that_does_not_know_its_size_gets_everything(
    recorded: Callable[..., Said], terminal: Terminal
) -> None:
    assert terminal("runs", columns=0) == recorded("runs").out


@pytest.mark.parametrize(
    ("form", "begins"),
    [
        ("csv", "bench,outcome\nbenchmark-0,passed\n"),
        ("json", '[\n {\n  "bench": "benchmark-0"'),
        ("markdown", "| bench"),
    ],
)
def test_a_query_for_machines_is_the_same_on_a_terminal(
    recorded: Callable[..., Said], terminal: Terminal, form: str, begins: str
) -> None:
    query = ("db", "query", "SELECT bench, outcome FROM results ORDER BY bench", "--format", form)
    said = recorded(*query)
    assert said.out.startswith(begins)
    assert terminal(*query, columns=10).splitlines() == said.out.splitlines()


def test_a_query_in_two_formats_is_refused(milabench: Callable[..., Said]) -> None:
    said = milabench("db", "query", "SELECT 1", "--csv", "--format", "json")
    assert (said.code, said.err) == (2, "error: csv and json are different formats. Choose a single format\n")


def seen_until(pattern: str, go: Path, environ: dict[str, str], *argv: str) -> None:
    """Run a command that waits for the file `go` on a terminal, and make that only when what it shows has the pattern."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    known = {name: text for name, text in environ.items() if name not in ("COLUMNS", "NO_COLOR", "FORCE_COLOR")}
    process = subprocess.Popen(
        [sys.executable, "-m", "milabench", *argv],
        env={**known, "TERM": "xterm-256color"},
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = bytearray()

    def is_seen() -> bool:
        while select.select([ours], [], [], 0)[0]:
            try:
                shown.extend(os.read(ours, 65536))
            except OSError:  # what reading from a terminal says when its last process has ended
                break
        return re.search(pattern, shown.decode("utf-8", "replace"), re.S) is not None

    try:
        until(is_seen, f"what matches {pattern}")
        go.touch()
        until(lambda: is_seen() and process.poll() is not None, "the end of the command")
        assert process.returncode == 0, shown.decode()
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_the_table_names_what_runs_and_lets_time_pass_while_nothing_happens(
    environ: dict[str, str], tmp_path: Path
) -> None:
    go = tmp_path / "go"
    slow = f"while ! test -e {go}; do sleep 0.05; done"
    argv = suite(tmp_path, short="true", slow=slow)
    elapsed = r"[01]/2 done[^\n]*  \[\d+ s\][^\n]*\n[^\n]*slow\S* +[2-9] s"
    seen_until(elapsed, go, environ, "run", *argv)


def test_the_table_names_what_is_prepared(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    assert milabench("new", "mine", "--into", str(tmp_path)).code == 0
    script, go = tmp_path / "mine" / "prepare.py", tmp_path / "go"
    wait = f"import os, time\nwhile not os.path.exists({str(go)!r}):\n    time.sleep(0.05)\n"
    script.write_text(wait + script.read_text())
    argv = ("--use-current-env", "--config", str(tmp_path / "mine" / "suite.yaml"))
    seen_until(r"0/1 done  \[\d+ s\][^\n]*\n[^\n]*mine +[2-9] s", go, environ, "prepare", *argv)


COLOUR = re.compile(r"\x1b\[[\d;]*m")
FOREGROUND = re.compile(r"\x1b\[(?:\d+;)*3\d(?:;\d+)*m")
OFF = [({"NO_COLOR": "1"}, ()), ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, ()), ({"FORCE_COLOR": "1"}, ("--no-color",))]


@pytest.fixture
def failing(tmp_path: Path) -> tuple[str, ...]:
    return ("run", *suite(tmp_path, red="printf '\\033[31mred\\033[0m\\n'; exit 3"))


@pytest.mark.parametrize("display", ["live", "plain"])
def test_a_terminal_shows_what_failed_in_colour_unless_asked_not_to(
    terminal: Terminal, failing: tuple[str, ...], display: str
) -> None:
    run = (*failing, "--display", display)
    assert FOREGROUND.search(terminal(*run))
    for variables, options in OFF:
        shown = terminal(*run, *options, **variables)
        assert "failed" in shown
        assert FOREGROUND.search(shown) is None, (variables, options)
    before = terminal("--no-color", *run)
    assert FOREGROUND.search(before) is None


def test_a_dumb_terminal_and_a_pipe_get_no_colours_unless_they_are_forced(
    terminal: Terminal, milabench: Callable[..., Said], failing: tuple[str, ...]
) -> None:
    assert "\x1b" not in terminal(*failing, TERM="dumb")
    assert "\x1b" not in milabench(*failing, NO_COLOR="", FORCE_COLOR="").err
    assert FOREGROUND.search(milabench(*failing, NO_COLOR="", FORCE_COLOR="1").err)
    assert "\x1b" not in milabench(*failing, NO_COLOR="1", FORCE_COLOR="1").err


def test_the_colours_of_a_step_are_shown_on_a_terminal_and_kept_in_a_file(
    terminal: Terminal, milabench: Callable[..., Said], failing: tuple[str, ...]
) -> None:
    assert milabench(*failing).code == 1
    assert terminal("logs", "red") == "\x1b[31mred\x1b[0m\n"
    for variables, options in OFF:
        assert terminal("logs", "red", *options, **variables) == "red\n"
    assert terminal("logs", "red", "--raw", NO_COLOR="1") == "\x1b[31mred\x1b[0m\n"
    assert milabench("logs", "red", NO_COLOR="1").out == "\x1b[31mred\x1b[0m\n"


@pytest.mark.parametrize(
    "argv",
    [("--help",), ("run", "--help-all"), ("runs",), ("list", "--config", "config/quickstart.yaml"), ("nope",)],
    ids=" ".join,
)
def test_help_tables_and_errors_have_no_colours(terminal: Terminal, argv: tuple[str, ...]) -> None:
    assert "\x1b" not in terminal(*argv, FORCE_COLOR="1")


def test_a_traceback_has_colours_only_where_they_are_wanted(terminal: Terminal, tmp_path: Path) -> None:
    broken = ("--traceback", "list", "--config", str(tmp_path / "none.yaml"))
    shown = terminal(*broken)
    assert "Traceback" in shown
    for variables, options in OFF:
        assert "\x1b" not in terminal(*options, *broken, **variables)


def test_reports_and_comparisons_fit_the_terminal(
    milabench: Callable[..., Said], terminal: Terminal, tmp_path: Path
) -> None:
    here = suite(tmp_path, **{f"benchmark-{number}": "echo fine" for number in range(3)})
    for name in ("one", "two"):
        assert milabench("run", *here, "--run-name", name).code == 0
    for argv in (("report", "--full"), ("compare", "one", "two")):
        assert "--wide shows everything" in terminal(*argv, columns=60)
        assert "--wide shows" not in terminal(*argv, "--wide", columns=60)
        assert "--wide shows" not in milabench(*argv).out
