"""`milabench dev`: the benchmark's environment, its folder, its exit code, and the command that `run` would use."""

from __future__ import annotations

import os
import pty
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands import ROOT, Said

from .conftest import HERE


def test_a_command_runs_in_the_current_folder_with_the_benchmarks_variables(
    milabench: Callable[..., Said], tmp_path: Path
) -> None:
    line = "pwd; echo $MILABENCH_NAME; head -c 1 $MILABENCH_BENCH_CONFIG"
    said = milabench("dev", *HERE, "good", "--", "sh", "-c", line, cwd=tmp_path)
    assert said.code == 0
    assert said.out.split() == [str(tmp_path), "good", "{"]


def test_with_run_the_benchmarks_own_command_is_started_in_a_folder_of_its_own(milabench: Callable[..., Said]) -> None:
    said = milabench("dev", *HERE, "good", "--run")
    assert said.code == 0, said.err
    assert "train" in said.err
    refused = milabench("dev", *HERE, "good", "--run", "--", "true")
    assert (refused.code, refused.err) == (2, "error: --run runs the benchmark's own command. Leave out the other\n")


@pytest.mark.parametrize("words", [("--select", "good"), ("--select=good",)])
def test_the_benchmark_may_be_selected_as_by_other_verbs(
    milabench: Callable[..., Said], words: tuple[str, ...]
) -> None:
    said = milabench("dev", *HERE, *words, "--", "echo", "--select", "kept")
    assert (said.code, said.out) == (0, "--select kept\n")
    said = milabench("dev", *HERE, "--select")
    assert (said.code, said.err) == (2, "error: --select needs a value\n")


def test_it_prints_the_command_that_run_would_use(milabench: Callable[..., Said]) -> None:
    said = milabench("dev", *HERE, "good", "--", "true")
    assert shlex.join([str(ROOT / "tests" / "suite" / "odd" / "main.py"), "good"]) in said.err


def test_an_audit_runs_the_benchmarks_own_command(milabench: Callable[..., Said], tmp_path: Path) -> None:
    folder = tmp_path / "looping"
    folder.mkdir()
    (folder / "benchfile.py").write_text(
        'from milabench import Benchmark\nbenchmark = Benchmark(script="main.py", prepare=None)\n'
    )
    (folder / "main.py").write_text(
        "import time\ndef batches():\n    while True: yield time.sleep(0.002)\nfor _ in batches(): pass\n"
    )
    (folder / "voirfile.py").write_text(
        "from benchmate import probes\ndef instrument_program(ov):\n"
        '    probes.iterable(ov, "__main__.batches", units="items/s", batch_size=1)\n'
    )
    suite = tmp_path / "suite.yaml"
    suite.write_text("profile: quick\nlooping: {definition: looping, weight: 1.0, plan: {method: njobs, n: 1}}\n")
    said = milabench("dev", "--use-current-env", "--config", str(suite), "looping", "--audit")
    assert said.code == 0
    assert "audit of train" in said.err
    assert "loaders: 0 steps, 0 items; optimizers: 0 steps, items unknown: nothing to compare with" in said.err


def test_an_audit_has_a_voirfile_and_no_other_command(milabench: Callable[..., Said]) -> None:
    said = milabench("dev", *HERE, "good", "--audit", "--", "true")
    assert (said.code, said.err) == (2, "error: --audit runs the benchmark's own command. Leave out the other\n")
    said = milabench("dev", *HERE, "good", "--audit")
    assert said.code == 2
    assert "good has no voirfile" in said.err


def test_its_exit_code_is_the_commands(milabench: Callable[..., Said]) -> None:
    assert milabench("dev", *HERE, "good", "--", "sh", "-c", "exit 9").code == 9


def test_a_command_ended_by_a_signal_gives_what_a_shell_gives(milabench: Callable[..., Said]) -> None:
    assert milabench("dev", *HERE, "good", "--", "sh", "-c", "kill -9 $$").code == 137


def test_without_a_command_it_is_the_users_shell(milabench: Callable[..., Said], tmp_path: Path) -> None:
    shell = tmp_path / "shell"
    shell.write_text("#!/bin/sh\necho this is mine\n")
    shell.chmod(0o755)
    said = milabench("dev", *HERE, "good", SHELL=str(shell))
    assert said.out == "this is mine\n"


def test_the_program_itself_can_be_run_by_hand(milabench: Callable[..., Said], root: Path) -> None:
    said = milabench("dev", *HERE, "good", "--", "python", str(root / "tests/suite/odd/main.py"), "good")
    assert said.code == 0
    assert "items/s" in said.err


def test_a_command_that_is_not_there(milabench: Callable[..., Said]) -> None:
    said = milabench("dev", *HERE, "good", "--", "no-such-command")
    assert said.code == 2
    assert "no-such-command: no such executable file" in said.err


def test_several_benchmarks_are_too_many(milabench: Callable[..., Said]) -> None:
    said = milabench("dev", *HERE, "fine", "--", "true")
    assert said.code == 2
    assert "good" in said.err


def test_the_venv_comes_first_on_the_path(milabench: Callable[..., Said]) -> None:
    said = milabench("dev", *HERE, "good", "--", "sh", "-c", "command -v python")
    assert Path(said.out.strip()).parent == Path(sys.prefix, "bin")


# Makes what is its standard input the terminal of a session of its own, as a login does.
IN_A_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])"
)
CEILING_S = 60.0
ASLEEP = (
    "sh -c 'echo it sle''eps; exec sleep 300'\n"  # the words are in two pieces, because a terminal shows what is typed
)


class Terminal:
    """A terminal in which `milabench dev` runs, as a person has it: what is typed, and what is shown."""

    def __init__(self, environ: dict[str, str], *argv: str) -> None:
        self._master, slave = pty.openpty()
        self.shown = ""
        self.process = subprocess.Popen(
            [sys.executable, "-c", IN_A_TERMINAL, sys.executable, "-m", "milabench", "dev", *HERE, "good", *argv],
            env={**environ, "SHELL": "/bin/sh", "PS1": "ready> ", "ENV": "", "TERM": "dumb"},
            cwd=ROOT,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def shows(self, wanted: str) -> bool:
        """Wait until this was shown; whatever was shown before it is not looked at again."""
        deadline = time.monotonic() + CEILING_S
        while wanted not in self.shown:
            if not select.select([self._master], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise AssertionError(f"'{wanted}' is not in: {self.shown}")
            try:
                self.shown += os.read(self._master, 65536).decode(errors="replace")
            except OSError:  # the terminal has no process any more
                return wanted in self.shown
        self.shown = self.shown.partition(wanted)[2]
        return True

    def ends(self) -> int:
        try:
            return self.process.wait(CEILING_S)
        finally:
            self.process.kill()
            os.close(self._master)


@pytest.mark.parametrize("key", ["\x03", "\x1c"], ids=["ctrl-c", "ctrl-backslash"])
def test_a_key_that_interrupts_ends_what_runs_in_the_shell_and_not_the_session(
    environ: dict[str, str], key: str
) -> None:
    terminal = Terminal(environ)
    assert terminal.shows("ready> ")
    terminal.type(ASLEEP)
    assert terminal.shows("it sleeps")
    terminal.type(key)
    assert terminal.shows("ready> ")
    terminal.type("echo still he''re; exit 7\n")
    assert terminal.shows("still here")
    assert terminal.ends() == 7


def test_ctrl_c_ends_a_single_command_with_the_code_of_a_shell(environ: dict[str, str]) -> None:
    terminal = Terminal(environ, "--", "sh", "-c", "echo it sle''eps; exec sleep 300")
    assert terminal.shows("it sleeps\r\n")
    terminal.type("\x03")
    assert terminal.ends() == 128 + signal.SIGINT


def test_what_is_sent_to_the_command_alone_reaches_the_program(environ: dict[str, str]) -> None:
    terminal = Terminal(environ, "--", "sh", "-c", "trap 'exit 5' TERM; echo it wai''ts; while :; do sleep 0.05; done")
    assert terminal.shows("it waits\r\n")
    terminal.process.send_signal(signal.SIGTERM)
    assert terminal.ends() == 5
