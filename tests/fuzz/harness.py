"""Feeds inputs to worker processes, watches their time, and keeps what they got wrong.

A worker that hangs or dies is replaced, and its input is a defect. Time in which a worker waits for a processor that others use
is not counted, so that a busy machine makes no defects.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import queue
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from milabench.execute.agent.procfs import descendants, processes

ROOT = Path(__file__).resolve().parents[2]
WIRE = "tests.fuzz.wire"
LIMIT_S = 5.0  # of processor time
ASLEEP = 2  # so many times the limit, where it sleeps or waits for the disk
WALL_S = 120.0  # whatever else the machine does
INPUTS_OF_A_WORKER = 500
ACCEPTED = (0, 7, 8)  # exit codes of commands that had an answer
ONE_IN = 250  # inputs whose commands run in processes of their own too


@dataclass(frozen=True)
class Special:
    """What stands where a file is expected: a `link` to `target`, a `pipe`, or a `folder`."""

    kind: str
    target: str = ""


@dataclass(frozen=True)
class Input:
    """Files below `in/`, and the commands that read them there; `name` is its file in the corpus."""

    kind: str
    files: Mapping[str, bytes | Special]
    commands: tuple[tuple[str, ...], ...]
    name: str = field(default="", compare=False)

    def write(self, folder: Path) -> None:
        """Write the files, in place of what is there."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name, content in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            match content:
                case Special(kind="link"):
                    path.symlink_to(content.target)
                case Special(kind="pipe"):
                    os.mkfifo(path)
                case Special():
                    path.mkdir()
                case bytes():
                    path.write_bytes(content)

    @property
    def size(self) -> int:
        return sum(len(content) for content in self.files.values() if isinstance(content, bytes))

    def to_json(self) -> str:
        """Return the input as a file of the corpus."""
        files = {name: _to_json(content) for name, content in self.files.items()}
        return json.dumps({"kind": self.kind, "commands": self.commands, "files": files}, indent=1) + "\n"


def read_input(path: Path) -> Input:
    """Read a file of the corpus."""
    value = json.loads(path.read_text())
    files = {name: _from_json(content) for name, content in value["files"].items()}
    return Input(kind=value["kind"], files=files, commands=tuple(map(tuple, value["commands"])), name=path.name)


def _to_json(content: bytes | Special) -> Any:
    if isinstance(content, Special):
        return {content.kind: content.target}
    with contextlib.suppress(UnicodeDecodeError):
        if len(content) < 4000:
            return content.decode()
    return {"zlib": base64.b85encode(zlib.compress(content, 9)).decode()}


def _from_json(value: Any) -> bytes | Special:
    if isinstance(value, str):
        return value.encode()
    ((kind, text),) = value.items()
    return zlib.decompress(base64.b85decode(text)) if kind == "zlib" else Special(kind, text)


@dataclass(frozen=True)
class Defect:
    """An input that a command got wrong, and how."""

    input: Input
    command: tuple[str, ...]
    what: str

    @property
    def signature(self) -> str:
        """What defects of one cause have in common: the first line, without what only this input has."""
        line = re.sub(r"^(control: )'\S+'", r"\1character", self.what.splitlines()[0])
        line = re.sub(r"0x[0-9a-f]+|\d+", "N", line)
        match = re.match(r"traceback: \w+ in [^:]+:[^:]+", line)
        return f"{self.input.kind}: {match[0] if match else line[:100]}"

    def smallest(self) -> Input:
        """The input with this command alone."""
        return Input(self.input.kind, self.input.files, (self.command,))


@dataclass(frozen=True)
class Answer:
    """What is wrong with a command's end, its exit code, its peak of memory, and the seconds that it took."""

    defect: str
    code: int = 1
    peak_MiB: int = 0
    seconds: float = 0.0


class Worker:
    """A process that runs commands in a folder of its own (`here`); see worker.py."""

    def __init__(self, folder: Path, fixed: Path, limit_s: float = LIMIT_S) -> None:
        self.folder = folder
        self.limit_s = limit_s
        self.here = folder / "here"
        self.here.mkdir(parents=True, exist_ok=True)
        if not (self.here / "fixed").exists():
            (self.here / "fixed").symlink_to(fixed)
        self.inputs = 0
        self._scheduled: dict[int, tuple[float, float]] = {}  # of each process, since its start
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.worker"],
            cwd=self.here,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        self.process.stdout.readline()  # what is imported before the first command is not its time

    def run(self, command: tuple[str, ...]) -> Answer:
        """Return how the command ended; a worker that hung is ended."""
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps({"argv": command}).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return Answer(self._died())
        seconds = self._seconds_to_answer(self.limit_s)
        if seconds is None:
            return Answer(self._hung(command))
        line = self.process.stdout.readline()
        if not line:
            return Answer(self._died())
        return Answer(**json.loads(line), seconds=seconds)

    def _seconds_to_answer(self, limit_s: float) -> float | None:
        """Wait for an answer as long as one may take; return the seconds, those without a processor left out."""
        began, (ran_before, waited_before) = time.monotonic(), self._ran_and_waited_s()
        while True:
            has_answer = bool(select.select([self.process.stdout], [], [], 0.25)[0])
            elapsed = time.monotonic() - began
            ran, waited = self._ran_and_waited_s()
            seconds = elapsed - (waited - waited_before)
            if has_answer:
                return seconds
            if elapsed > WALL_S or seconds > ASLEEP * limit_s or ran - ran_before > limit_s:
                return None

    def _ran_and_waited_s(self) -> tuple[float, float]:
        """Seconds that the worker had a processor, and those that it or a process below it could have run and had none."""
        own = self.process.pid
        for pid in {own} | descendants(processes(), {own}):
            with contextlib.suppress(OSError, ValueError):
                ran, waited, _ = map(int, Path(f"/proc/{pid}/schedstat").read_text().split())
                self._scheduled[pid] = ran / 1e9, waited / 1e9
        return self._scheduled.get(own, (0.0, 0.0))[0], sum(waited for _, waited in self._scheduled.values())

    def _hung(self, command: tuple[str, ...]) -> str:
        self.process.send_signal(signal.SIGABRT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        self.end()
        text = (self.folder / "err").read_bytes().decode("utf-8", "replace")
        stack = text[text.rfind("Current thread") :] if "Current thread" in text else text[-3000:]
        ours = re.search(r'File "[^"]*/(?:milabench|benchmate)/([^"]+)", line \d+ in (\w+)', stack)
        return f"hang: {command[0]} in {f'{ours[1]}:{ours[2]}' if ours else '?'}\n{stack[:4000]}"

    def _died(self) -> str:
        code = self.process.wait()
        self.end()
        return f"died: {code}\n{(self.folder / 'err').read_bytes()[-3000:].decode('utf-8', 'replace')}"

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def end(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()

    def strays(self) -> list[str]:
        """What a command wrote outside the places that it may write to."""
        found = {path.name for path in self.folder.iterdir()} - {"here", "out", "err"}
        return sorted(found | {path.name for path in self.here.iterdir()} - {"in", "fixed", "base", "output"})


def environment() -> dict[str, str]:
    """The variables of a command: nothing of the user's."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "HOME", "TMPDIR") if name in os.environ}
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "orchestrator", ROOT / "benchmate" / "src"))),
        "PYTHONHASHSEED": "0",
        "PYTHONUTF8": "1",
        "MILABENCH_BASE": "base",
        # The arenas of malloc for threads count as memory, of which they use little.
        "MALLOC_ARENA_MAX": "1",
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "120",
    }


@dataclass
class Pool:
    """Workers with a thread each, which take inputs as they come. `defects` are those found, in order."""

    fixed: Path
    count: int = 2
    one_in: int = ONE_IN
    defects: list[Defect] = field(default_factory=list)
    inputs: Counter[str] = field(default_factory=Counter)
    accepted: Counter[str] = field(default_factory=Counter)
    commands: Counter[str] = field(default_factory=Counter)
    processes: int = 0
    slowest: tuple[float, str] = (0.0, "")
    largest: tuple[int, str] = (0, "")

    @contextlib.contextmanager
    def running(self) -> Iterator[Pool]:
        """Start the workers; at the end wait until all inputs were taken, and end them."""
        self._queue: queue.Queue[Input | None] = queue.Queue(maxsize=4 * self.count)
        self._lock = threading.Lock()
        with tempfile.TemporaryDirectory(prefix="milabench-fuzz-") as scratch:
            folders = [Path(scratch, str(number)) for number in range(self.count)]
            failures: list[BaseException] = []

            def serve(folder: Path) -> None:
                try:
                    self._serve(folder)
                except BaseException as error:
                    failures.append(error)
                    while self._queue.get() is not None:  # nobody waits for room in the queue of a thread that is gone
                        pass

            threads = [threading.Thread(target=serve, args=(folder,), daemon=True) for folder in folders]
            for thread in threads:
                thread.start()
            try:
                yield self
            finally:
                for _ in threads:
                    self._queue.put(None)
                for thread in threads:
                    thread.join()
            if failures:
                raise failures[0]

    def take(self, given: Input) -> None:
        """Give an input to the next worker that is free."""
        self._queue.put(given)

    def _serve(self, folder: Path) -> None:
        worker: Worker | None = None
        while (given := self._queue.get()) is not None:
            if worker is None or not worker.is_alive or worker.inputs >= INPUTS_OF_A_WORKER:
                if worker is not None:
                    worker.end()
                worker = Worker(folder, self.fixed)
            self._try(worker, given)
        if worker is not None:
            worker.end()
        shutil.rmtree(folder, ignore_errors=True)

    def _try(self, worker: Worker, given: Input) -> None:
        worker.inputs += 1
        with self._lock:
            self.inputs[given.kind] += 1
            is_sampled = self.one_in and sum(self.inputs.values()) % self.one_in == 0
        given.write(worker.here / "in")
        for name in ("base", "output"):
            shutil.rmtree(worker.here / name, ignore_errors=True)
        is_accepted = False
        for command in given.commands:
            answer = worker.run(command)
            defect = answer.defect
            if not defect and is_sampled:
                defect = in_a_process(worker.here, command)
            if strays := worker.strays():
                defect = defect or f"outside: wrote {strays}"
            with self._lock:
                self.commands[command[0]] += 1
                self.accepted[given.kind] += answer.code in ACCEPTED and not is_accepted
                is_accepted = is_accepted or answer.code in ACCEPTED
                self.processes += bool(is_sampled)
                self.slowest = max(self.slowest, (answer.seconds, " ".join(command)))
                self.largest = max(self.largest, (answer.peak_MiB, " ".join(command)))
                if defect:
                    self.defects.append(Defect(given, command, defect))
            if strays or not worker.is_alive:
                worker.end()
                shutil.rmtree(worker.folder)
                return


def in_a_process(here: Path, command: tuple[str, ...]) -> str:
    """Run a command in a process of its own, as a person does; return what is wrong with its end."""
    module, words = (command[0], command[1:]) if "." in command[0] else ("milabench", command)
    try:
        done = subprocess.run(
            [sys.executable, "-m", module, *words],
            cwd=here,
            env=environment(),
            capture_output=True,
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=WALL_S,
        )
    except subprocess.TimeoutExpired:
        return f"hang: {command[0]} in a process"
    except ValueError:  # an argument that no process can have
        return ""
    if b"Traceback" in done.stderr:
        return f"traceback: in a process\n{done.stderr.decode('utf-8', 'replace')[-4000:]}"
    if not 0 <= done.returncode <= 8:
        return f"exit code: {done.returncode} of a process\n{done.stderr.decode('utf-8', 'replace')[-2000:]}"
    return ""
