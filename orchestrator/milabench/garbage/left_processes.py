"""Processes, jobs and requests for nodes that crashed runs have left, and their end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from milabench.errors import Unreachable
from milabench.execute.agent_client import list_marked
from milabench.seams import handler
from milabench.workflow.files import base_folder
from milabench.workflow.options import Session
from milabench.workflow.orphans import (
    Machine,
    Markers,
    Processes,
    dead_orchestrators,
    killed_on,
    on_each_machine,
    process_markers,
)
from milabench.workflow.recorded_nodes import (
    DeadRequest,
    RecordedAllocation,
    dead_requests,
    held_jobs,
    recorded_allocation,
)
from milabench.workflow.run_lookup import all_runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphans:
    """Leftover processes of crashed runs, by machine, and their markers. `unknown` are machines that do not answer.

    `jobs` still hold the nodes of Slurm that such runs asked for. `requests` are those that no run had begun with.
    """

    processes: Mapping[Machine, Processes]
    unknown: tuple[Unreachable, ...]
    markers: Markers
    jobs: tuple[RecordedAllocation, ...] = ()
    requests: tuple[DeadRequest, ...] = ()

    @property
    def count(self) -> int:
        """The number of all that was left."""
        return sum(map(len, self.processes.values())) + len(self.jobs) + len(self.requests)

    @property
    def text(self) -> str:
        """How many there are, for a person."""
        processes = sum(map(len, self.processes.values()))
        counts = {"processes": processes, "jobs": len(self.jobs), "requests for nodes": len(self.requests)}
        return " and ".join(f"{count} {what}" for what, count in counts.items() if count)


def find_orphans(base: Path | None, session: Session, *, is_local_only: bool = False) -> Orphans:
    """Return the leftover processes of the crashed runs below a base."""
    handles = all_runs(base)
    dead = [orphan for handle in handles for orphan in dead_orchestrators(handle.run)]
    used = [recorded_allocation(handle.run) for handle in handles if handle.holder is None]
    markers = process_markers(dead, is_local_only=is_local_only)
    answers = on_each_machine(markers, session, list_marked)
    jobs = tuple(held_jobs([allocation for allocation in used if allocation is not None]))
    unknown = [answer for answer in answers.values() if isinstance(answer, Unreachable)]
    requests: list[DeadRequest] = []
    try:
        recorded = {job.marker for job in jobs}
        requests = [each for each in dead_requests(base_folder(base)) if each.folder.name not in recorded]
    except Unreachable as error:
        unknown.append(error)
    return Orphans(
        processes={machine: own for machine, own in answers.items() if not isinstance(own, Unreachable) and own},
        unknown=tuple(unknown),
        markers=markers,
        jobs=jobs,
        requests=tuple(requests),
    )


def kill_orphans(orphans: Orphans, session: Session) -> bool:
    """Kill the processes, report the result for each machine, and return whether all are gone."""
    markers = {machine: orphans.markers[machine] for machine in orphans.processes}
    for machine, result in killed_on(markers, session).items():
        session.info(f"gc: {f'{machine.name}: ' if machine else ''}{result}")
    are_gone = not any(on_each_machine(markers, session, list_marked).values())
    for allocation in orphans.jobs:
        handler("recorded nodes").give_back(allocation)
        session.info(f"gc: gave back {allocation}")
    for request in orphans.requests:
        handler("requests for nodes").end_request(request)
        session.info(f"gc: ended {request}")
    return are_gone
