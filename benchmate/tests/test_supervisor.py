"""The supervisor of fresh processes: result, output, time limit and leftovers."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from benchmate import supervisor
from benchmate.supervisor import FORWARDED_BYTES, ProcessExit, SupervisedProcess, child_pids, spawn, supervise

SEND = "import sys; from benchmate.result_channel import ResultChannel; c = ResultChannel(int(sys.argv[1])); "


def run(code: str, *, timeout_s: float = 60.0, leaving_s: float = 60.0) -> tuple[ProcessExit, bytes]:
    shown: list[bytes] = []

    def start(result: int, output: int) -> SupervisedProcess:
        return spawn([sys.executable, "-c", SEND + code, str(result)], output=output, pass_fds=(result,))

    ended = supervise(start, shown.append, timeout_s=timeout_s, leaving_s=leaving_s)
    return ended, b"".join(shown)


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_result_arrives_whole_and_output_is_shown_and_kept() -> None:
    ended, shown = run("print('hello'); c.send({'n': [1] * 100_000})")
    assert (ended.code, ended.is_late, ended.tail, shown) == (0, False, "hello\n", b"hello\n")
    assert ended.result == b'{"n": [' + b", ".join([b"1"] * 100_000) + b"]}"


def test_a_line_that_is_cut_off_is_no_result() -> None:
    ended, _ = run("import os; os.write(int(sys.argv[1]), b'{'); sys.exit(3)")
    assert (ended.code, ended.result, ended.how) == (3, b"", "exit code 3")


def test_a_process_over_its_limit_is_terminated() -> None:
    ended, _ = run("import time; time.sleep(1000)", timeout_s=0.2)
    assert (ended.is_late, ended.code, ended.how) == (True, -signal.SIGTERM, "ended by SIGTERM")


def test_a_process_that_ignores_the_request_is_killed() -> None:
    ended, _ = run(
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); c.send({}); time.sleep(1000)",
        leaving_s=0.1,
    )
    assert (ended.is_late, ended.code, ended.result) == (True, -signal.SIGKILL, b"{}")


def test_output_beyond_the_limit_is_counted_but_not_shown() -> None:
    ended, shown = run(f"print('x' * {2 * FORWARDED_BYTES} + 'end')")
    assert len(shown) < FORWARDED_BYTES + 100
    assert shown.endswith(f"output beyond {FORWARDED_BYTES} bytes is not shown\n".encode())
    assert ended.tail.endswith("xend\n")


def test_what_holds_the_pipes_of_a_process_does_not_keep_its_supervisor_waiting() -> None:
    ended, shown = run("import subprocess; subprocess.Popen(['sleep', '1000'], start_new_session=False); print('gone')")
    assert (ended.code, shown) == (0, b"gone\n")


def test_a_program_that_does_not_exist_is_an_error_and_leaves_no_descriptors(tmp_path) -> None:
    before = open_descriptors()
    with pytest.raises(FileNotFoundError):
        supervise(lambda _result, output: spawn([str(tmp_path / "no-such-program")], output=output), print)
    assert open_descriptors() == before


@pytest.mark.parametrize("has_lists", [True, False])
def test_the_children_of_all_threads_are_known_until_they_are_waited_for(monkeypatch, has_lists: bool) -> None:
    if not has_lists:
        monkeypatch.setattr(
            supervisor, "Path", lambda *parts: Path("/nowhere" if "task" in parts[0] else parts[0], *parts[1:])
        )
    before = child_pids()
    started: list[subprocess.Popen[bytes]] = []
    come, go = threading.Event(), threading.Event()

    def start_and_stay() -> None:
        started.append(subprocess.Popen(["sleep", "60"]))
        come.set()
        go.wait()

    thread = threading.Thread(target=start_and_stay)
    thread.start()
    started.append(subprocess.Popen(["true"]))
    come.wait()
    pids = {process.pid for process in started}
    assert child_pids() - before == pids
    for process in started:
        process.kill()
        process.wait()
    assert child_pids() - before == set()
    go.set()
    thread.join()
