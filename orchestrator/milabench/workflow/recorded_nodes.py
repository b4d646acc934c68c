"""The nodes that commands have asked a batch scheduler for, by the journals of runs, and requests of dead processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from milabench.events.rundir import Run
from milabench.events.values import as_mapping
from milabench.schedulers.scheduler import JobHandle, job_name
from milabench.seams import handler, takes_part

SHARE = "nodes"
"""The command of an allocation's job, as its name says: it only holds the nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedAllocation:
    """The nodes that the last orchestrator of a run used, by its journal. It had asked for them itself (`marker`), or not."""

    run: Path
    job: str
    marker: str
    nodes: tuple[str, ...]

    @property
    def handle(self) -> JobHandle:
        """The job that holds them."""
        return JobHandle(id=self.job, name=job_name(self.marker, SHARE))

    def to_json(self) -> dict[str, object]:
        """Return it as `status --json` prints it."""
        return {"scheduler": "slurm", "job": self.job, "nodes": list(self.nodes)}

    def __str__(self) -> str:
        return f"{', '.join(self.nodes)}, of Slurm's job {self.job}"


def recorded_allocation(run: Run) -> RecordedAllocation | None:
    """Return the nodes of Slurm that the last orchestrator of a run used. None where it used none."""
    started: Mapping[str, Any] = next(
        (entry for entry in reversed(run.transitions) if entry.get("run") == "started"), {}
    )
    recorded = as_mapping(started.get("allocation"))
    job, nodes, marker = recorded.get("job"), recorded.get("nodes"), recorded.get("marker") or ""
    return RecordedAllocation(run=run.path, job=job, marker=marker, nodes=tuple(nodes)) if job and nodes else None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadRequest:
    """Nodes that a dead process requested: the `jobs` that the scheduler still has for it, and a line on the request."""

    folder: Path
    jobs: tuple[JobHandle, ...]
    text: str

    def __str__(self) -> str:
        return self.text


def held_jobs(recorded: Sequence[RecordedAllocation]) -> list[RecordedAllocation]:
    """Return those whose own jobs still hold their nodes, or may: the scheduler is asked once."""
    own = [allocation for allocation in recorded if allocation.marker]
    return handler("recorded nodes").jobs_that_hold(own) if own and takes_part("recorded nodes") else []


def dead_requests(base: Path) -> Sequence[DeadRequest]:
    """Return the requests for nodes below a base that are ours and whose process is dead. Raises Unreachable."""
    return handler("requests for nodes").requests_of_dead_processes(base) if takes_part("requests for nodes") else ()


def held_text(allocation: RecordedAllocation) -> str:
    """Return a text about the nodes of a run without an orchestrator. Empty once they are given back."""
    if not held_jobs([allocation]):
        return ""
    return f". They are still held, and given back soon, or by `milabench cancel {allocation.run.name}`"
