"""Runs the programs of a part one after the other, each in a process of its own with a deadline, and keeps what came of them.

Of part 1 in FOLDER: `part1.jsonl` has a line for the machine and one for each program, written when it ends; `part1.md` is the
same as a table; `part1.log` has the end of the output of each program that did not pass. A part that is cut off leaves all of
them as they were after its last program.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.gpu.outcome import BASE, OUTCOME, SIMULATED

ROOT: Final = Path(__file__).resolve().parents[2]
PART_S: Final = 525.0
"""Of a part: 9 minutes, less what it takes to end."""
LEAST_S: Final = 5.0
"""A program is not begun with less time than that."""
LOG_BYTES: Final = 20_000
"""Of the output of a program that did not pass."""
MOST_LOG_BYTES: Final = 4 << 20


@dataclass(frozen=True)
class Program:
    """One program of a part: `python -m MODULE WORDS`, where `what` is shown, in at most `limit_s` seconds."""

    name: str
    what: str
    module: str
    limit_s: float
    words: tuple[str, ...] = ()
    devices: int = 1
    """How many accelerators it needs."""
    not_simulated: str = ""
    """What a simulation cannot show of it."""
    needs_accelerator: str = ""
    """Why there is nothing to run without one."""
    needs_simulation: bool = False
    """Whether it is about what no accelerator can be made to do: the simulated one does it on either machine."""


@dataclass(frozen=True)
class Machine:
    """Where a part runs: `devices` accelerators; 0 where they are simulated."""

    devices: int
    facts: Mapping[str, Any]

    @property
    def is_simulated(self) -> bool:
        return self.devices == 0


# Asked in a process of its own: what it uses of a device goes with it.
_PROBE: Final = """
import json, os, platform, sys
found = {"python": platform.python_version(), "processors": os.cpu_count(), "torch": None, "cuda": None, "devices": []}
try:
    import torch
    found |= {"torch": torch.__version__, "cuda": torch.version.cuda}
    if torch.cuda.is_available():
        found["devices"] = [torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())]
except ImportError:
    pass
try:
    import pynvml
    pynvml.nvmlInit()
    driver = pynvml.nvmlSystemGetDriverVersion()
    found["driver"] = driver.decode() if isinstance(driver, bytes) else driver
except Exception:
    found["driver"] = None
print(json.dumps(found))
"""


def probe(python: str = sys.executable) -> Machine:
    """Return this machine as torch sees it; without torch, or without a device of CUDA, a simulated one."""
    try:
        said = subprocess.run([python, "-c", _PROBE], capture_output=True, text=True, check=False, timeout=120)
        facts = json.loads(said.stdout)
    except (subprocess.TimeoutExpired, ValueError) as error:
        return Machine(0, {"devices": [], "torch": None, "driver": None, "trouble": str(error)[:200]})
    return Machine(len(facts["devices"]), facts)


def skip_reason(program: Program, machine: Machine, left_s: float) -> str:
    """Return why a program is not begun; empty for one that is."""
    if machine.is_simulated and program.needs_accelerator:
        return f"needs an accelerator: {program.needs_accelerator}"
    if not machine.is_simulated and machine.devices < program.devices:
        return f"needs {program.devices} accelerators; here is {machine.devices}"
    if left_s < LEAST_S:
        return "no time was left in this part; give FROM to begin with this program"
    return ""


def outcome_of(lines: Sequence[Mapping[str, Any]], code: int, is_late: bool, seconds: float) -> tuple[str, str]:
    """Return passed, failed or skipped, and the reason."""
    if is_late:
        return "failed", f"was ended after {seconds:.0f} s"
    missed = [line for line in lines if line.get("met") is False]
    if missed:
        return "failed", "; ".join(f"{line['what']}: {shown_value(line)}, goal {line['goal']}" for line in missed)
    if code:
        return "failed", f"exit code {code}"
    skips = [str(line["skip"]) for line in lines if "skip" in line]
    if skips:
        return "skipped", skips[0]
    return ("passed", "") if lines else ("failed", "said nothing")


def shown_value(line: Mapping[str, Any]) -> str:
    """Return the value of a number as the table shows it."""
    if line["value"] is None:
        return " ".join(filter(None, ("holds" if line["met"] else "does not hold", line["seen"])))
    seen = f" ({line['seen']})" if line["seen"] else ""
    return f"{line['value']:.4g} {line['units']}".rstrip() + seen


def run_program(program: Program, limit_s: float, environ: Mapping[str, str], log: Path) -> dict[str, Any]:
    """Run one program, end it and its children at the deadline; return its line of the results."""
    with tempfile.TemporaryDirectory(prefix="gpu-") as folder:
        said = Path(folder, "outcome.jsonl")
        env = {**environ, OUTCOME: str(said), "PYTHONUNBUFFERED": "1", "TMPDIR": folder}
        start = time.monotonic()
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", program.module, *program.words],
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                cwd=ROOT,
                env=env,
                start_new_session=True,
            )
            is_late = False
            try:
                process.wait(limit_s)
            except subprocess.TimeoutExpired:
                is_late = True
            finally:
                # Its children, too: a server that was left would hold the device.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        seconds = time.monotonic() - start
        lines = [json.loads(line) for line in said.read_text().splitlines()] if said.exists() else []
    outcome, reason = outcome_of(lines, process.returncode, is_late, seconds)
    missing = [str(line["not_shown"]) for line in lines if "not_shown" in line]
    return {
        "program": program.name,
        "what": program.what,
        "outcome": outcome,
        "reason": reason,
        "seconds": round(seconds, 1),
        "numbers": [line for line in lines if "what" in line],
        "not_shown": missing,
    }


class Results:
    """The files of a part in `folder`; each line is there as soon as it is added."""

    def __init__(self, folder: Path, part: int, machine: Machine) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.base = folder.resolve() / "base"
        self.lines, self.table, self.log = (folder / f"part{part}.{kind}" for kind in ("jsonl", "md", "log"))
        self.programs: list[dict[str, Any]] = []
        self.head = {
            "part": part,
            "date": time.strftime("%Y-%m-%d"),
            "simulated": machine.is_simulated,
            **machine.facts,
        }
        self.lines.write_text(json.dumps(self.head) + "\n", encoding="utf-8")
        self.log.write_bytes(b"")
        self._write_table()

    def add(self, found: dict[str, Any], output: bytes = b"") -> None:
        """Add a program, with the end of its output where it did not pass."""
        self.programs.append(found)
        with self.lines.open("a", encoding="utf-8") as file:
            file.write(json.dumps(found) + "\n")
        if found["outcome"] == "failed" and self.log.stat().st_size < MOST_LOG_BYTES:
            with self.log.open("ab") as file:
                file.write(f"== {found['program']}: {found['reason']}\n".encode() + output[-LOG_BYTES:] + b"\n")
        self._write_table()

    def _write_table(self) -> None:
        self.table.write_text(table_of(self.head, self.programs), encoding="utf-8")


def describe(head: Mapping[str, Any]) -> str:
    """Return in one line where a part ran."""
    devices = list(head.get("devices") or ())
    where = (
        "simulated accelerators"
        if head["simulated"]
        else f"{len(devices)} x {devices[0]}" + (f", driver {head['driver']}" if head.get("driver") else "")
    )
    torch = f"torch {head['torch']}" if head.get("torch") else "no torch"
    return f"{where}, {torch}, Python {head.get('python')}, {head['date']}"


def table_of(head: Mapping[str, Any], programs: Sequence[Mapping[str, Any]]) -> str:
    """Return a part as Markdown: what passed, failed and was skipped with the reason, and each number with its goal."""
    counts = {word: sum(found["outcome"] == word for found in programs) for word in ("passed", "failed", "skipped")}
    said = ", ".join(f"{count} {word}" for word, count in counts.items())
    rows = [f"# Part {head['part']}: {said}", "", f"{describe(head)}.", ""]
    rows += ["| program | outcome | seconds | reason |", "|---|---|---|---|"]
    rows += [
        f"| `{found['program']}` | {found['outcome']} | {found['seconds']:g} | {_cell(found['reason'])} |"
        for found in programs
    ]
    rows += ["", "| program | what | value | goal | met |", "|---|---|---|---|---|"]
    met = {True: "yes", False: "no", None: "-"}
    for found in programs:
        for line in found["numbers"]:
            cells = (f"`{found['program']}`", _cell(line["what"]), _cell(shown_value(line)), line["goal"] or "-")
            rows.append(f"| {' | '.join(cells)} | {met[line['met']]} |")
    missing = [f"- `{found['program']}`: {_cell(text)}" for found in programs for text in found["not_shown"]]
    if missing:
        rows += ["", "Not shown here:", "", *missing]
    return "\n".join(rows) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def run_part(
    programs: Iterable[Program],
    results: Results,
    machine: Machine,
    part_s: float = PART_S,
    environ: Mapping[str, str] = os.environ,
) -> int:
    """Run programs until the part's time is over; return how many failed."""
    start = time.monotonic()
    for program in programs:
        left_s = part_s - (time.monotonic() - start)
        if reason := skip_reason(program, machine, left_s):
            skipped = {"program": program.name, "what": program.what, "outcome": "skipped", "reason": reason}
            results.add({**skipped, "seconds": 0.0, "numbers": [], "not_shown": []})
        else:
            with tempfile.NamedTemporaryFile(prefix="gpu-log-") as log:
                simulated = {SIMULATED: "1"} if machine.is_simulated or program.needs_simulation else {SIMULATED: "0"}
                env = {**environ, **simulated, BASE: str(results.base)}
                found = run_program(program, min(program.limit_s, left_s), env, Path(log.name))
                if found["reason"].startswith("was ended") and left_s < program.limit_s:
                    why = f"the time of this part was over after {found['seconds']:.0f} s; give FROM to begin with this program"
                    found |= {"outcome": "skipped", "reason": why}
                if program.needs_simulation:
                    found["not_shown"].insert(
                        0, "a real device that does this: nothing is changed in the machine's settings"
                    )
                if machine.is_simulated and program.not_simulated and found["outcome"] != "skipped":
                    found["not_shown"].insert(0, program.not_simulated)
                results.add(found, Path(log.name).read_bytes())
        last = results.programs[-1]
        print(f"{last['outcome']:8}{last['seconds']:6.1f} s  {last['program']:24} {last['reason'][:200]}", flush=True)
    return sum(found["outcome"] == "failed" for found in results.programs)
