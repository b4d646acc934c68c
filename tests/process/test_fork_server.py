"""A command in a fork of a warm process is given what a start of its own gives it; a server that ended fails clearly."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import fork_server
from tests.commands import forked, milabench_in
from tests.processes import is_gone, started, until

START = "tests.programs.start"


def test_a_fork_is_given_what_a_start_gives(tmp_path: Path, root: Path) -> None:
    # Only what Python reads anew: a folder whose name is no UTF-8, an argument of several lines, a variable without a value.
    folder = tmp_path / os.fsdecode(b"\xff folder")
    folder.mkdir()
    argv = ("3", "two\nlines", os.fsdecode(b"\xfe"), "")
    environ = {**os.environ, "EMPTY": "", "ODD": os.fsdecode(b"\xfd"), "HOME": str(tmp_path)}
    environ.pop("PATH")
    # `python -m` finds the module in its folder: a link there leads to the tests.
    (folder / "tests").symlink_to(root / "tests")
    command = [sys.executable, "-m", START, *argv]
    done = subprocess.run(command, env=environ, cwd=folder, capture_output=True, text=True, check=False, input="")
    said = forked(argv, environ, folder, START)
    assert (said.code, said.err) == (done.returncode, done.stderr) == (3, "to err\n")
    assert json.loads(said.out) == json.loads(done.stdout)


def test_on_a_terminal_a_fork_writes_every_line_at_once(environ_of_tests: dict[str, str], root: Path) -> None:
    ours, theirs = pty.openpty()
    try:
        streams = (os.open(os.devnull, os.O_RDONLY), theirs, os.dup(theirs))
        command = fork_server.Command(["0"], environ_of_tests, root, streams, START)
        line = os.read(ours, 65536)
        while b"\n" not in line:
            line += os.read(ours, 65536)
        assert json.loads(line.splitlines()[0])["streams"][1][2] is True
        assert command.wait() == 0
        command.end()
    finally:
        os.close(ours)


def test_a_fork_has_the_memory_that_it_is_given(environ_of_tests: dict[str, str], root: Path) -> None:
    said = forked(["0"], environ_of_tests, root, START, memory=3 << 30)
    assert json.loads(said.out)["limits"]["RLIMIT_AS"] == [3 << 30] * 2


def test_an_end_by_a_signal_is_told(environ_of_tests: dict[str, str], root: Path) -> None:
    out, err = (os.open(os.devnull, os.O_WRONLY) for _ in range(2))
    reader, writer = os.pipe()  # an input that never comes
    command = fork_server.Command(["0"], environ_of_tests, root, (reader, out, err), START)
    os.kill(command.pid, signal.SIGTERM)
    try:
        assert command.wait() == -signal.SIGTERM
    finally:
        command.end()
        os.close(writer)


def test_the_end_of_the_server_fails_a_command_and_the_next_has_another(
    environ_of_tests: dict[str, str], root: Path
) -> None:
    milabench = milabench_in(environ_of_tests)
    assert milabench("--version").code == 0
    server = fork_server._servers[-1].process
    out, err = (os.open(os.devnull, os.O_WRONLY) for _ in range(2))
    reader, writer = os.pipe()
    command = fork_server.Command(["0"], environ_of_tests, root, (reader, out, err), START)
    try:
        server.kill()
        with pytest.raises(AssertionError, match="has ended"):
            command.wait()
    finally:
        command.end()
        os.close(writer)
    until(lambda: is_gone(command.pid))
    server.wait()
    assert milabench("--version").code == 0


def test_the_server_ends_with_the_process_that_has_it(environ_of_tests: dict[str, str], root: Path) -> None:
    program = """if True:
        import os, sys, time
        from tests import fork_server
        from tests.commands import milabench_in
        assert milabench_in(os.environ)("--version").code == 0
        print(fork_server._servers[-1].process.pid, fork_server._servers[-1].address, flush=True)
        sys.stdin.read()
    """
    with started(
        [sys.executable, "-c", program], cwd=root, env=environ_of_tests, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        server, address = process.stdout.readline().split()
        assert not is_gone(int(server))
        process.kill()
    until(lambda: is_gone(int(server)))
    assert not Path(os.fsdecode(address)).parent.exists()


def test_a_script_runs_milabench_in_a_fork(environ_of_tests: dict[str, str], tmp_path: Path) -> None:
    fork_server.program(tmp_path)
    script = "milabench --version; milabench --nope || echo $?; PYTHONUTF8=1 milabench --version"
    environ = {**environ_of_tests, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["sh", "-c", script], env=environ, capture_output=True, text=True, check=True)
    version = milabench_in(environ_of_tests)("--version").out
    assert done.stdout == f"{version}2\n{version}"
    assert done.stderr == "error: No such option '--nope'.\n"


@pytest.mark.parametrize("variable", ["PYTHONPATH", "LC_ALL", "TZ", "LD_PRELOAD"])
def test_what_only_a_start_reads_is_a_start(environ_of_tests: dict[str, str], variable: str) -> None:
    assert fork_server.can_serve({**environ_of_tests, "OTHER": "x"})
    assert not fork_server.can_serve({**environ_of_tests, variable: "x"})


@pytest.fixture
def environ_of_tests() -> dict[str, str]:
    return dict(os.environ)
