"""A whole control plane with its agent and its run directory, interrupted, killed, and out of space."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processes import CEILING_S

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "tests" / "programs"


class Control:
    """A control plane in a process of its own."""

    def __init__(self, base: Path, steps: list[dict[str, Any]], **settings: Any) -> None:
        self.run_id = f"engine-{os.getpid()}-{time.monotonic_ns()}"
        what = json.dumps([str(base), self.run_id, steps, {"grace_s": 0.5, **settings}])
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAMS / "control.py"), what],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        self.told: list[list[str]] = []

    def until(self, *words: str) -> list[str]:
        """The first thing told that begins with these words."""
        for seen in self.told:
            if seen[: len(words)] == list(words):
                return seen
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.told.append(line.rstrip("\n").split(" ", 4))
            if self.told[-1][: len(words)] == list(words):
                return self.told[-1]
        raise AssertionError(f"never told {words}: {self.told}")

    def outcomes(self) -> dict[str, tuple[str, str]]:
        """Outcome and why of each step, once all is over."""
        self.until("done")
        return {seen[1]: (seen[2], seen[3]) for seen in self.told if seen[0] == "ended"}

    @property
    def path(self) -> Path:
        """The run directory."""
        return Path(" ".join(self.until("run")[1:]))

    def journal(self) -> list[dict[str, Any]]:
        """What it holds."""
        return [json.loads(line) for line in (self.path / "journal.jsonl").read_text().splitlines()]

    def events(self, stem: str) -> list[dict[str, Any]]:
        """The records of a step on disk."""
        return [json.loads(line) for line in (self.path / f"{stem}.data").read_text().splitlines()]


@pytest.fixture
def control(tmp_path: Path) -> Iterator[Callable[..., Control]]:
    """Makes control planes and puts them away."""
    made: list[Control] = []

    def make(*steps: dict[str, Any], base: Path = tmp_path, **settings: Any) -> Control:
        settings.setdefault("lock_folder", str(tmp_path / "locks"))
        made.append(Control(base, list(steps), **settings))
        return made[-1]

    yield make
    for each in made:
        each.process.kill()
        each.process.communicate(timeout=CEILING_S)


def step(name: str, *argv: object, **more: Any) -> dict[str, Any]:
    return {"id": name, "argv": [str(word) for word in argv], **more}


def tree(name: str, **more: Any) -> dict[str, Any]:
    return step(name, sys.executable, "-S", PROGRAMS / "tree.py", "wait", **more)


def pids_of(control: Control, name: str) -> dict[str, int]:
    return json.loads(" ".join(control.until("line", name)[2:]))


def test_steps_are_carried_out_and_recorded(control: Callable[..., Control]) -> None:
    run = control(step("a", "sh", "-c", "echo out; echo err >&2"), step("b", "sh", "-c", "exit 3"), step("c", "true"))
    assert run.outcomes() == {"a": ("passed", "-"), "b": ("failed", "exit"), "c": ("passed", "-")}
    assert (run.path / "a.stdout").read_text() == "out\n"
    assert (run.path / "a.stderr").read_text() == "err\n"
    assert [event["event"] for event in run.events("a")] == ["start", "line", "line", "end"]
    assert [entry.get("state") for entry in run.journal()] == ["started", "ended"] * 3 + [None]
    overhead = json.loads(" ".join(run.until("done")[2:]))
    assert overhead["wall_s"] > 0


def sweep(flag: Path, rest: str) -> list[dict[str, Any]]:
    """A server that ends when its client has made a file, and what the client does from then on."""
    ready = {"pattern": "up", "timeout_s": 30}
    both = {"group": "sweep", "job": "server"}
    server = step("server", "sh", "-c", f"echo up; until [ -e {flag} ]; do sleep 0.05; done", **both)
    client = step("client", "sh", "-c", f"touch {flag}; {rest}", **both)
    server["config"] = {"role": "server", "serve": {"rate": [1]}, "server": {"ready": ready}}
    client["config"] = {"role": "client", "serve": {"rate": [1]}, "server": {"step": "server", "ready": ready}}
    return [server, client]


def test_when_its_server_ends_the_client_of_a_sweep_has_time_to_say_what_it_could_not_measure(
    control: Callable[..., Control], tmp_path: Path
) -> None:
    run = control(*sweep(tmp_path / "flag", "sleep 0.7; echo three points are skipped; exit 1"), grace_s=60)
    assert run.outcomes() == {"server": ("failed", "exit"), "client": ("failed", "exit")}
    assert (run.path / "client.stdout").read_text() == "three points are skipped\n"


def test_a_client_that_does_not_notice_the_end_of_its_server_is_ended_after_the_grace_period(
    control: Callable[..., Control], tmp_path: Path
) -> None:
    run = control(*sweep(tmp_path / "flag", "trap 'echo told; exit 1' TERM; while :; do sleep 0.05; done"), grace_s=0.5)
    assert run.outcomes() == {"server": ("failed", "exit"), "client": ("cancelled", "-")}
    assert (run.path / "client.stdout").read_text() == "told\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_ends_the_running_steps_and_cancels_the_rest(
    control: Callable[..., Control], number: int, gone: Callable[[int], bool]
) -> None:
    run = control(tree("a"), step("b", "true"))
    pids = pids_of(run, "a")
    run.process.send_signal(number)
    assert run.outcomes() == {"a": ("cancelled", "-"), "b": ("cancelled", "-")}
    assert run.until("done")[1] == "interrupted"
    assert run.process.wait(CEILING_S) == 0
    assert [name for name, pid in pids.items() if not gone(pid)] == []
    assert run.events("a")[-1]["data"]["outcome"] == "cancelled"


def test_a_second_interrupt_does_not_wait_for_the_grace(
    control: Callable[..., Control], gone: Callable[[int], bool]
) -> None:
    run = control(tree("a"), grace_s=10_000)
    pids = pids_of(run, "a")
    run.process.send_signal(signal.SIGINT)
    run.until("notice")
    run.process.send_signal(signal.SIGINT)
    assert run.outcomes() == {"a": ("cancelled", "-")}
    assert [name for name, pid in pids.items() if not gone(pid)] == []


def test_nothing_outlives_a_killed_control_plane(
    control: Callable[..., Control], wait_until: Callable[..., Any], gone: Callable[[int], bool]
) -> None:
    run = control(tree("a", group="g"), tree("b", group="g"))
    pids = [*pids_of(run, "a").values(), *pids_of(run, "b").values()]
    _, agent, folder = run.until("agent")[:3]
    run.process.kill()
    wait_until(lambda: gone(int(agent)))
    assert [pid for pid in pids if not gone(pid)] == []
    assert not Path(folder).exists()
    assert run.events("a")[0]["event"] == "start"


def test_a_killed_agent_loses_its_steps_is_swept_after_and_replaced(
    control: Callable[..., Control], gone: Callable[[int], bool]
) -> None:
    run = control(tree("a", group="g"), tree("b", group="g"), step("c", "true"))
    pids = [*pids_of(run, "a").values(), *pids_of(run, "b").values()]
    _, agent, folder = run.until("agent")[:3]
    os.kill(int(agent), signal.SIGKILL)
    assert run.outcomes() == {"a": ("failed", "lost-node"), "b": ("failed", "lost-node"), "c": ("passed", "-")}
    assert [pid for pid in pids if not gone(pid)] == []
    assert not Path(folder).exists()
    last = run.events("a")[-1]
    assert last["event"] == "end"
    assert last["data"]["why"] == "lost-node"
    assert last["data"]["detail"].startswith("the agent was ended by SIGKILL; ")


def test_two_runs_never_use_one_device_at_once(control: Callable[..., Control], tmp_path: Path) -> None:
    (tmp_path / "fifo").unlink(missing_ok=True)
    os.mkfifo(tmp_path / "fifo")
    locks = {"locks": {"local": ["cuda-1"]}, "retry": {"wait": True}}
    first = control(step("a", "sh", "-c", f"echo up; cat {tmp_path}/fifo"), **locks)
    first.until("line", "a", "up")
    second = control(step("a", "true"), **locks)
    second.until("waiting", "cuda-1")
    (tmp_path / "fifo").write_text("go\n")
    assert first.outcomes() == {"a": ("passed", "-")}
    assert second.outcomes() == {"a": ("passed", "-")}


def test_a_full_disk_fails_the_steps_concerned_and_keeps_what_was_written(
    control: Callable[..., Control], tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("a small disk can only be made by root")
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if made.returncode != 0:
        pytest.skip(f"no tmpfs can be mounted here: {made.stderr.decode().strip()}")
    try:
        flood = "i=0; while :; do echo line $i; i=$((i+1)); done"
        run = control(step("a", "true"), step("b", "sh", "-c", flood), step("c", "sh", "-c", flood), base=disk)
        outcomes = run.outcomes()
        assert outcomes == {"a": ("passed", "-"), "b": ("failed", "no-space"), "c": ("failed", "no-space")}
        assert len([seen for seen in run.told if seen[:2] == ["notice", "cannot"]]) == 1
        assert run.events("a")[-1]["event"] == "end"
        assert all(event["event"] in ("start", "line") for event in run.events("b")[:-1])
        run.process.wait(CEILING_S)
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_run_directory_that_is_deleted_fails_the_steps_that_follow(
    control: Callable[..., Control], tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "fifo")
    run = control(step("a", "sh", "-c", f"echo up; cat {tmp_path}/fifo"), step("b", "true"))
    run.until("line", "a", "up")
    shutil.rmtree(run.path)
    (tmp_path / "fifo").write_text("go\n")
    assert run.outcomes()["b"] == ("failed", "environment")
    assert run.process.wait(CEILING_S) == 0
