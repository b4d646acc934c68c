"""Runs that leave their terminal: `--detach`, and `milabench resume`, which watches them."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from tests.commands import ROOT, Said
from tests.processes import CEILING_S, until

from .test_about_runs import going
from .test_resume import carrying
from .written import ends, journal, runs, suite

MILABENCH = (sys.executable, "-m", "milabench")
# Makes what is its standard input the terminal of a session of its own, as a login does.
IN_A_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])"
)


def lines(folder: Path, then: str = "true") -> tuple[str, ...]:
    """A suite of one step that waits for a file `go`, and then ends so."""
    return suite(folder, long=waiting(folder, then))


def waiting(folder: Path, then: str = "true") -> str:
    return f"while ! test -e {folder}/go; do sleep 0.05; done; {then}"


@contextlib.contextmanager
def detached(milabench: Callable[..., Said], environ: dict[str, str], *argv: str, **more: str) -> Iterator[int]:
    """The process that carries out a run of the given options; it has gone when this is over."""
    said = milabench(*argv, **more)
    assert (said.code, "continues without this terminal" in said.err) == (0, True), said.err
    (run,) = runs(environ["MILABENCH_BASE"])
    pid = int(json.loads((run / "orchestrator.lock").read_text())["pid"])
    try:
        yield pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        until(lambda: not carrying(environ), "the end of what it started")


@contextlib.contextmanager
def watching(environ: dict[str, str]) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    """`milabench resume` of a run that goes on, which has shown that its step runs; and what it says after that."""
    process = subprocess.Popen(
        [*MILABENCH, "resume"], env=environ, cwd=ROOT, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        assert "is executed by" in process.stderr.readline()
        while "long.0: started" not in (line := process.stderr.readline()):
            assert line
        yield process, process.stderr
    finally:
        process.kill()
        process.communicate()


def test_a_run_outlives_the_terminal_in_which_it_was_begun(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    ours, theirs = os.openpty()
    shell = f"{shlex.join([*MILABENCH, 'run', *lines(tmp_path), '--detach'])}; echo code=$?; sleep 3600"
    terminal = subprocess.Popen(
        [sys.executable, "-c", IN_A_TERMINAL, "sh", "-c", shell],
        env=environ,
        cwd=ROOT,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    said = b""
    while b"code=" not in said:
        said += os.read(ours, 4096)
    assert b"code=0" in said
    os.close(ours)  # the terminal goes away
    assert terminal.wait(CEILING_S) == -signal.SIGHUP
    (run,) = runs(environ["MILABENCH_BASE"])
    assert not ends(run)
    told = json.loads(milabench("status", "--json").out)
    assert (told["verdict"], told["orchestrator"]["detached"]) == ("running", True)
    (tmp_path / "go").touch()
    until(lambda: journal(run)[-1].get("run") == "ended", "the end of the run")
    until(lambda: "1 of 1 step passed. Records: " in (run / "orchestrator.log").read_text(), "its last words")
    assert [each["detached"] for each in journal(run) if each.get("run") == "started"] == [True]


def test_resume_shows_a_detached_run_and_ends_as_it_does_and_ctrl_c_leaves_only_the_view(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    with detached(milabench, environ, "run", *lines(tmp_path, "exit 3"), MILABENCH_DETACH="1"):
        # As it is told on another machine that sees these files: nobody can ask after the process there, only the lock tells.
        (run,) = runs(environ["MILABENCH_BASE"])
        lock = run / "orchestrator.lock"
        lock.write_text(json.dumps({**json.loads(lock.read_text()), "host": "elsewhere"}))
        with watching(environ) as (process, words):
            process.send_signal(signal.SIGINT)
            assert process.wait(CEILING_S) == 130
            assert (
                "is still running. `milabench resume` shows it again, `milabench cancel` on elsewhere ends"
                in words.read()
            )
        assert "running, detached" in milabench("runs").out
        with watching(environ) as (process, words):
            (tmp_path / "go").touch()
            assert process.wait(CEILING_S) == 1
            said = words.read()
    assert "long.0: failed: exit: exited with code 3" in said
    assert "run: 0 of 1 step passed, 1 failed. Records: " in said


def test_a_detached_orchestrator_that_is_killed_is_swept_after_and_gone_on_with(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    here = lines(tmp_path)
    with detached(milabench, environ, "run", *here, "--detach") as pid, watching(environ) as (process, words):
        os.kill(pid, signal.SIGKILL)
        (tmp_path / "go").touch()
        assert process.wait(CEILING_S) == 0
        said = words.read()
    assert "died before the run's end" in said
    assert "0 of 1 steps have passed, 1 to run" in said
    (run,) = runs(environ["MILABENCH_BASE"])
    assert ends(run)[-1][::2] == ("long.0", "passed")


def test_what_is_wrong_before_a_run_begins_is_told_in_the_terminal_with_its_exit_code(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    with going(environ, tmp_path, line=waiting(tmp_path)):
        said = milabench("run", *lines(tmp_path), "--detach", MILABENCH_WAIT="0")
        assert (said.code, "is held by run" in said.err) == (5, True)
        assert len(runs(environ["MILABENCH_BASE"])) == 1


def test_what_was_cut_off_is_gone_on_with_without_a_terminal(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    with going(environ, tmp_path, line=waiting(tmp_path)):
        pass
    (tmp_path / "go").touch()
    said = milabench("resume", "--detach")
    assert (said.code, "0 of 1 steps have passed, 1 to run" in said.err) == (0, True)
    assert "continues without this terminal" in said.err
    (run,) = runs(environ["MILABENCH_BASE"])
    until(lambda: ends(run)[-1][::2] == ("long.0", "passed"), "the step")
    until(lambda: not carrying(environ), "the end of what it started")
