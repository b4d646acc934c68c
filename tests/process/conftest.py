"""Real agents with real children, spoken to as the control plane does."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processes import CEILING_S, is_gone, until
from tests.single_records import single_records

ROOT = Path(__file__).resolve().parents[2]
AGENT = ROOT / "orchestrator" / "milabench" / "execute" / "agent" / "__main__.py"
PROGRAMS = ROOT / "tests" / "programs"


class Agent:
    """A running agent: requests go in, frames are gathered as they come."""

    def __init__(self, python: str, locks: Path, *, run_id: str = "", grace_s: float = 5.0) -> None:
        self.run_id = run_id or f"test-{os.getpid()}-{time.monotonic_ns()}"
        words = ["serve", "--run-id", self.run_id, "--grace", str(grace_s), "--locks", str(locks)]
        self.process = subprocess.Popen(
            [python, "-u", "-I", str(AGENT), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._buffer = bytearray()
        self.records: dict[str, bytearray] = {}
        self.ended: dict[str, dict[str, Any]] = {}
        self.replies: dict[int, dict[str, Any]] = {}
        self.frames: list[dict[str, Any]] = []
        self.evidence: dict[str, bytes] = {}
        self.hello: dict[str, Any] = {}
        self.at_end = False
        self._numbers = 0

    def send(self, verb: str, **fields: Any) -> int:
        """Sends a request; its number."""
        assert self.process.stdin is not None
        self._numbers += 1
        self.process.stdin.write(json.dumps({"id": self._numbers, "verb": verb, **fields}).encode() + b"\n")
        self.process.stdin.flush()
        return self._numbers

    def ask(self, verb: str, **fields: Any) -> dict[str, Any]:
        """The reply to a request."""
        number = self.send(verb, **fields)
        return self.read_until(lambda: self.replies.get(number))

    def start(self, *argv: object, step: str = "s", **fields: Any) -> dict[str, Any]:
        """The reply to the start of a command that sees the sink."""
        env = {"MILABENCH_SINK": "@sink", **fields.pop("env", {})}
        return self.ask("start", step=step, argv=[str(word) for word in argv], env=env, **fields)

    def program(self, name: str, *words: object, **fields: Any) -> dict[str, Any]:
        """The reply to the start of one of our small programs."""
        return self.start(sys.executable, "-S", PROGRAMS / name, *words, **fields)

    def end_of(self, step: str = "s") -> dict[str, Any]:
        """What the agent says of a step at its end."""
        return self.read_until(lambda: self.ended.get(step))

    def run(self, *argv: object, **fields: Any) -> dict[str, Any]:
        """Starts a command and waits for its end."""
        self.start(*argv, **fields)
        return self.end_of(fields.get("step", "s"))

    def run_program(self, name: str, *words: object, **fields: Any) -> dict[str, Any]:
        """Starts one of our small programs and waits for its end."""
        self.program(name, *words, **fields)
        return self.end_of(fields.get("step", "s"))

    def events(self, step: str = "s") -> list[dict[str, Any]]:
        """The records of a step so far, decoded, those of columns one for each observation."""
        return single_records(bytes(self.records.get(step, b"")))

    def data(self, event: str, step: str = "s") -> list[Any]:
        """The payloads of one kind of records."""
        return [record["data"] for record in self.events(step) if record["event"] == event]

    def text(self, pipe: str = "stdout", step: str = "s") -> str:
        """What a step has printed so far."""
        return "".join(r["data"] for r in self.events(step) if r["event"] == "line" and r["pipe"] == pipe)

    def printed(self, step: str = "s") -> str:
        """The first whole line of a step's output."""
        return self.read_until(lambda: self.text(step=step).partition("\n")[0])

    def read_until(self, condition: Callable[[], Any]) -> Any:
        """Reads frames until the condition is true; what it says then."""
        deadline = time.monotonic() + CEILING_S
        assert self.process.stdout is not None
        fd = self.process.stdout.fileno()
        while not (found := condition()):
            assert not self.at_end, f"the agent ended before: {self.frames[-3:]}"
            assert time.monotonic() < deadline, f"never came: {self.frames[-3:]}"
            if select.select([fd], [], [], 0.1)[0]:
                data = os.read(fd, 1 << 20)
                self.at_end = not data
                self._take(data)
        return found

    def _take(self, data: bytes) -> None:
        self._buffer += data
        start = 0
        while (end := self._buffer.find(b"\n", start)) >= 0:
            header = json.loads(self._buffer[start:end])
            if len(self._buffer) < end + 1 + header["n"]:
                break
            start = end + 1 + header["n"]
            payload = bytes(self._buffer[end + 1 : start])
            self.frames.append(header)
            kind = header["k"]
            if kind in ("rec", "line", "obs"):
                assert header["step"] not in self.ended, "a record after the end"
                self.records.setdefault(header["step"], bytearray()).extend(payload)
            elif kind == "ended":
                self.ended[header["step"]] = json.loads(payload)
            elif kind == "reply":
                reply = json.loads(payload)
                self.replies[reply["id"]] = reply
            elif kind == "evidence":
                self.evidence[header["step"]] = payload
            elif kind == "hello":
                self.hello = json.loads(payload)
        del self._buffer[:start]

    def let_go(self) -> None:
        """Closes its stdin, which is its lease, and waits until it has gone."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.wait()

    def wait(self) -> int:
        """Reads to the end; the exit code."""
        self.read_until(lambda: self.at_end)
        return self.process.wait(CEILING_S)

    def kill(self) -> None:
        """As `kill -9` does."""
        self.process.kill()
        self.process.wait(CEILING_S)


def old_python() -> str | None:
    """The interpreter of the oldest version on this machine that an agent must run on, older than the control plane's."""
    for minor in (8, 9, 10):
        for candidate in (shutil.which(f"python3.{minor}"), *_pyenv_interpreters(minor)):
            if candidate is None:
                continue
            # A pyenv shim exists for versions that are not chosen, and fails.
            probe = [candidate, "-c", f"import sys; sys.exit(sys.version_info[:2] != (3, {minor}))"]
            if subprocess.run(probe, stderr=subprocess.DEVNULL, check=False).returncode == 0:
                return candidate
    return None


def _pyenv_interpreters(minor: int) -> list[str]:
    pyenv = shutil.which("pyenv")
    if pyenv is None:
        return []
    asked = subprocess.run([pyenv, "root"], capture_output=True, text=True, check=False)
    root = Path(asked.stdout.strip() or "/nonexistent")
    return [str(path) for path in sorted(root.glob(f"versions/3.{minor}.*/bin/python"))]


@pytest.fixture(scope="session")
def python() -> str:
    """What the agent runs on: the oldest interpreter that it supports, if there is one; the engine's tests use ours."""
    return old_python() or sys.executable


@pytest.fixture
def agents(python: str, tmp_path: Path) -> Iterator[Callable[..., Agent]]:
    """Makes agents; whatever they leave behind fails the test."""
    made: list[Agent] = []

    def make(**fields: Any) -> Agent:
        made.append(Agent(python, tmp_path / "locks", **fields))
        return made[-1]

    yield make
    for agent in made:
        for stream in (agent.process.stdin, agent.process.stdout):
            assert stream is not None
            stream.close()
        try:
            agent.process.wait(CEILING_S)
        except subprocess.TimeoutExpired:
            os.killpg(agent.process.pid, signal.SIGKILL)
            raise
        if agent.process.returncode != -signal.SIGKILL and agent.hello:
            assert not Path(agent.hello["folder"]).exists()


@pytest.fixture
def agent(agents: Callable[..., Agent]) -> Agent:
    """One agent."""
    return agents()


@pytest.fixture
def wait_until() -> Callable[..., Any]:
    """Waits for a condition, with a generous ceiling."""
    return until


@pytest.fixture
def gone() -> Callable[[int], bool]:
    """Tells whether a process has ended."""
    return is_gone
