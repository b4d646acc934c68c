"""Machines that are reached over a network: their connections, opened when needed, and requests to their agents."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from milabench.errors import Unreachable
from milabench.execute.agent_bootstrap import Channel, HostConnection, full_end_text, start_agent
from milabench.execute.agent_client import START_S, AgentLink, AgentNode, kill_marked
from milabench.execute.api import Emit, Outcome, StepRequest
from milabench.execute.interrupts import ReusableLoop, cancelled_by_signals
from milabench.execute.openssh import connect_openssh
from milabench.execute.ssh import Address, connect_asyncssh, line_of
from milabench.plan.model import Step
from milabench.seams import handler

if TYPE_CHECKING:
    from milabench.execute.messages import Declared

# An agent without a heartbeat for this long kills everything: a network failure does not close its input.
LEASE_S = 20.0
BEAT_S = 4.0
ASK_S = 60.0

T = TypeVar("T")


async def connect_job_node(address: Address) -> HostConnection:
    """Return the way to a node of a job. Raises Unreachable, and UsageError where the feature is left out that goes it."""
    connection: HostConnection = await handler("srun").connect_srun(address)
    return connection


TRANSPORTS: Mapping[str, Callable[[Address], Awaitable[HostConnection]]] = {
    "asyncssh": connect_asyncssh,
    "openssh": connect_openssh,
    "srun": connect_job_node,
}


class RemoteHost:
    """A machine. Every conversation with it uses the same connection."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.name = address.name
        self._connection: HostConnection | None = None
        self._opening = asyncio.Lock()

    async def connection(self) -> HostConnection:
        """Return the connection, opened if there is none. Raises Unreachable."""
        async with self._opening:
            if self._connection is not None and self._connection.lost:
                await self._connection.close()
                self._connection = None
            if self._connection is None:
                self._connection = await TRANSPORTS[self.address.transport](self.address)
            return self._connection

    async def agent(self, *words: str, marker: str = "", by: float | None = None) -> Channel:
        """Start an agent with these arguments, its input open. `by` is the time on the loop's clock, default in START_S.

        Raises Unreachable.
        """
        by = asyncio.get_running_loop().time() + START_S if by is None else by
        while True:
            rested = self._connection
            connection = await self._connection_by(by)
            try:
                return await start_agent(self.name, connection, words, by=by, marker=marker, python=self.address.python)
            except Unreachable:
                # Once more where the connection was lost while it lay idle, which only its use revealed.
                if connection is not rested or not connection.lost:
                    raise

    async def _connection_by(self, by: float) -> HostConnection:
        try:
            async with asyncio.timeout_at(by):
                return await self.connection()
        except TimeoutError:
            raise Unreachable(f"{self.name}: {self.address.shown} let nobody in within {START_S:g} s") from None

    async def ask(self, declared: Declared[T], *words: str, within_s: float = ASK_S) -> T:
        """Run an agent for a single request and return its answer. Raises Unreachable."""
        channel = await self.agent(*words)
        try:
            return await read_answer(channel, declared, self.name, words[0], within_s)
        finally:
            channel.writer.close()

    async def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            await self._connection.close()
            self._connection = None


async def read_answer(channel: Channel, declared: Declared[T], name: str, asked: str, within_s: float) -> T:
    """Return the line with which an agent answers. Raises Unreachable, at once for any other line."""
    from milabench.execute.messages import InvalidMessage

    try:
        async with asyncio.timeout(within_s):
            line = await line_of(channel.reader)
        if not line:
            raise Unreachable(f"{name}: no answer to '{asked}': {await full_end_text(channel)}")
        return declared.read(line)
    except TimeoutError:
        raise Unreachable(f"{name}: no answer to '{asked}' within {within_s:g} s") from None
    except InvalidMessage as error:
        raise Unreachable(f"{name}: {error}") from None
    except ValueError:
        raise Unreachable(f"{name}: the answer to '{asked}' is a line without end") from None


def node_marker(marker: str, node: str) -> str:
    """Return the marker of a run's processes on another node: two nodes of a test may be the same machine."""
    return f"{marker}@{node}"


def remote_node(
    machine: RemoteHost, marker: str, *, grace_s: float = 5.0, lease_s: float = LEASE_S, locks: Path | None = None
) -> AgentNode:
    """Return a machine as a node. `marker` is the run's, `locks` another folder of device locks than the machine's.

    Leftovers of a lost agent are killed before the next agent starts.
    """
    own = node_marker(marker, machine.name)
    is_first = True

    async def open_link() -> AgentLink:
        nonlocal is_first
        if not is_first:
            await kill_marked(machine.ask, own, grace_s=grace_s)
        is_first = False
        words = ["serve", "--run-id", own, "--grace", str(grace_s), "--lease", str(lease_s)]
        words += ["--locks", str(locks)] if locks else []
        by = asyncio.get_running_loop().time() + START_S
        channel = await machine.agent(*words, marker=own, by=by)
        beat_s = min(BEAT_S, lease_s / 4)
        return AgentLink(channel.reader, channel.writer, channel.describe_end, hello_by=by, beat_s=beat_s)

    async def sweep_lost(*, oom_kills: int | None = None) -> str:
        try:
            return await kill_marked(machine.ask, own, grace_s=grace_s, oom_kills=oom_kills)
        except Unreachable as error:
            reason = str(error).removeprefix(f"{machine.name}: ")
            return f"leftover processes could not be listed ({reason}). Their agent kills them within {lease_s + grace_s:g} s"

    job = machine.address.job
    explain = partial(handler("srun").describe_job_loss, job) if job else None
    return AgentNode(machine.name, open_link, sweep_lost, explain=explain, marker=marker)


def helper_node(machine: RemoteHost, purpose: str) -> AgentNode:
    """Return a machine as a node for commands that belong to no run."""
    return remote_node(machine, f"{purpose}-{os.getpid()}-{os.urandom(4).hex()}")


async def run_shell(node: AgentNode, script: str, *arguments: str, cwd: str, emit: Emit = lambda _: None) -> Outcome:
    """Run a line of /bin/sh with these arguments, on the node's own PATH."""
    step = Step(
        id="install",
        bench="install",
        phase="install",
        argv=("/bin/sh", "-c", script, "install", *arguments),
        env={"PATH": "@path", "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=cwd,
        needs_data=False,
    )
    return await node.run(StepRequest(step=step), emit)


class HostPool:
    """The machines that a command reaches: a connection to each, from the first question to `close`.

    The connections live in a single event loop, which rests while the command does other things.
    """

    def __init__(self) -> None:
        self._machines: dict[Address, RemoteHost] = {}
        self._loop = ReusableLoop()

    def machine(self, address: Address) -> RemoteHost:
        """Return the machine at an address. The same address always yields the same object."""
        key = replace(address, accept_new=False)  # accepting its key does not make it another machine
        return self._machines.setdefault(key, RemoteHost(address))

    def run(self, main: Callable[[], Coroutine[Any, Any, T]], *, handles_signals: bool = False) -> T:
        """Return the result of `main()`. See `ReusableLoop.run`. A signal cancels it unless it `handles_signals`."""

        async def awake() -> T:
            await asyncio.sleep(0)  # let the loop notice connections that were lost while it was idle
            return await (main() if handles_signals else cancelled_by_signals(main()))

        return self._loop.run(awake)

    def close(self) -> None:
        """Close all connections. A later request opens a new connection."""
        if not self._loop.is_open:
            return

        async def end() -> None:
            await asyncio.gather(*(machine.close() for machine in self._machines.values()))

        try:
            self._loop.run(lambda: cancelled_by_signals(end()))
        finally:
            self._loop.close()


async def connect_all(machines: Sequence[RemoteHost]) -> tuple[dict[str, RemoteHost], dict[str, str]]:
    """Open all connections concurrently. Return the machines that can be reached, by name, and why the others cannot."""
    # A jump host answers a few logins at a time (sshd's MaxStartups) and drops the others.
    through = {machine.address.proxy_jump: asyncio.Semaphore(8) for machine in machines}

    async def failure(machine: RemoteHost) -> str:
        async with through[machine.address.proxy_jump] if machine.address.proxy_jump else contextlib.nullcontext():
            try:
                await machine.connection()
            except Unreachable as error:
                return str(error)
        return ""

    failures = await asyncio.gather(*map(failure, machines))
    why = {machine.name: text for machine, text in zip(machines, failures, strict=True) if text}
    return {machine.name: machine for machine in machines if machine.name not in why}, why
