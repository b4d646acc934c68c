"""Processes that crashed orchestrators left running, here and on other machines, as the journals of their runs prove."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from milabench.errors import Unreachable
from milabench.events.rundir import Run
from milabench.execute.agent_client import kill_marked, query_agent
from milabench.execute.locks import Orchestrator, orchestrator_of
from milabench.execute.remote_host import connect_all, node_marker
from milabench.execute.ssh import Address
from milabench.seams import handler, takes_part
from milabench.shown import grouped
from milabench.workflow.options import Session

T = TypeVar("T")

Machine = Address | None
"""Where something may have been left. None is this machine."""
Markers = dict[Machine, list[str]]
"""The markers to look for on each machine."""
Processes = list[tuple[int, str]]
"""Pid and command of each."""


def dead_orchestrators(run: Run) -> list[tuple[Orchestrator, tuple[Address, ...]]]:
    """Return the orchestrators of a run that ran on this machine and died, each with the other machines that it used.

    The process of a job counts too, without its other nodes: they ended with the job, and nobody may log in there.
    """
    dead = []
    for entry in run.journal:
        orchestrator = orchestrator_of(entry) if entry.get("run") == "started" else None
        if orchestrator is not None and orchestrator.is_local and not orchestrator.is_alive:
            dead.append((orchestrator, () if "share" in entry else _addresses(entry)))
    return dead


def _addresses(entry: Mapping[str, Any]) -> tuple[Address, ...]:
    try:
        return tuple(Address(**node) for node in entry.get("nodes") or ())
    except TypeError:  # of another version
        return ()


def process_markers(dead: Sequence[tuple[Orchestrator, Sequence[Address]]], *, is_local_only: bool = False) -> Markers:
    """Return the markers to look for on each machine, on this machine first."""
    # Nothing outlives a restart of this machine.
    here = [orchestrator.marker for orchestrator, _ in dead if orchestrator.is_of_this_boot]
    markers: Markers = {None: here} if here else {}
    if is_local_only:
        return markers
    left = [(address, orchestrator.marker) for orchestrator, used in dead for address in used]
    jobs = _jobs_over(*(address for address, _ in left))
    reached = ((at, node_marker(marker, at.name)) for at, marker in left if at.job not in jobs)
    return {**markers, **grouped(reached)}


def _jobs_over(*addresses: Address) -> set[str]:
    """Return the ended jobs among the nodes' jobs. Slurm has ended their processes, and lets nobody look."""
    jobs = [job for job in dict.fromkeys(address.job for address in addresses) if job]
    states = handler("srun").states_of_jobs(*jobs) if jobs and takes_part("srun") else {}
    return {job for job, state in states.items() if state.phase in ("ended", "absent")}


def killed_on(markers: Markers, session: Session) -> dict[Machine, str]:
    """Kill the marked processes of each machine, and return the results as lines."""
    results = on_each_machine(markers, session, kill_marked)
    return {
        machine: f"leftover processes could not be killed ({result})" if isinstance(result, Unreachable) else result
        for machine, result in results.items()
    }


def on_each_machine(
    markers: Markers, session: Session, question: Callable[..., Awaitable[T]]
) -> dict[Machine, T | Unreachable]:
    """Ask each machine about its markers, all at the same time. Return the answers, or why there is none.

    `question` is `list_marked` or `kill_marked`.
    """
    hosts = {address: session.hosts.machine(address) for address in markers if address is not None}

    async def answer(machine: Machine, own: Sequence[str]) -> T | Unreachable:
        try:
            return await question(query_agent if machine is None else hosts[machine].ask, *own)
        except Unreachable as error:
            return error

    async def work() -> dict[Machine, T | Unreachable]:
        await connect_all(list(hosts.values()))  # one that cannot be reached raises again when it is queried
        results = await asyncio.gather(*(answer(machine, own) for machine, own in markers.items()))
        return dict(zip(markers, results, strict=True))

    return session.hosts.run(work) if markers else {}
