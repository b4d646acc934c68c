"""All the machines of a system at once: asked together what they are, and told apart by the file systems that they share."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from milabench.errors import Unreachable
from milabench.execute.file_sync import RemoteFiles, storages
from milabench.execute.interrupts import ReusableLoop
from milabench.execute.remote_host import RemoteHost, open_all
from milabench.execute.ssh import Address

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostReport:
    """What a machine says of itself, or why it says nothing.

    `behind_s` is by how much its clock is certainly behind ours (negative: ahead), 0 when the answer took longer than that.
    """

    facts: Mapping[str, Any] = field(default_factory=dict)
    behind_s: float = 0.0
    storage: str = ""
    why: str = ""


class HostPool:
    """The machines that a command reaches: one connection to each, from the first question on it to `close`.

    The connections live in one event loop, which rests while the command does other things.
    """

    def __init__(self) -> None:
        self._machines: dict[Address, RemoteHost] = {}
        self._loop = ReusableLoop()

    def machine(self, address: Address) -> RemoteHost:
        """Return the machine at an address; the same address always yields the same object."""
        key = replace(address, accept_new=False)  # whether its key may be recorded makes it no other machine
        return self._machines.setdefault(key, RemoteHost(address))

    def run(self, main: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return what `main()` returns; see `ReusableLoop.run`."""

        async def awake() -> T:
            await asyncio.sleep(0)  # what happened to connections while the loop rested is noticed before they are used
            return await main()

        return self._loop.run(awake)

    def close(self) -> None:
        """Close all connections. A later request opens a new one."""
        if not self._loop.is_open:
            return

        async def end() -> None:
            await asyncio.gather(*(machine.close() for machine in self._machines.values()))

        try:
            self._loop.run(end)
        finally:
            self._loop.close()


async def connect_all(machines: Sequence[RemoteHost]) -> tuple[dict[str, RemoteHost], dict[str, str]]:
    """Return the machines that can be reached, by name, and why the others cannot."""
    why = await open_all(machines)
    return {machine.name: machine for machine in machines if machine.name not in why}, why


async def query_all(
    machines: Mapping[str, RemoteHost],
    bases: Mapping[str, str],
    here: Path,
    *,
    clock: Callable[[], float] = time.time,
) -> dict[str, HostReport]:
    """Query all machines concurrently and return a report for each."""
    async with remote_files_of(list(machines.values())) as (desks, closed):
        answers = await asyncio.gather(*(_ask(desk, bases[name], clock) for name, desk in desks.items()))
        reports = dict(zip(desks, answers, strict=True))
        shared, unusable = await storages({name: desks[name] for name in desks if not reports[name].why}, bases, here)
    why = {**closed, **unusable}
    return {
        name: replace(reports[name], storage=shared.get(name, name), why=reports[name].why or why.get(name, ""))
        if name in reports
        else HostReport(why=why[name])
        for name in machines
    }


async def _ask(desk: RemoteFiles, base: str, clock: Callable[[], float]) -> HostReport:
    began = clock()
    try:
        facts = await desk.facts(base)
    except Unreachable as error:
        return HostReport(why=str(error))
    ended, remote_time = clock(), float(facts.get("time") or 0.0)
    return HostReport(
        facts=facts, behind_s=began - remote_time if remote_time < began else min(0.0, ended - remote_time)
    )


@contextlib.asynccontextmanager
async def remote_files_of(
    machines: Sequence[RemoteHost],
) -> AsyncIterator[tuple[dict[str, RemoteFiles], dict[str, str]]]:
    """Yield RemoteFiles for each reachable machine, by name, and the reason for each of the others."""
    why: dict[str, str] = {}

    async def opened(machine: RemoteHost) -> RemoteFiles | None:
        try:
            return await RemoteFiles.open(machine)
        except Unreachable as error:
            why[machine.name] = str(error)
            return None

    opened_files = [desk for desk in await asyncio.gather(*map(opened, machines)) if desk is not None]
    try:
        yield {desk.name: desk for desk in opened_files}, why
    finally:
        for desk in opened_files:
            desk.close()


async def link_speeds(machines: Sequence[tuple[RemoteHost, str]], seconds: float = 0.3) -> dict[str, Mapping[str, Any]]:
    """Measure each machine's link to the next, one at a time: `{"round_trip_s", "bytes_per_s"}` or `{"error"}`.

    Each machine comes with the address at which the others reach it.
    """
    speeds: dict[str, Mapping[str, Any]] = {}
    if len(machines) < 2:
        return speeds
    following = [*machines[1:], machines[0]] if len(machines) > 2 else machines[1:]
    for (near, _), (far, ip) in zip(machines, following, strict=False):
        speeds[f"{near.name} -> {far.name}"] = await _link(near, far, ip, seconds)
    return speeds


async def _link(near: RemoteHost, far: RemoteHost, ip: str, seconds: float) -> Mapping[str, Any]:
    try:
        listening = await far.agent("link")
        port = str(json.loads(await listening.reader.readline())["port"])
        try:
            return await near.ask("link", "--to", ip, port, "--seconds", str(seconds))
        finally:
            listening.writer.close()
    except (Unreachable, ValueError) as error:
        return {"error": str(error)}
