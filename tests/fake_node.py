"""A node without processes, for tests of what drives nodes; held to the same contract tests as the real one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from milabench.events.model import OutcomeName, Why
from milabench.execute.api import (
    Emit,
    Frame,
    Holder,
    Outcome,
    Started,
    StepNotice,
    StepRequest,
    Waiting,
)


@dataclass(slots=True)
class FakeLocks:
    """The lock files of a machine: who holds what. Shared by the fake nodes that stand for agents on it."""

    holders: dict[str, str] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class _Running:
    """A step that has not ended; `how` is set by whatever ends it."""

    order: StepRequest
    emit: Emit
    how: asyncio.Future[Literal["cancelled", "killed", "lost", "done", "late"]]
    late: str = ""


class FakeNode:
    """Understands four commands: `true`, `false`, `echo WORDS...` and `sleep ...`, which sleeps until it is ended.

    Anything else cannot be started. Where a group waits for other nodes, each is at the barrier at once, but `sleep late`.
    `ended` tells what was ended, and with which grace; `released` the groups that may measure.
    """

    def __init__(self, name: str = "local", *, locks: FakeLocks | None = None) -> None:
        self._name = name
        self._locks = locks or FakeLocks()
        self._running: dict[str, _Running] = {}
        self.started: list[str] = []
        self.ended: list[tuple[str, float | None]] = []
        self.orders: list[StepRequest] = []
        self.released: list[str] = []
        self.discarded: list[str] = []

    @property
    def name(self) -> str:
        """The node's name in the plan."""
        return self._name

    async def run(self, order: StepRequest, emit: Emit) -> Outcome:
        """Carries out one step; see AgentNode."""
        step, argv = order.step.id, order.step.argv
        self.orders.append(order)
        await asyncio.sleep(0)  # as a request to an agent, it lets others go first
        self._record(emit, step, "start", {"command": list(argv)})
        if argv[0] not in ("true", "false", "echo", "sleep"):
            detail = f"cannot start {argv[0]}: No such file or directory"
            return self._conclude(order, emit, "failed", "environment", detail, code=None)
        self.started.append(step)
        running = self._running[step] = _Running(order, emit, asyncio.get_running_loop().create_future())
        emit(Started(step=step, node=self._name, pid=1000 + len(self.started)))
        if order.step.config.get("role") == "server":
            emit(StepNotice(step=step, stage="ready"))
        if order.is_spread and argv != ("sleep", "late"):
            emit(StepNotice(step=step, stage="at-barrier"))
        try:
            return await self._until_its_end(order, emit, running)
        finally:
            self._running.pop(step, None)

    async def _until_its_end(self, order: StepRequest, emit: Emit, running: _Running) -> Outcome:
        match order.step.argv:
            case ("true",):
                return self._conclude(order, emit, "passed", None, "", code=0)
            case ("false",):
                detail = "exited with code 1, with an empty stderr"
                return self._conclude(order, emit, "failed", "exit", detail, code=1)
            case ("echo", *words):
                line = {"event": "line", "data": " ".join(words) + "\n", "pipe": "stdout", "t": 0.0}
                emit(Frame(kind="line", step=order.step.id, payload=json.dumps(line).encode() + b"\n"))
                return self._conclude(order, emit, "passed", None, "", code=0)
            case _:
                pass
        try:
            how = await asyncio.shield(running.how)
        except asyncio.CancelledError:
            await self.end(order.step.id)
            self._conclude(order, emit, "cancelled", None, "cancelled", code=-15)
            raise
        if how == "done":
            return self._conclude(order, emit, "passed", None, "", code=-15)
        if how == "late":
            return self._conclude(order, emit, "failed", "timeout", running.late, code=-15)
        if how == "lost":
            return self._conclude(order, emit, "failed", "lost-node", "the agent was ended by SIGKILL", code=None)
        return self._conclude(order, emit, "cancelled", None, "cancelled", code=-9 if how == "killed" else -15)

    async def port(self) -> int | None:
        """Always the same: nobody listens."""
        return 1

    async def end(
        self, step: str, *, grace_s: float | None = None, is_done: bool = False, late: str | None = None
    ) -> None:
        """Ends a running step; see AgentNode."""
        self.ended.append((step, grace_s))
        running = self._running.get(step)
        if running is not None and not running.how.done():
            running.late = late or ""
            running.how.set_result("late" if late else "done" if is_done else "killed" if grace_s == 0 else "cancelled")

    async def release(self, group: str) -> float | None:
        """Lets what waits at the start barrier measure, which it does at once; see AgentNode."""
        self.released.append(group)
        for running in list(self._running.values()):
            if running.order.is_spread and running.order.step.group == group:
                running.emit(StepNotice(step=running.order.step.id, stage="measured"))
        return 0.0

    async def discard(self, step: str) -> str:
        """Takes note; see AgentNode."""
        self.discarded.append(step)
        return ""

    async def stop(self, step: str) -> None:
        """Ends a step that has measured; see AgentNode."""
        await self.end(step, is_done=True)

    async def collect(self, step: str) -> None:
        """Nothing: it has no processes to look at; see AgentNode."""

    async def collected(self, step: str) -> None:
        """Nothing: none of its steps waits for that; see AgentNode."""

    def give_up(self, *, at_once: bool = False) -> None:
        """Nothing: it takes no time to reach."""

    def lose(self) -> None:
        """What the node looks like from here when its agent is killed."""
        for running in self._running.values():
            if not running.how.done():
                running.how.set_result("lost")

    async def lock(self, names: Sequence[str], *, wait: bool, emit: Emit) -> tuple[Holder, ...]:
        """Holds the devices' locks; see AgentNode."""
        me = f"{self._name}-{id(self)}"
        while others := [n for n in sorted(names) if self._locks.holders.get(n, me) != me]:
            holder = Holder(name=others[0], run=self._locks.holders[others[0]], pid=1)
            if not wait:
                return (holder,)
            self._locks.changed.clear()
            emit(Waiting(node=self._name, holders=(holder,)))
            await self._locks.changed.wait()
        self._locks.holders.update(dict.fromkeys(names, me))
        return ()

    async def cpu_s(self) -> float:
        """None: nothing is supervised."""
        return 0.0

    async def close(self) -> None:
        """Ends what runs and lets go of the locks."""
        for step in list(self._running):
            await self.end(step)
        me = f"{self._name}-{id(self)}"
        self._locks.holders = {name: whose for name, whose in self._locks.holders.items() if whose != me}
        self._locks.changed.set()

    def _record(self, emit: Emit, step: str, event: str, data: dict[str, object]) -> None:
        record = {"event": event, "data": data, "pipe": None, "t": 0.0}
        emit(Frame(kind="rec", step=step, payload=json.dumps(record).encode() + b"\n"))

    def _conclude(
        self, order: StepRequest, emit: Emit, outcome: OutcomeName, why: Why | None, detail: str, *, code: int | None
    ) -> Outcome:
        step = order.step.id
        failure = {"why": why, "detail": detail} if why else {}
        command = list(order.step.argv)
        self._record(emit, step, "end", {"command": command, "return_code": code, "outcome": outcome, **failure})
        return Outcome("failed", detail, why) if why else Outcome(outcome, detail if outcome == "cancelled" else "")
