"""What dead orchestrators left running, here and on other machines, as the journals of their runs prove."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from milabench.errors import Unreachable
from milabench.events.rundir import Run
from milabench.execute.host_pool import connect_all
from milabench.execute.remote_host import RemoteHost, node_marker
from milabench.execute.run_lock import Orchestrator, orchestrator_of
from milabench.execute.ssh import Address
from milabench.workflow.remote_nodes import host_pool

T = TypeVar("T")

Marked = dict[Address, list[str]]
"""The markers to look for on each machine."""


def dead(run: Run) -> list[tuple[Orchestrator, tuple[Address, ...]]]:
    """The orchestrators of a run that ran on this machine and live no more, each with the other machines that it used."""
    found = []
    for entry in run.journal:
        who = orchestrator_of(entry) if entry.get("run") == "started" else None
        if who is not None and who.is_here and not who.is_alive:
            found.append((who, _addresses(entry)))
    return found


def _addresses(entry: Mapping[str, Any]) -> tuple[Address, ...]:
    try:
        return tuple(Address(**node) for node in entry.get("nodes") or ())
    except TypeError:  # of another version
        return ()


def marked_here(found: Iterable[tuple[Orchestrator, Sequence[Address]]]) -> list[str]:
    """The markers to look for on this machine: nothing outlives its restart."""
    return [who.marker for who, _ in found if who.is_of_this_boot]


def marked_there(found: Iterable[tuple[Orchestrator, Sequence[Address]]]) -> Marked:
    """The markers to look for on other machines."""
    markers: Marked = {}
    for who, addresses in found:
        for address in addresses:
            markers.setdefault(address, []).append(node_marker(who.marker, address.name))
    return markers


def left_there(marked: Marked) -> dict[Address, list[tuple[int, str]] | Unreachable]:
    """Pid and command of what carries these markers there, or why that is not known."""
    return _on_each(marked, lambda machine, markers: machine.left(*markers))


def sweep_there(marked: Marked) -> dict[Address, str | Unreachable]:
    """End what carries these markers there; a line about each machine, or why it could not be done."""
    return _on_each(marked, lambda machine, markers: machine.sweep(*markers))


def _on_each(marked: Marked, do: Callable[[RemoteHost, Sequence[str]], Awaitable[T]]) -> dict[Address, T | Unreachable]:
    async def one(machine: RemoteHost, markers: Sequence[str]) -> T | Unreachable:
        try:
            return await do(machine, markers)
        except Unreachable as error:
            return error

    by = host_pool()

    async def work() -> dict[Address, T | Unreachable]:
        machines = {address: by.machine(address) for address in marked}
        await connect_all(list(machines.values()))  # one that cannot be reached says so again, when it is asked
        done = await asyncio.gather(*(one(machines[address], markers) for address, markers in marked.items()))
        return dict(zip(marked, done, strict=True))

    return by.run(work) if marked else {}
