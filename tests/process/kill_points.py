"""Runs that are struck at a point which a seed chooses, gone on with, and compared with one that nobody disturbed."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.commands import forked
from tests.processes import CEILING_S
from tests.single_records import single_records

ROOT = Path(__file__).resolve().parents[2]
SUITE = ("--use-current-env", "--config", str(ROOT / "tests" / "suite" / "brief.yaml"), "--display", "none")
WATCHED = ("--use-current-env", "--config", str(ROOT / "tests" / "suite" / "watched.yaml"), "--display", "none")
TARGETS = ("orchestrator", "orchestrator", "agent", "step", "monitor")
AT_ONCE = 2  # in each of the tests that run at once
# A monitor that was struck is a message in the records, not a failure.
MEASURED = ("data", "message")
# Journal of the undisturbed run: one line for its orchestrator, three for each of the four steps, the last.
LINES = 14


@dataclass(frozen=True, kw_only=True)
class Strike:
    """Who gets which signal: once the journal has `lines` lines, or the target is there, and `later_s` after that."""

    seed: int
    target: str
    number: int
    lines: int | None
    later_s: float
    is_woken: bool

    def __str__(self) -> str:
        how = signal.Signals(self.number).name
        since = "it began" if self.lines is None else f"{self.lines} journal lines"
        return f"seed {self.seed}: {how} to the {self.target} {self.later_s:.3f} s after {since}"


def strike_of(seed: int) -> Strike:
    """The strike that a seed stands for."""
    chance = random.Random(seed)
    return Strike(
        seed=seed,
        target=chance.choice(TARGETS),
        number=chance.choice((signal.SIGTERM, signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP)),
        lines=chance.randrange(LINES),
        later_s=chance.choice((0.0, chance.uniform(0, 0.07))),
        is_woken=chance.random() < 0.5,
    )


def strike_of_a_monitor(seed: int) -> Strike:
    """A strike at the monitor beside a measured program: all ways in turn, at any time of its life."""
    ways = ((signal.SIGTERM, False), (signal.SIGKILL, False), (signal.SIGSTOP, True), (signal.SIGSTOP, False))
    number, is_woken = ways[seed % len(ways)]
    later_s = random.Random(seed).uniform(0, 1)
    return Strike(seed=seed, target="monitor", number=number, lines=None, later_s=later_s, is_woken=is_woken)


def struck(strikes: list[Strike], folder: Path, suite: tuple[str, ...] = SUITE) -> dict[str, object]:
    """What is wrong after each strike, by strike; nothing where the accounting is that of an undisturbed run."""
    expected = accounting(Case(folder / "undisturbed", suite).undisturbed())
    with ThreadPoolExecutor(AT_ONCE) as pool:
        wrong = pool.map(lambda strike: Case(folder / str(strike.seed), suite).wrong_after(strike, expected), strikes)
        return {str(strike): found for strike, found in zip(strikes, wrong, strict=True) if found}


class Case:
    """A base of its own."""

    def __init__(self, base: Path, suite: tuple[str, ...] = SUITE) -> None:
        self.suite = suite
        home = base / "home"
        home.mkdir(parents=True)
        self.base = base
        # The cases measure nothing: they need not wait for each other's devices.
        locks = str(base / "locks")
        self.environ = {**os.environ, "HOME": str(home), "MILABENCH_BASE": str(base), "MILABENCH_LOCK_DIR": locks}

    def undisturbed(self) -> Path:
        """A run that ends well."""
        code, said = self.milabench("run", *self.suite)
        assert code == 0, said
        return self.run_folder()

    def begun(self) -> subprocess.Popen[bytes]:
        """A run that has just begun, in a session of its own; what it says goes to the file `said`."""
        # Into a file: an agent that hangs keeps a pipe open.
        with (self.base / "said").open("wb") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "milabench", "run", *self.suite],
                env=self.environ,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def wrong_after(self, strike: Strike, expected: object) -> object:
        """What is not as it should be after a strike and `milabench resume`; nothing where all is well."""
        process = self.begun()
        try:
            self.hit(strike, process)
            process.wait(CEILING_S)
        except subprocess.TimeoutExpired:
            return "it never ended"
        finally:
            process.kill()
        said = (self.base / "said").read_text()
        if "Traceback" in said:
            return said
        code, said = self.milabench("resume")
        if code in (3, 6) and not self.has_plan():
            code, said = self.milabench("run", *self.suite)  # it was struck before there was anything to go on with
        if code != 0 or "Traceback" in said:
            return code, said
        found = accounting(self.run_folder())
        if found != expected:
            return found, said
        return self.left()

    def left(self) -> list[str]:
        """The processes that have not gone a while after the command; an agent without orchestrator is ending by itself."""
        left = self.processes()
        deadline = time.monotonic() + CEILING_S
        while left and time.monotonic() < deadline:
            time.sleep(0.02)
            left = self.processes()
        return [f"{pid}: {command}" for pid, command in left]

    def hit(self, strike: Strike, process: subprocess.Popen[bytes]) -> None:
        """Waits for the moment and strikes, unless the run is over by then."""
        while process.poll() is None and not self.is_due(strike):
            time.sleep(0.005)
        time.sleep(strike.later_s)
        for pid in self.pids_of(strike.target) or [process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, strike.number)
                if strike.number == signal.SIGSTOP:
                    time.sleep(0.1)
                    if strike.is_woken:
                        os.kill(pid, signal.SIGCONT)
                    else:  # what hangs is left to whoever comes after
                        process.kill()

    def is_due(self, strike: Strike) -> bool:
        """Whether what the strike waits for is there."""
        return bool(self.pids_of(strike.target)) if strike.lines is None else self.journal_lines() >= strike.lines

    def pids_of(self, target: str) -> list[int]:
        """One process of a kind; none where there is none at this moment, and for the orchestrator, which is known."""
        found = {
            "orchestrator": lambda _: False,
            "agent": lambda command: "execute/agent/" in command and "serve" in command,
            "step": lambda command: command.startswith("/bin/sh -c"),
            "monitor": lambda command: "benchmate.monitors" in command,
        }[target]
        return [pid for pid, command in self.processes() if found(command) and is_leader(pid)][:1]

    def processes(self) -> list[tuple[int, str]]:
        """The live processes that a run below this base started: they carry its marker, and know the base."""
        return list(marked(lambda environ: b"MILABENCH_RUN_MARKER=" in environ and os.fsencode(self.base) in environ))

    def journal_lines(self) -> int:
        try:
            return (self.run_folder() / "journal.jsonl").read_bytes().count(b"\n")
        except (IndexError, OSError):
            return 0

    def has_plan(self) -> bool:
        return any(self.base.glob("runs/run.*/manifest.json"))

    def run_folder(self) -> Path:
        return sorted(self.base.glob("runs/run.*"))[-1]

    def milabench(self, *argv: str) -> tuple[int, str]:
        """The exit code of a command, and what it said."""
        said = forked(argv, self.environ)
        return said.code, said.out + said.err


def marked(is_ours: Callable[[bytes], bool]) -> Iterator[tuple[int, str]]:
    """The live processes whose environment is one of ours, with their commands."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                if is_ours((folder / "environ").read_bytes()):
                    yield int(folder.name), (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()


def is_leader(pid: int) -> bool:
    """Whether a process leads its group, as whatever we start does; a child that a shell has just forked looks like it."""
    with contextlib.suppress(ProcessLookupError):
        return os.getpgid(pid) == pid
    return False


def accounting(run: Path) -> dict[str, Any]:
    """How every step ended, what it said and what it recorded: the same for all runs that came to the same.

    Of measurements only that there are some: how many samples a monitor takes depends on how fast it is.
    """
    summary = json.loads((run / "summary.json").read_text())
    journal = [json.loads(line) for line in (run / "journal.jsonl").read_text().splitlines() if is_json(line)]
    passed = {entry["step"]: entry["attempt"] for entry in journal if entry.get("outcome") == "passed"}
    files = json.loads((run / "manifest.json").read_text())["files"]
    steps = {}
    for step, stem in files.items():
        name = stem if passed[step] == 1 else f"{stem}~{passed[step]}"
        records = single_records((run / f"{name}.data").read_text())
        told = [record["data"] for record in records if record["event"] == "line"]
        events = [record["event"] for record in records if record["event"] not in MEASURED]
        is_measured = any("rate" in record["data"] for record in records if record["event"] == "data")
        steps[step] = (events, is_measured, told, (run / f"{name}.stdout").read_text())
    return {
        "verdict": summary["verdict"],
        "benchmarks": {each["bench"]: (each["outcome"], each["counts"]) for each in summary["benchmarks"]},
        "last": (journal[-1].get("run"), journal[-1].get("verdict")),
        "steps": steps,
    }


def is_json(line: str) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True
