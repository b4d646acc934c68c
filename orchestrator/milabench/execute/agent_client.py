"""Client of a node's agent, over any pair of streams. The local agent is started over pipes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast
from weakref import WeakKeyDictionary

from milabench.devices.registry import displaced_by
from milabench.errors import Unreachable
from milabench.events.model import Why
from milabench.execute.agent.procfs import signal_name
from milabench.execute.api import (
    Emit,
    EvidenceCollected,
    Frame,
    Holder,
    Outcome,
    Progress,
    Started,
    StepNotice,
    StepRequest,
    Waiting,
)
from milabench.execute.local_agent import GRACE_S, LEAVE_S, LocalAgent
from milabench.execute.ssh import SshReader, SshWriter
from milabench.facts.probe import agent_command
from milabench.plan.launchers import SRUN_LINE
from milabench.plan.model import Step
from milabench.redaction import mask_data, secrets_within
from milabench.seams import module_on_nodes
from milabench.shown import visible_line

if TYPE_CHECKING:
    from milabench.execute.messages import Declared, Header, Left, StepEnd, Swept

# A node is waited for with deadlines of our own, later than its agent's: it may have lost count of the time, or lie.
START_S = 60.0  # from the first attempt to connect to the agent's hello
ANSWER_S = 60.0  # an agent answers at once; only facts take seconds
END_S = 60.0  # after a step's time limit, or the request to end it, and its grace
COLLECT_S = 10.0  # an agent takes two seconds to look at the processes of a step
REMOVAL_S = 180.0  # an agent takes up to two minutes to remove a folder
GIVEN_UP_S = 1.0  # for an agent that was not waited for to its hello
WORDS_S = 2.0  # after the end of its output, for an agent's own
# By which a job's signal may reach an agent, or us, later than a step: one after the other, on each node by its own daemon.
SETTLE_S = 0.5
# After a signal: the grace of a step, and when a node that has not said how it ended is left to `gc processes`.
INTERRUPT_GRACE_S = 2.8
INTERRUPT_S = 3.4
AT_ONCE_S = 0.5
GIVEN_UP = "the run was interrupted before its agent had started"
NOTHING_LEFT = "no leftover processes"
MOST_SHOWN = 200  # characters of what a lock's file says
LATEST_S = 4102444800.0  # the year 2100
# Of a header. Of all that a link holds at most twice as much, and a piece that was read, is unread.
LINE_BYTES = 1 << 16
PIECE_BYTES = 1 << 16
LONG_BYTES = 1 << 17  # of a record; of longer ones only one is read at a time, of all nodes
LONG_S = 60.0
BATCHES = ("line", "rec", "obs")
_long_records: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


M = TypeVar("M")
Ask = Callable[..., Awaitable[Any]]
"""Asks an agent of a machine a single question, as `query_agent` does."""
OnWaiting = Callable[[Sequence[Mapping[str, Any]]], object]
"""Called with the holders of the locks that a request waits for."""


class LostError(Exception):
    """The agent is gone. The text says how."""


Explain = Callable[[str], Awaitable[tuple[str, Why]]]
"""Called with the way an agent was lost. Returns it for a person, with the scheduler's knowledge, and as a word."""


async def _no_more_is_known(how: str) -> tuple[str, Why]:
    return how, "lost-node"


class Sweep(Protocol):
    """Kills leftovers of a lost agent, and describes the result on a line. See `kill_marked`."""

    def __call__(self, *, oom_kills: int | None = None) -> Coroutine[Any, Any, str]: ...


Reader = asyncio.StreamReader | SshReader
Writer = asyncio.StreamWriter | SshWriter
"""The output of an agent, and the input, whose end ends its lease."""


@dataclass(slots=True)
class _Watched:
    """A step that an agent runs."""

    emit: Emit
    ended: asyncio.Future[StepEnd]


class AgentLink:
    """The conversation with an agent: requests and their replies, and the frames of its steps.

    It must have said hello at `hello_by`, on the loop's clock. Default: START_S from now.
    """

    def __init__(
        self,
        reader: Reader,
        writer: Writer,
        describe_end: Callable[[], Awaitable[str]],
        *,
        hello_by: float | None = None,
        beat_s: float | None = None,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._how_it_ended = describe_end
        self._numbers = 0
        self._requests: dict[int, tuple[asyncio.Future[Mapping[str, Any]], OnWaiting]] = {}
        self._steps: dict[str, _Watched] = {}
        self.hello: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        """The agent's report about itself. LostError when it ended instead."""
        self.hello_by = asyncio.get_running_loop().time() + START_S if hello_by is None else hello_by
        self.lost: str | None = None
        self._reading: asyncio.Task[object] = asyncio.create_task(self._read())
        self._beating = asyncio.create_task(self._beat(beat_s)) if beat_s is not None else None

    async def request(
        self,
        verb: str,
        fields: Mapping[str, object] | None = None,
        *,
        within_s: float | None = ANSWER_S,
        waiting: OnWaiting = lambda _: None,
    ) -> Mapping[str, Any]:
        """Return the reply to a request, `{"ok", ...}`. Until then `waiting` is called with the holders of the requested locks.

        Raises LostError when there will be none.
        """
        if self.lost is not None:
            raise LostError(self.lost)
        self._numbers += 1
        number = self._numbers
        future = asyncio.get_running_loop().create_future()
        self._requests[number] = future, waiting
        try:
            async with asyncio.timeout(within_s):
                self._writer.write(json.dumps({"id": number, "verb": verb, **(fields or {})}).encode() + b"\n")
                with contextlib.suppress(OSError):  # the reader notices the loss and reports more about it
                    await self._writer.drain()
                return cast("Mapping[str, Any]", await future)
        except TimeoutError:
            self.lose(f"the agent did not answer '{verb}' within {within_s:g} s")  # its steps wait for no end either
            raise LostError(self.lost) from None
        finally:
            self._requests.pop(number, None)

    async def start(self, step: str, emit: Emit, fields: Mapping[str, object]) -> tuple[Mapping[str, Any], _Watched]:
        """Send a start request. Return its reply and the watched step."""
        watched = _Watched(emit=emit, ended=asyncio.get_running_loop().create_future())
        self._steps[step] = watched  # before the request: the step's first frames may come ahead of the reply
        try:
            reply = await self.request("start", {"step": step, **fields})
        except BaseException:
            self._steps.pop(step, None)
            raise
        if not reply.get("ok"):
            self._steps.pop(step, None)
        return reply, watched

    def expect_end(self, step: str, within_s: float, of_what: str) -> None:
        """Lose the agent when the end of a running step has not come by then. `of_what` says for a person since when."""
        watched = self._steps.get(step)

        def look() -> None:
            if watched is not None and self._steps.get(step) is watched:
                self.lose(f"the end of {step} did not come within {within_s:g} s of {of_what}")

        asyncio.get_running_loop().call_later(within_s, look)

    async def is_lost_within(self, within_s: float) -> bool:
        """Wait so long, in seconds, for the end of the agent, and return whether it has ended."""
        await asyncio.wait({self._reading}, timeout=within_s)
        return self.lost is not None

    async def close(self, within_s: float = LEAVE_S) -> None:
        """End the lease and wait for the end of the agent's output: it kills everything and exits."""
        self._writer.close()
        await asyncio.wait({self._reading}, timeout=within_s)

    async def _beat(self, every_s: float) -> None:
        """Send heartbeats to an agent with a lease."""
        while self.lost is None:
            await asyncio.sleep(every_s)
            self._writer.write(b'{"verb":"beat"}\n')

    async def _read(self) -> None:
        from milabench.execute.messages import HEADER, InvalidMessage  # while the agent starts

        try:
            while line := await self._reader.readline():
                header = HEADER.read(line)
                await (self._take_records(header) if header.k in BATCHES else self._take_message(header))
            how = await self._end_text()
        except InvalidMessage as error:
            how = str(error)  # nothing that comes after it can be understood
        except (OSError, EOFError) as error:
            how = f"{error}; {await self._end_text()}" if isinstance(error, OSError) else await self._end_text()
        except ValueError:
            how = f"a line from its agent has more than {LINE_BYTES} bytes"
        except BaseException:
            self.lose("internal error")  # a bug here must not become a hang
            raise
        self.lose(how)

    async def _end_text(self) -> str:
        self._writer.close()
        try:
            async with asyncio.timeout(WORDS_S):
                return await self._how_it_ended()
        except TimeoutError:
            return "the agent's output ended, and the agent did not"

    async def _take_records(self, header: Header) -> None:
        """Pass on the records of a frame in pieces of whole lines: as many nodes as there are may send long frames."""
        from milabench.execute.messages import InvalidMessage, header_sums

        watched = self._steps.get(header.step)  # none of a step that was given up: its last frames may still come
        begun: list[bytes] = []  # of a line
        left, size, by = header.n, 0, None
        loop = asyncio.get_running_loop()
        turn = _long_records.setdefault(loop, asyncio.Lock())
        try:
            while left:
                async with asyncio.timeout_at(by):
                    piece = await self._reader.readexactly(min(left, PIECE_BYTES))
                left -= len(piece)
                lines, newline, rest = (piece, b"", b"") if piece.endswith(b"\n") else piece.rpartition(b"\n")
                if watched is not None and (lines or newline):
                    payload = b"".join((*begun, lines, newline)) if begun or newline else lines
                    last = cast("Mapping[str, Any]", header_sums(header)) if header.last and not left else {}
                    watched.emit(Frame(kind=cast("Any", header.k), step=header.step, payload=payload, last=last))
                begun, size = (
                    ([rest] * bool(rest), len(rest)) if lines or newline else ([*begun, rest], size + len(rest))
                )
                if size > LONG_BYTES and by is None:
                    await turn.acquire()
                    by = loop.time() + LONG_S
        except TimeoutError:
            raise InvalidMessage(f"the rest of a record did not arrive within {LONG_S:g} s") from None
        finally:
            if by is not None:
                turn.release()
        if size:
            raise InvalidMessage(f"its message '{header.k}' ends within a record")

    async def _take_message(self, header: Header) -> None:
        from milabench.execute import messages
        from milabench.records.hang_evidence import MOST_BYTES

        if header.n > (MOST_BYTES if header.k == "evidence" else messages.MOST_MESSAGE_BYTES):
            raise messages.InvalidMessage(f"its message '{header.k}' cannot be read: it has {header.n} bytes")
        payload = await self._reader.readexactly(header.n)
        watched = self._steps.get(header.step)
        match header.k:
            case ("ready" | "at-barrier" | "measured" | "hung") as stage if watched is not None:
                watched.emit(StepNotice(step=header.step, stage=stage))
            case "evidence" if watched is not None:
                evidence = messages.EVIDENCE.read(payload)
                watched.emit(EvidenceCollected(step=header.step, evidence=evidence, payload=payload))
            case "ended" if watched is not None:
                ended = messages.ENDED.read(payload)
                del self._steps[header.step]
                if not watched.ended.done():
                    watched.ended.set_result(ended)
            case "reply":
                reply = messages.REPLY.read(payload)
                future, _ = self._requests.get(reply.get("id") or 0, (None, None))
                if future is not None and not future.done():
                    future.set_result(reply)
            case "waiting":
                message = messages.WAITING.read(payload)
                if message["id"] in self._requests:
                    self._requests[message["id"]][1](message["holders"])
            case "hello":
                if not self.hello.done():
                    self.hello.set_result(messages.HELLO.read(payload))
            case _:
                pass  # a newer agent may say more

    def lose(self, how: str) -> None:
        """End the conversation: the agent's lease, and all that is waited for."""
        if self.lost is not None:
            return
        self.lost = how
        self._writer.close()
        if self._beating is not None:
            self._beating.cancel()
        if asyncio.current_task() is not self._reading:
            self._reading.cancel()
        self._reading = asyncio.create_task(self._end_text())  # its process has to be waited for
        lost = LostError(how)
        replies = (future for future, _ in self._requests.values())
        waits: tuple[asyncio.Future[Any], ...] = (self.hello, *replies, *(each.ended for each in self._steps.values()))
        for future in waits:
            if not future.done():
                future.set_exception(lost)
                future.exception()  # a waiter sees it; an abandoned future must not cause a warning
        self._steps.clear()


class AgentNode:
    """Runs steps on a node, by its agent. How the link opens, and how a lost agent's leftovers are swept, depends on the node.

    `name` is the node's in the plan. A lost link is reopened for the next step. `explain` asks a scheduler that may have ended
    the agent. `abandon` is called when a signal ends the waiting for an agent that has not ended its steps. The locks of all
    nodes of a run say its `marker`.
    """

    def __init__(
        self,
        name: str,
        open_link: Callable[[], Awaitable[AgentLink]],
        sweep: Sweep,
        explain: Explain | None = None,
        abandon: Callable[[], object] = lambda: None,
        marker: str = "",
    ) -> None:
        self.name = name
        self._abandon = abandon
        self._marker = marker
        self._explain = explain
        self._open_link = open_link
        self._sweep = sweep
        self._link: AgentLink | None = None
        self._opening = asyncio.Lock()
        self._attempt: asyncio.Task[AgentLink] | None = None  # to open the link
        self._has_given_up = False
        self._is_abandoned = False
        self._closing: AgentLink | None = None
        self._swept: dict[AgentLink, asyncio.Task[str]] = {}
        self._locks: tuple[str, ...] = ()

    async def run(self, request: StepRequest, emit: Emit) -> Outcome:
        """Execute a step: emit `Started`, then frames in order (the last record is `end`); return the outcome.

        Cancelling the task first ends the step in order: TERM, then KILL. A lost node is an outcome, not an exception.
        """
        step, link = request.step.id, None
        try:
            kept = self._link
            link = await self.open()
            link, reply, watched = await self._start(link, request, emit, is_kept=link is kept)
            if not reply.get("ok"):
                return self._conclude(
                    request, emit, Outcome("failed", visible_line(str(reply.get("error"))), "environment")
                )
            if reply.get("pid") is not None:
                identity = {key: reply.get(key) for key in ("pid", "pgid", "pid_start")}
                emit(Started(step=step, node=self.name, **identity))
            if (limit_s := request.step.timeout_s) is not None:
                limit_s *= 2 if request.step.prerun else 1  # each of the two commands has the time
                link.expect_end(step, limit_s + request.grace_s + END_S, "its start")
            try:
                # Shielded: when our task is cancelled, the step is ended in order, and only then has it an end.
                ended = await asyncio.shield(watched.ended)
            except asyncio.CancelledError:
                await self._end_cancelled(step, watched)
                raise
        except (LostError, Unreachable) as lost:
            if self._is_abandoned or (link is None and self._has_given_up):
                return self._conclude(request, emit, Outcome("cancelled", GIVEN_UP if link is None else str(lost)))
            return await self._lost(request, emit, link, str(lost))
        return await self._of_scheduler(_outcome(ended), link)

    async def _end_cancelled(self, step: str, watched: _Watched) -> None:
        self.give_up()
        try:
            await self.end(step, grace_s=INTERRUPT_GRACE_S)
            with contextlib.suppress(LostError):
                await watched.ended
        except asyncio.CancelledError:  # once more
            self.give_up(at_once=True)
            raise

    async def _of_scheduler(self, outcome: Outcome, link: AgentLink) -> Outcome:
        """Return the outcome of a step, in the scheduler's words where that ended it.

        It signals agent and step alike. A step may end well at the signal before its agent has noticed it.
        """
        if self._explain is None:
            return outcome
        is_due = await link.is_lost_within(SETTLE_S) if outcome.name == "passed" else "SIGTERM" in outcome.detail
        if not is_due:
            return outcome
        detail, why = await self._explain(outcome.detail or "its agent has ended")
        return outcome if why == "lost-node" else Outcome("failed", detail, why)

    async def end(
        self, step: str, *, grace_s: float | None = None, is_done: bool = False, late: str | None = None
    ) -> None:
        """End a running step. A grace of 0 kills at once. No-op when it is not running.

        Its outcome will be cancelled, or passed when it `is_done` (as a server is with its client), or failed for a timeout
        when `late` names the deadline that it missed.
        """
        cause = {"detail": "cancelled"} if late is None else {"why": "timeout", "detail": late}
        fields = {"step": step, "grace_s": grace_s, "is_done": is_done, **cause}
        if self._link is not None:
            self._link.expect_end(step, END_S + (GRACE_S if grace_s is None else grace_s), "the request to end it")
        await self._request_if_alive("end", fields, within_s=LEAVE_S if grace_s == 0 else ANSWER_S)

    async def discard(self, step: str) -> str:
        """Remove the folder of a step that is over. Return why a part is left, empty where nothing is."""
        reply = await self._request_if_alive("discard", {"step": step}, within_s=REMOVAL_S)
        return visible_line(str((reply or {}).get("left") or (reply or {}).get("error") or ""))

    async def release(self, group: str) -> float | None:
        """Release the steps of a group from the start barrier, and those that reach it later.

        Return the time on the node's clock, in unix seconds. None when the node cannot be asked.
        """
        reply = await self._request_if_alive("release", {"group": group})
        return float(reply["t"]) if reply is not None and reply.get("ok") else None

    async def collect(self, step: str) -> None:
        """Let the agent look at the processes of a running step. Return when it has, or cannot."""
        await self._request_if_alive("collect", {"step": step}, within_s=COLLECT_S)

    async def collected(self, step: str) -> None:
        """Let a hung step end: nobody of its job is still looked at."""
        await self._request_if_alive("collected", {"step": step})

    async def stop(self, step: str) -> None:
        """Tell a step that its load is no longer needed. No-op when it is not running."""
        await self._request_if_alive("stop", {"step": step, "reason": "all of the group have their observations"})

    async def _request_if_alive(
        self, verb: str, fields: Mapping[str, object], *, within_s: float | None = ANSWER_S
    ) -> Mapping[str, Any] | None:
        """Return the reply of a living agent. For a lost agent None, which run() reports."""
        if self._link is None or self._link.lost is not None:
            return None
        with contextlib.suppress(LostError):
            return await self._link.request(verb, fields, within_s=within_s)
        return None

    async def port(self) -> int | None:
        """Return a port that is free on the node now. None when the node cannot be asked."""
        try:
            return int((await (await self.open()).request("port"))["port"])
        except (LostError, Unreachable, KeyError):
            return None

    async def lock(self, names: Sequence[str], *, wait: bool, emit: Emit) -> tuple[Holder, ...]:
        """Hold the devices' locks until `close`. Without `wait` return the current holders instead.

        Raises Unreachable when the node cannot be asked.
        """
        if not names:
            return ()

        def waiting(holders: Sequence[Mapping[str, object]]) -> None:
            emit(Waiting(node=self.name, holders=tuple(map(read_holder, holders))))

        link = await self.open()
        fields = {"devices": list(names), "wait": False}
        try:
            reply = await link.request("lock", fields)
            for holder in map(read_holder, reply.get("holders", ())):
                # Its lock would be waited for until the end of this run.
                if self._marker and holder.run.partition("@")[0] == self._marker:
                    other = holder.run.partition("@")[2] or "this machine"
                    what = f"device {holder.name} is held for {other} by this run: both nodes are the same machine"
                    raise Unreachable(f"{self.name}: {what}. Name each machine once in the system file")
            if wait and not reply.get("ok"):
                reply = await link.request("lock", {**fields, "wait": True}, within_s=None, waiting=waiting)
        except LostError as lost:
            raise Unreachable(f"{self.name}: {lost}") from None
        if reply.get("ok"):
            self._locks = tuple(names)
            return ()
        if not reply.get("holders"):
            raise Unreachable(f"{self.name}: device locks: {reply.get('error')}")
        return tuple(read_holder(holder) for holder in reply["holders"])

    async def cpu_s(self) -> float:
        """Return the CPU seconds that the agent has used. 0 when it cannot tell, was lost or is not there."""
        reply = await self._request_if_alive("usage", {})  # to learn this, no machine is waited for
        return float((reply or {}).get("cpu_s") or 0.0)

    def give_up(self, *, at_once: bool = False) -> None:
        """Open no more links, and stop a link that is opening. All waiting ends soon, with `at_once` almost at once.

        Leftovers on the node are found by the markers of the run then.
        """
        self._has_given_up = True
        if self._attempt is not None:
            self._attempt.cancel()
        asyncio.get_running_loop().call_later(AT_ONCE_S if at_once else INTERRUPT_S, self._stop_waiting)

    def _stop_waiting(self) -> None:
        self._is_abandoned = True
        for wait in self._swept.values():
            wait.cancel()
        link = self._link or self._closing
        if link is not None and link.lost is None:
            link.lose("interrupted, and its agent did not end it. `milabench gc processes` ends leftover processes")
            self._abandon()

    async def close(self) -> None:
        """End the lease and wait until the agent has killed everything. Finish pending sweeps."""
        self._closing, self._link = self._link, None
        if self._closing is not None:
            await self._closing.close(0.0 if self._is_abandoned else LEAVE_S)
        if self._swept:
            await asyncio.wait(self._swept.values())

    async def __aenter__(self) -> AgentNode:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> AgentLink:
        """Return the link to a living agent, started now if there is none, so that many can start at once. Raises Unreachable."""
        async with self._opening:
            if self._link is None or self._link.lost is not None:
                self._link = None
                if self._has_given_up:
                    raise Unreachable(f"{self.name}: {GIVEN_UP}")
                # A task of its own, which an interrupt cancels, and not those who wait for it.
                self._attempt = asyncio.create_task(self._new_link())
                try:
                    await asyncio.wait({self._attempt})
                    if self._attempt.cancelled():
                        raise Unreachable(f"{self.name}: {GIVEN_UP}")
                    self._link = self._attempt.result()
                finally:
                    self._attempt.cancel()
                    self._attempt = None
            return self._link

    async def _new_link(self) -> AgentLink:
        """Return the link to a new agent, which has said hello and holds the locks. Raises Unreachable."""
        link = await self._open_link()
        try:
            async with asyncio.timeout_at(link.hello_by):
                await asyncio.shield(link.hello)
            if self._locks:  # the locks of the previous agent fell with it
                await link.request("lock", {"devices": list(self._locks), "wait": True})
        except LostError as lost:
            await link.close(GIVEN_UP_S)
            raise Unreachable(f"{self.name}: the agent did not start: {lost}") from None
        except TimeoutError:
            await link.close(GIVEN_UP_S)
            what = f"the agent did not start: no answer within {START_S:g} s of the first attempt to connect"
            raise Unreachable(f"{self.name}: {what}; {await self._sweep()}") from None
        except asyncio.CancelledError:
            await link.close(GIVEN_UP_S)
            raise
        return link

    async def _start(
        self, link: AgentLink, request: StepRequest, emit: Emit, *, is_kept: bool
    ) -> tuple[AgentLink, Mapping[str, Any], _Watched]:
        """Let an agent start a step. Return its link, its reply and the watched step. Raises LostError and Unreachable.

        A link that was kept may have been lost while nobody looked: the step, of which nothing came, is then started by
        a new agent, once the leftovers of the lost agent are gone.
        """
        has_begun = False

        def heard(event: Progress) -> None:
            nonlocal has_begun
            has_begun = True
            emit(event)

        fields = _start_fields(request)
        try:
            return link, *await link.start(request.step.id, heard, fields)
        except LostError:
            if not is_kept or has_begun or self._has_given_up:
                raise
        await self._sweep_after(link)
        link = await self.open()
        return link, *await link.start(request.step.id, emit, fields)

    async def _sweep_after(self, link: AgentLink) -> str:
        """Sweep the leftovers of a lost agent once, however many steps it had. Return the result on a line."""
        if link not in self._swept:
            hello = link.hello.result() if link.hello.done() and link.hello.exception() is None else {}
            self._swept[link] = asyncio.create_task(self._sweep(oom_kills=hello.get("oom_kills")))
        sweep = self._swept[link]
        await asyncio.wait({sweep})  # which does not cancel it: other steps wait for it too
        return "leftover processes were not looked for: interrupted" if sweep.cancelled() else sweep.result()

    async def _lost(self, request: StepRequest, emit: Emit, link: AgentLink | None, how: str) -> Outcome:
        """Return the outcome after the agent was lost: sweep its leftovers and write the last record in its place."""
        how, why = await (self._explain or _no_more_is_known)(how)
        # Where a scheduler has taken the node away, it ends what runs there, and lets nobody look.
        swept = await self._sweep_after(link) if link is not None and why == "lost-node" else ""
        detail = f"{how}; {swept}" if swept else how
        return self._conclude(request, emit, Outcome("failed", detail, why))

    def _conclude(self, request: StepRequest, emit: Emit, outcome: Outcome) -> Outcome:
        """Return the outcome of a step that no agent ends, and emit its last record."""
        now = round(time.time(), 6)
        data = {
            "command": list(request.step.argv),
            "time": now,
            "return_code": None,
            "outcome": outcome.name,
            "why": outcome.why,
            "detail": outcome.detail,
        }
        whole = {"event": "end", "data": mask_data(data), "pipe": None, "t": now}
        record = json.dumps(whole, separators=(",", ":"))
        emit(Frame(kind="rec", step=request.step.id, payload=record.encode() + b"\n"))
        return outcome


def local_node(
    run_id: str,
    *,
    name: str = "local",
    grace_s: float = GRACE_S,
    locks: Path | None = None,
    started: LocalAgent | None = None,
) -> AgentNode:
    """Return the local machine as a node. `run_id` marks every process of the run, so it must be unique.

    `started` is its agent, where that was started ahead.
    """

    async def open_link() -> AgentLink:
        nonlocal started
        agent, started = started or LocalAgent(name, run_id, grace_s=grace_s, locks=locks), None
        process = agent.take_over()
        reader, writer = await _streams_of(process)

        async def describe_end() -> str:
            code = await _exit_code(process)
            return "the agent " + (
                f"ended with exit code {code}" if code >= 0 else f"was ended by {signal_name(-code)}"
            )

        return AgentLink(reader, writer, describe_end)

    def abandon() -> None:
        # Nobody waits for it, and it goes on when we are gone.
        null = subprocess.DEVNULL
        subprocess.Popen(
            agent_command("sweep", run_id, "--grace", "0"), stdin=null, stdout=null, stderr=null, start_new_session=True
        )

    async def sweep_lost(*, oom_kills: int | None = None) -> str:
        try:
            return await kill_marked(query_agent, run_id, grace_s=grace_s, oom_kills=oom_kills)
        except Unreachable as error:
            return f"leftover processes could not be killed ({error})"

    return AgentNode(name, open_link, sweep_lost, abandon=abandon, marker=run_id)


async def _streams_of(process: subprocess.Popen[bytes]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return the output and the input of a process as streams of this loop, which closes them."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=LINE_BYTES)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), process.stdout)
    writing, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), process.stdin
    )
    return reader, asyncio.StreamWriter(writing, protocol, None, loop)


async def _exit_code(process: subprocess.Popen[bytes]) -> int:
    """Return the exit code of a process that is ending. A loop that is closed before that waits for nothing."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[int] = loop.create_future()

    def wait() -> None:
        code = process.wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(lambda: None if ended.done() else ended.set_result(code))

    Thread(target=wait, daemon=True).start()
    return await ended


async def kill_marked(ask: Ask, *markers: str, grace_s: float = GRACE_S, oom_kills: int | None = None) -> str:
    """Kill a machine's processes that carry these markers, and return the result on a line. Raises Unreachable.

    `oom_kills` is how often the kernel had killed for lack of memory when the agent that was lost began: it cannot tell.
    """
    from milabench.execute.messages import SWEPT

    answer = await ask(SWEPT, "sweep", *markers, "--grace", str(grace_s), within_s=ANSWER_S + grace_s)
    killed = (answer.get("oom_kills") or 0) - oom_kills if oom_kills is not None else 0
    times = f"{killed} time{'s' * (killed > 1)}"
    memory = f"meanwhile the kernel killed there {times} for lack of memory, " if killed > 0 else ""
    if answer["left"]:
        running = ", ".join(f"{pid} ({command})" for pid, command in leftovers(answer))
        return f"{memory}its processes still running: {running}"
    return memory + (f"{len(answer['ended'])} of its processes killed" if answer["ended"] else NOTHING_LEFT)


def leftovers(answer: Left | Swept) -> list[tuple[int, str]]:
    """Return pid and command of each process that an agent lists as left."""
    return [(process["pid"], visible_line(process["command"])) for process in answer["left"]]


async def list_marked(ask: Ask, *markers: str) -> list[tuple[int, str]]:
    """Return pid and command of a machine's processes that carry these markers. Raises Unreachable."""
    from milabench.execute.messages import LEFT

    return leftovers(await ask(LEFT, "left", *markers))


async def query_agent(declared: Declared[M], *words: str, within_s: float = ANSWER_S) -> M:
    """Return the answer of an agent that is started for a single question. Raises Unreachable."""
    from milabench.execute.messages import InvalidMessage

    process = await asyncio.create_subprocess_exec(
        *agent_command(*words), stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, start_new_session=True
    )
    try:
        async with asyncio.timeout(within_s):
            output, _ = await process.communicate()
        return declared.read(output)
    except TimeoutError:
        process.kill()
        raise Unreachable(f"local: no answer to '{words[0]}' within {within_s:g} s") from None
    except InvalidMessage as error:
        raise Unreachable(f"local: exit code {process.returncode}: {error}") from None


# A command that is timed is left alone for so long: starting a monitor uses a tenth of a second of another processor.
MONITOR_AFTER_S = 1.0
# What an agent is told of a step as it stands; the names are those of the protocol (docs/reference/protocol.md).
_OF_STEP = ("argv", "env", "secret_env", "config", "timeout_s", "max_silence_s", "needs_data", "end_argv", "prerun")
_OF_REQUEST = ("grace_s", "group_size", "is_spread", "values", "makedirs", "marks", "step_dir")


def _start_fields(request: StepRequest) -> dict[str, object]:
    step, config = request.step, request.step.config
    server = config.get("server")
    measure = measured if isinstance(measured := config.get("measure"), Mapping) else {}
    return {
        **{name: getattr(step, name) for name in _OF_STEP},
        **{name: getattr(request, name) for name in _OF_REQUEST},
        # To be masked in all that the step says; what nobody can tell it, its machine need not learn.
        "secrets": sorted({*secrets_of(step), *request.secrets}),
        "displaces": displaced_by(step.env),
        "collector": module_on_nodes("collector"),
        "has_peers": bool(step.job),
        "cwd": step.cwd or None,
        "group": step.group or step.id,
        "ready": server["ready"] if config.get("role") == "server" and isinstance(server, Mapping) else {},
        "barrier_s": measure.get("barrier_timeout_s") if measure.get("barrier") else None,
        "monitor": {
            "argv": step.monitor,
            "after_s": MONITOR_AFTER_S if config.get("timed") else 0.0,
            "about": {
                "devices": step.devices,
                "uuids": step.env.get("MILABENCH_DEVICES_HELD", "").split(","),
                # Only the client of the engine, or of Slurm, is a child of ours.
                "container": bool(step.end_argv) or SRUN_LINE in step.argv,
            },
        },
    }


def secrets_of(step: Step) -> list[str]:
    """Return the known secrets that a step is given."""
    return secrets_within(step.argv, step.env, step.config)


def _outcome(ended: StepEnd) -> Outcome:
    detail = visible_line(ended["detail"] or "")
    match ended["outcome"]:
        case "passed":
            return Outcome("passed", doubts=tuple(map(visible_line, ended["reasons"])))
        case "cancelled":
            return Outcome("cancelled", detail)
        case _:
            return Outcome("failed", detail, ended["why"] or "exit")


def read_holder(entry: Mapping[str, object]) -> Holder:
    """Return the holder of a device, from its lock file."""
    # The lock file may be of another version, torn, or of anybody.
    words = {name: visible_line(str(entry.get(name) or ""))[:MOST_SHOWN] for name in ("name", "run", "host", "user")}
    pid, since = entry.get("pid"), entry.get("since")
    return Holder(
        **words,
        pid=pid if isinstance(pid, int) else 0,
        since=float(since) if isinstance(since, (int, float)) and 0 < since < LATEST_S else 0.0,
    )
