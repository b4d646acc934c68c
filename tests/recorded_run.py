"""A run directory written down in a test: steps with sensible defaults, their records, how they ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from milabench.events import run_writer, rundir, wire
from milabench.events.model import Config, Data, End, Event, Line, Message, Start

NOON = datetime(2026, 3, 14, 12, 0, 0)
SYSTEM: dict[str, Any] = {
    "arch": "cuda",
    "nodes": [
        {
            "name": "local",
            "hostname": "box",
            "cpu": {"model": "EPYC 9354", "count": 32},
            "memory_MiB": 262144,
            "os": "Debian 12",
            "kernel": "6.1.0",
            "python": "3.11.7",
            "devices": [
                {"index": i, "uuid": f"GPU-{i}", "name": "H100", "arch": "cuda", "memory_MiB": 81559} for i in range(2)
            ],
        }
    ],
}

OVERHEAD = {"control_cpu_s": 0.12, "agent_cpu_s": 0.18, "wall_s": 150.0}


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """One step of a recorded run; `outcome=None`: nothing says how it ended."""

    bench: str = "digits"
    tag: str = "D0"
    repeat: int = 0
    node: str = "local"
    suffix: str = ""  # of the id, which counts the nodes; by default the node's name
    devices: tuple[int, ...] = (0,)
    method: str = "per_gpu"
    group: str = ""
    weight: float = 1.0
    outcome: str | None = "passed"
    why: str | None = None
    detail: str = ""
    reasons: tuple[str, ...] = ()
    events: tuple[Event, ...] = ()
    stderr: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)  # more of its benchmark's configuration
    is_complete: bool = True  # its window holds all that was asked for

    @property
    def id(self) -> str:
        parts = (
            self.bench,
            self.tag,
            f"R{self.repeat}" if self.repeat else "",
            self.suffix or (self.node if self.node != "local" else ""),
        )
        return ".".join(part for part in parts if part)

    def planned(self) -> dict[str, Any]:
        config = {"name": self.bench, "weight": self.weight, "plan": {"method": self.method}, **self.config}
        return {
            "id": self.id,
            "bench": self.bench,
            "phase": "run",
            "tag": self.tag,
            "repeat": self.repeat,
            "group": self.group,
            "node": self.node,
            "devices": list(self.devices),
            "config": config,
        }


def data(**values: Any) -> Event:
    return Data(step="", data=values)


def rates(*values: float, units: str = "images/s", **more: Any) -> tuple[Event, ...]:
    """Observations of one second each."""
    return tuple(data(task="train", rate=v, units=units, elapsed=1.0, n=v, t0_ns=-1, **more) for v in values)


def complete_window(steps: int = 1) -> tuple[Event, ...]:
    """A window that holds every observation, and a configuration that asks for no more than `steps`."""
    window = {"start_ns": 0, "stop_ns": 2**62, "why": "complete"}
    return Config(step="", data={"measure": {"window_steps": steps, "window_s": 0}}), data(task="", window=window)


def message(text: str) -> Event:
    return Message(step="", text=text)


def record(
    base: Path,
    *steps: Recorded,
    name: str = "quick",
    manifest: Mapping[str, Any] | None = None,
    skipped: Iterable[Mapping[str, str]] = (),
    is_ended: bool = True,
    verdict: str = "passed",
) -> rundir.Run:
    """Write the run below `base` and open it."""
    times = iter(float(second) for second in range(10_000))
    writer = run_writer.create_run(base, name, NOON, clock=lambda: next(times))
    plan = {"steps": [step.planned() for step in steps], "skipped": list(skipped)}
    files = {step.id: step.id for step in steps}
    told: dict[str, Any] = {"phase": "run", "name": name, "version": "2.0.0", "system": SYSTEM}
    told["created"] = "2026-03-14T12:00:00+00:00"
    argv = ["milabench", "run", "--config", "my suite.yaml", "--select", "digits", "--repeat", "3"]
    writer.write_manifest(
        {**told, "argv": argv, "plan": plan, "files": files, "profile": "default", **(manifest or {})}
    )
    for step in steps:
        writer.journal({"step": step.id, "state": "planned"})
    for step in steps:
        _record_step(writer, step)
    if is_ended:
        writer.journal({"run": "ended", "verdict": verdict, "overhead": OVERHEAD})
    writer.close()
    return rundir.open_run(writer.path)


def _record_step(writer: run_writer.RunWriter, step: Recorded) -> None:
    window = complete_window() if step.is_complete else ()
    events: list[Event] = [Start(step="", data={"command": ["python", "main.py"]}), *window, *step.events]
    writer.append(step.id, b"".join(wire.encode(event, t=1.0) for event in events))
    if step.stderr:
        writer.append_lines(step.id, wire.encode(Line(step="", text=step.stderr, pipe="stderr"), t=2.0))
    if step.outcome is not None:
        end: Any = End(step="", outcome=step.outcome, why=step.why, detail=step.detail, return_code=0)  # type: ignore[arg-type]
        writer.append(step.id, wire.encode(end, t=3.0))
        entry = {"node": step.node, "outcome": step.outcome, "why": step.why, "detail": step.detail}
        entry |= {"reasons": list(step.reasons)}
        writer.journal({"step": step.id, "state": "ended", **{key: value for key, value in entry.items() if value}})


@dataclass(frozen=True, kw_only=True)
class RecordedShare:
    """A share of a submitted run and its job. `result=None`: no orchestrator harvested it.

    `is_begun`: the process of the job began, and left what its steps say; `is_over`: it came to its end.
    """

    steps: tuple[Recorded, ...]
    job: str = "101"
    node: str = "n1"
    result: str | None = "completed"
    state: str = "COMPLETED"
    reason: str = ""
    is_begun: bool = True
    is_over: bool = True


def record_shares(
    base: Path, *shares: RecordedShare, name: str = "jobs", is_followed: bool = True, is_ended: bool = True
) -> rundir.Run:
    """Write a submitted run, planned for the node that it calls `node1`; `is_followed`: an orchestrator saw its jobs end."""
    times = iter(float(second) for second in range(10_000))
    stated = {**SYSTEM, "nodes": [{**SYSTEM["nodes"][0], "name": "node1", "hostname": ""}]}
    by_share = {f"s{number}": share for number, share in enumerate(shares, 1)}
    steps = [step for share in shares for step in share.steps]
    submitted = {
        share: {"steps": [step.id for step in own.steps], "nodes": ["node1"]} for share, own in by_share.items()
    }
    writer = run_writer.create_run(base, name, NOON, clock=lambda: next(times))
    manifest = {
        "phase": "run",
        "name": name,
        "version": "2.0.0",
        "created": "2026-03-14T12:00:00+00:00",
        "system": stated,
        "argv": ["milabench", "run", "--engine", "slurm", "--submit"],
        "profile": "default",
        "plan": {"steps": [{**step.planned(), "node": "node1"} for step in steps], "system": stated, "skipped": []},
        "files": {step.id: step.id for step in steps},
        "submission": {"marker": "jobs-4f2a91c0", "scheduler": "slurm", "shares": submitted},
    }
    writer.write_manifest(manifest)
    writer.journal_all({"step": step.id, "attempt": 1, "state": "planned", "node": "node1"} for step in steps)
    writer.journal({"run": "started", "pid": 1, "pid_start": 1, "boot": "b", "host": "login", "user": "u"})
    for share, own in by_share.items():
        writer.journal({"share": share, "state": "submitting"})
        writer.journal({"share": share, "state": "submitted", "job": own.job})
    for share, own in by_share.items():
        if own.is_begun:
            _record_job(writer.path, share, own, lambda: next(times))
    for share, own in by_share.items() if is_followed else ():
        if own.result is not None:
            said = {"job": own.job, "result": own.result, "job_state": own.state, "reason": own.reason}
            hosts = [own.node] if own.is_begun else []
            writer.journal({"share": share, "state": "ended", **said, "hosts": hosts, "witness": "squeue"})
    if is_followed and is_ended:
        writer.journal({"run": "ended", "verdict": "passed", "overhead": OVERHEAD})
    writer.close()
    return rundir.open_run(writer.path)


def _record_job(path: Path, share: str, own: RecordedShare, clock: Callable[[], float]) -> None:
    job = run_writer.RunWriter(path, clock, share=share, job=own.job)
    system = {**SYSTEM, "nodes": [{**SYSTEM["nodes"][0], "name": own.node, "hostname": f"{own.node}.cluster"}]}
    job.write_share_manifest(system, [{**step.planned(), "node": own.node} for step in own.steps])
    who = {"pid": 7, "pid_start": 1, "boot": "b", "host": own.node, "user": "u", "marker": f"m-{share}", "since": 1.0}
    job.journal({"run": "started", **who})
    for step in own.steps:
        if step.outcome is not None or step.events:
            job.journal({"step": step.id, "attempt": 1, "state": "started", "node": own.node, "pid": 8})
            _record_step(job, step)
    if own.is_over:
        is_passed = all(step.outcome == "passed" for step in own.steps)
        job.journal({"run": "ended", "verdict": "passed" if is_passed else "failed", "overhead": OVERHEAD})
    job.close()
