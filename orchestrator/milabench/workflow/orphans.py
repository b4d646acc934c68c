"""Processes that crashed orchestrators left running, here and on other machines, as the journals of their runs prove."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from milabench.errors import Unreachable
from milabench.events.rundir import Run
from milabench.execute.agent_client import local_leftovers, sweep_local
from milabench.execute.interrupts import run_deferring_signals
from milabench.execute.locks import Orchestrator, orchestrator_of
from milabench.execute.remote_host import RemoteHost, connect_all, node_marker
from milabench.execute.ssh import Address
from milabench.workflow.options import Session
from milabench.workflow.run_lookup import all_runs

T = TypeVar("T")

Markers = dict[Address, list[str]]
"""The markers to look for on each machine."""
Processes = list[tuple[int, str]]
"""Pid and command of each."""


def dead_orchestrators(run: Run) -> list[tuple[Orchestrator, tuple[Address, ...]]]:
    """Return the orchestrators of a run that ran on this machine and died, each with the other machines that it used."""
    dead = []
    for entry in run.journal:
        orchestrator = orchestrator_of(entry) if entry.get("run") == "started" else None
        if orchestrator is not None and orchestrator.is_local and not orchestrator.is_alive:
            dead.append((orchestrator, _addresses(entry)))
    return dead


def _addresses(entry: Mapping[str, Any]) -> tuple[Address, ...]:
    try:
        return tuple(Address(**node) for node in entry.get("nodes") or ())
    except TypeError:  # of another version
        return ()


def remote_process_markers(dead: Iterable[tuple[Orchestrator, Sequence[Address]]]) -> Markers:
    """Return the markers to look for on other machines."""
    markers: Markers = {}
    for orchestrator, addresses in dead:
        for address in addresses:
            markers.setdefault(address, []).append(node_marker(orchestrator.marker, address.name))
    return markers


def on_each_machine(
    markers: Markers, session: Session, do: Callable[..., Awaitable[T]]
) -> dict[Address, T | Unreachable]:
    """Call a method of `RemoteHost` with the markers to look for on each machine; return its answers, or why it failed."""

    async def on_host(host: RemoteHost, own: Sequence[str]) -> T | Unreachable:
        try:
            return await do(host, *own)
        except Unreachable as error:
            return error

    pool = session.hosts

    async def work() -> dict[Address, T | Unreachable]:
        hosts = {address: pool.machine(address) for address in markers}
        await connect_all(list(hosts.values()))  # one that cannot be reached raises again when it is queried
        results = await asyncio.gather(*(on_host(hosts[address], own) for address, own in markers.items()))
        return dict(zip(markers, results, strict=True))

    return pool.run(work) if markers else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphans:
    """Leftover processes of crashed runs, on this machine and on others; `unknown` are machines that do not answer."""

    local: Processes
    remote: Mapping[Address, Processes]
    unknown: tuple[Unreachable, ...]
    local_markers: tuple[str, ...]
    remote_markers: Markers

    @property
    def count(self) -> int:
        """The number of leftover processes."""
        return len(self.local) + sum(map(len, self.remote.values()))


def find_orphans(base: Path | None, session: Session, *, is_local_only: bool = False) -> Orphans:
    """Return the leftover processes of the crashed runs below a base."""
    dead = [orphan for handle in all_runs(base) for orphan in dead_orchestrators(handle.run)]
    # Nothing outlives a restart of this machine.
    local_markers = tuple(orchestrator.marker for orchestrator, _ in dead if orchestrator.is_of_this_boot)
    markers = {} if is_local_only else remote_process_markers(dead)
    answers = on_each_machine(markers, session, RemoteHost.left)
    return Orphans(
        local=_find_local(local_markers),
        remote={address: left for address, left in answers.items() if not isinstance(left, Unreachable) and left},
        unknown=tuple(answer for answer in answers.values() if isinstance(answer, Unreachable)),
        local_markers=local_markers,
        remote_markers=markers,
    )


def _find_local(markers: Sequence[str]) -> Processes:
    return run_deferring_signals(lambda: local_leftovers(*markers)) if markers else []


def kill_orphans(orphans: Orphans, session: Session) -> bool:
    """Kill the processes, report the result for each machine, and return whether all are gone."""
    if orphans.local:
        session.info(f"cleanup: {run_deferring_signals(lambda: sweep_local(*orphans.local_markers))}")
    markers = {address: orphans.remote_markers[address] for address in orphans.remote}
    for address, result in on_each_machine(markers, session, RemoteHost.sweep).items():
        session.info(f"cleanup: {address.name}: {result}")
    is_local_left = bool(orphans.local and _find_local(orphans.local_markers))
    return not is_local_left and not any(on_each_machine(markers, session, RemoteHost.left).values())
