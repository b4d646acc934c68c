"""Carries out a plan: group after group, journal and records as it goes, an outcome for every step however it ends."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import assert_never

from orchestrator.errors import Unreachable
from orchestrator.events.model import Why
from orchestrator.events.rundir import attempt_stem
from orchestrator.execute.api import (
    Cancelled,
    Emit,
    Ended,
    Executor,
    Failed,
    Frame,
    Holder,
    Missing,
    Notice,
    Order,
    Outcome,
    Passed,
    Progress,
    Recorder,
    Skipped,
    Started,
)
from orchestrator.plan.model import Plan, Step

INTERRUPTED = "the run was interrupted"
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What carrying out a plan depends on beside the plan.

    `env` is set for every step, `secret_env` names its secrets; `values` replace `@name` (`@run`: the run directory).
    `makedirs` are folders that a step needs. `locks` are the names of the devices' locks, by node; without `wait` a
    device that somebody holds is an error. `preamble` gives the records, whole lines, with which a step's file begins.

    `made` counts the attempts at steps that were made before, `passed` names steps that passed then. A group in which a
    step fails is tried again up to `max_retries` times, all of it: its steps are measured side by side. After
    `max_failures` failed steps nothing more is started.
    """

    env: Mapping[str, str] = field(default_factory=dict)
    secret_env: tuple[str, ...] = ()
    values: Mapping[str, str] = field(default_factory=dict)
    makedirs: Callable[[Step], tuple[str, ...]] | None = None
    preamble: Callable[[Step], bytes] | None = None
    locks: Mapping[str, Sequence[str]] = field(default_factory=dict)
    wait: bool = False
    grace_s: float = 5.0
    made: Mapping[str, int] = field(default_factory=dict)
    passed: frozenset[str] = frozenset()
    max_retries: int = 0
    max_failures: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Overhead:
    """CPU seconds that the harness used while steps ran, and how long they ran."""

    control_cpu_s: float = 0.0
    agent_cpu_s: float = 0.0
    wall_s: float = 0.0

    @property
    def share(self) -> float:
        """Of one core; 0.005 is half a percent."""
        return (self.control_cpu_s + self.agent_cpu_s) / self.wall_s if self.wall_s > 0 else 0.0

    def to_json(self) -> dict[str, float]:
        """For the journal and the summary."""
        return {
            "control_cpu_s": round(self.control_cpu_s, 6),
            "agent_cpu_s": round(self.agent_cpu_s, 6),
            "wall_s": round(self.wall_s, 6),
            "share": round(self.share, 6),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A plan that was carried out: an outcome for each of its steps."""

    outcomes: Mapping[str, Outcome]
    interrupted: bool
    overhead: Overhead

    @property
    def all_passed(self) -> bool:
        """Whether nothing failed or was cancelled; a skipped step is no failure of its own."""
        return not self.interrupted and all(isinstance(o, Passed | Skipped) for o in self.outcomes.values())


async def execute(
    plan: Plan,
    executors: Mapping[str, Executor],
    recorder: Recorder,
    progress: Callable[[Progress], object],
    settings: Settings | None = None,
) -> Done:
    """Carries out a plan and returns the outcome of every step.

    `progress` must not raise (events.fanout.Fanout does not). The first SIGINT, SIGTERM or SIGHUP ends the steps in
    order and cancels the rest, the second kills at once; either way it returns. Raises Unreachable when a device is
    held by somebody else or a node cannot be asked for its locks; nothing has been started then.
    """
    engine = Engine(plan, executors, recorder, progress, settings or Settings())
    with _interrupting(engine.interrupt):
        return await engine.carry_out()


class Engine:
    """One carrying out of a plan; `interrupt` may be called at any time from the loop's thread."""

    def __init__(
        self,
        plan: Plan,
        executors: Mapping[str, Executor],
        recorder: Recorder,
        progress: Callable[[Progress], object],
        settings: Settings,
    ) -> None:
        self._plan = plan
        self._executors = executors
        self._recorder = recorder
        self._progress = progress
        self._settings = settings
        self._outcomes: dict[str, Outcome] = {name: Passed(step=name) for name in settings.passed}
        self._attempts: dict[str, int] = {}
        self._running: dict[str, Executor] = {}
        self._unrecorded: dict[str, OSError] = {}
        self._has_complained = False
        self._interrupts = 0
        self._locking: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()

    def interrupt(self) -> None:
        """First: ends what runs, in order, and starts nothing more. Again: kills at once."""
        self._interrupts += 1
        if self._interrupts == 1:
            self._progress(Notice(text="interrupted: ending the running steps; interrupt again to kill them"))
        if self._locking is not None:
            self._locking.cancel()
        for step in self._running:
            self._end(step, grace_s=None if self._interrupts == 1 else 0.0)

    async def carry_out(self) -> Done:
        """Everything, in the plan's order."""
        await self._lock_devices()
        control, agents, wall = time.process_time(), await self._agents_cpu_s(), 0.0
        for group in self._plan.groups():
            start = time.monotonic()
            if await self._try_group(group):
                wall += time.monotonic() - start
        while self._ending:
            await asyncio.wait(set(self._ending))
        overhead = Overhead(
            control_cpu_s=time.process_time() - control,
            agent_cpu_s=max(0.0, await self._agents_cpu_s() - agents),
            wall_s=wall,
        )
        outcomes = {step.id: self._outcomes[step.id] for step in self._plan.steps}
        done = Done(outcomes=outcomes, interrupted=self._interrupts > 0, overhead=overhead)
        verdict = "interrupted" if done.interrupted else "passed" if done.all_passed else "failed"
        self._journal({"run": "ended", "verdict": verdict, "overhead": overhead.to_json()})
        return done

    async def _lock_devices(self) -> None:
        self._locking = asyncio.create_task(self._lock_all())
        try:
            await asyncio.wait({self._locking})
            if not self._locking.cancelled():
                self._locking.result()
        finally:
            self._locking.cancel()
            self._locking = None

    async def _lock_all(self) -> None:
        for name in sorted(self._settings.locks):
            holders = await self._executors[name].lock(
                self._settings.locks[name], wait=self._settings.wait, emit=self._progress
            )
            if holders:
                raise Unreachable(f"{name}: {held_by(holders[0])}; wait for its end with --wait")

    async def _agents_cpu_s(self) -> float:
        return sum([await executor.cpu_s() for executor in self._executors.values()])

    async def _try_group(self, group: Sequence[Step]) -> bool:
        """Runs a group, again while one of its steps fails and may be tried again; whether any was started."""
        was_started = False
        for tries_left in range(self._settings.max_retries, -1, -1):
            for step in group:
                self._attempts[step.id] = self._attempts.get(step.id, self._settings.made.get(step.id, 0)) + 1
            ended: dict[str, Outcome] = {}
            was_started = await self._run_group(group, ended) or was_started
            failed = [step.id for step in group if isinstance(ended[step.id], Failed)]
            if not failed or not tries_left or self._interrupts or any(step in self._unrecorded for step in failed):
                break
            self._progress(Notice(text=f"{', '.join(failed)}: trying again"))
        return was_started

    async def _run_group(self, group: Sequence[Step], ended: dict[str, Outcome]) -> bool:
        """Runs the steps of a group together; whether any was started."""
        startable = []
        for step in group:
            outcome = self._before_start(step)
            if outcome is None:
                startable.append(step)
            else:
                self._conclude(step, outcome, ended)
        on_node: dict[str, int] = {}
        for step in startable:
            on_node[step.node] = on_node.get(step.node, 0) + 1
        tasks = [asyncio.create_task(self._run_step(step, on_node[step.node], ended)) for step in startable]
        if tasks:
            try:
                await asyncio.gather(*tasks)
            except BaseException:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
                raise
        return bool(tasks)

    def _before_start(self, step: Step) -> Outcome | None:
        """The outcome of a step that will not be started."""
        attempt, limit = self._attempts[step.id], self._settings.max_failures
        if self._interrupts:
            return Cancelled(step=step.id, detail=INTERRUPTED, attempt=attempt)
        if limit is not None and attempt == self._settings.made.get(step.id, 0) + 1 and self._failures() >= limit:
            return Cancelled(step=step.id, detail=f"not started after {limit} failures", attempt=attempt)
        for name in step.after:
            before = self._outcomes.get(name)
            if not isinstance(before, Passed):
                return Skipped(step=step.id, reason=f"{name} {said_of(before)}", attempt=attempt)
        if step.node not in self._executors:
            return Failed(step=step.id, why="lost-node", detail=f"no node is called {step.node}", attempt=attempt)
        return None

    def _failures(self) -> int:
        return sum(isinstance(outcome, Failed) for outcome in self._outcomes.values())

    async def _run_step(self, step: Step, group_size: int, ended: dict[str, Outcome]) -> None:
        settings = self._settings
        attempt = self._attempts[step.id]
        order = Order(
            step=step,
            attempt=attempt,
            group_size=group_size,
            env=settings.env,
            secret_env=settings.secret_env,
            values=settings.values,
            makedirs=settings.makedirs(step) if settings.makedirs else (),
            grace_s=settings.grace_s,
        )
        if settings.preamble is not None:
            self._record(step, Frame(kind="rec", step=step.id, payload=settings.preamble(step)))
            if step.id in self._unrecorded:
                self._conclude(step, Cancelled(step=step.id, detail="cannot record", attempt=attempt), ended)
                return
        executor = self._running[step.id] = self._executors[step.node]
        try:
            outcome = await executor.run(order, self._emit_of(step))
        finally:
            self._running.pop(step.id, None)
        try:
            self._recorder.finish(self._stem(step))
        except OSError as error:
            self._unrecordable(step, error)
        self._conclude(step, outcome, ended)

    def _emit_of(self, step: Step) -> Emit:
        def emit(thing: Progress) -> None:
            if isinstance(thing, Frame):
                self._record(step, thing)
            elif isinstance(thing, Started):
                self._journal_step(step, state="started", pid=thing.pid, pgid=thing.pgid, pid_start=thing.pid_start)
                if self._interrupts or step.id in self._unrecorded:
                    self._end(step.id)
            self._progress(thing)

        return emit

    def _record(self, step: Step, frame: Frame) -> None:
        if step.id in self._unrecorded and frame.kind != "rec":
            return  # it is being ended; what it still says at full speed must not delay that
        append = self._recorder.append_lines if frame.kind == "line" else self._recorder.append
        try:
            append(self._stem(step), frame.payload)
        except OSError as error:
            self._unrecordable(step, error)

    def _unrecordable(self, step: Step, error: OSError) -> None:
        """A step whose records cannot be kept has no use: it is ended and fails. It is said once for the whole run."""
        if step.id not in self._unrecorded:
            self._unrecorded[step.id] = error
            self._end(step.id)
        self._complain(error)

    def _complain(self, error: OSError) -> None:
        if not self._has_complained:
            self._has_complained = True
            self._progress(Notice(text=f"cannot record: {_reason(error)}; the steps concerned fail"))

    def _stem(self, step: Step) -> str:
        return attempt_stem(step.stem or step.id, self._attempts[step.id])

    def _conclude(self, step: Step, outcome: Outcome, ended: dict[str, Outcome]) -> None:
        """Notes the end of an attempt; a step that passed once has passed, whatever became of another attempt."""
        outcome = self._as_recorded(step, outcome)
        entry: dict[str, object] = {"outcome": name_of(outcome)}
        match outcome:
            case Failed():
                entry |= {"why": outcome.why, "detail": outcome.detail}
            case Skipped():
                entry |= {"detail": outcome.reason}
            case Cancelled():
                entry |= {"detail": outcome.detail}
            case Passed() | Missing():
                pass
            case _:
                assert_never(outcome)
        self._journal_step(step, state="ended", **entry)
        outcome = self._as_recorded(step, outcome)  # the journal may just have been what could not be written
        ended[step.id] = outcome
        if not isinstance(self._outcomes.get(step.id), Passed):
            self._outcomes[step.id] = outcome
        self._progress(Ended(step=step.id, outcome=outcome))

    def _as_recorded(self, step: Step, outcome: Outcome) -> Outcome:
        """The outcome, failed if it was not recorded: what nobody can read afterwards has not been measured."""
        error = self._unrecorded.get(step.id)
        if error is None or isinstance(outcome, Skipped | Missing):
            return outcome
        why: Why = "no-space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "environment"
        return Failed(step=step.id, why=why, detail=f"cannot record: {_reason(error)}", attempt=outcome.attempt)

    def _journal_step(self, step: Step, **entry: object) -> None:
        known = {key: value for key, value in entry.items() if value is not None}
        whole = {"step": step.id, "attempt": self._attempts[step.id], "node": step.node, **known}
        try:
            self._recorder.journal(whole)
        except OSError as error:
            self._unrecordable(step, error)

    def _journal(self, entry: Mapping[str, object]) -> None:
        try:
            self._recorder.journal(entry)
        except OSError as error:
            self._complain(error)

    def _end(self, step: str, grace_s: float | None = None) -> None:
        executor = self._running.get(step)
        if executor is not None:
            task = asyncio.create_task(executor.end(step, grace_s=grace_s))
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)


def name_of(outcome: Outcome) -> str:
    """The outcome in the vocabulary of docs/protocol.md, section 5."""
    match outcome:
        case Passed():
            return "passed"
        case Failed():
            return "failed"
        case Skipped():
            return "skipped"
        case Cancelled():
            return "cancelled"
        case Missing():
            return "missing"
        case _:
            assert_never(outcome)


def said_of(outcome: Outcome | None) -> str:
    """What became of a step that another one waited for."""
    match outcome:
        case None | Missing():
            return "was not run"
        case Passed():
            return "passed"
        case Failed():
            return f"failed ({outcome.why}: {outcome.detail})"
        case Skipped():
            return f"was skipped ({outcome.reason})"
        case Cancelled():
            return "was cancelled"
        case _:
            assert_never(outcome)


def held_by(holder: Holder) -> str:
    """Who holds a device, for a person."""
    since = datetime.fromtimestamp(holder.since).strftime(" since %Y-%m-%d %H:%M:%S") if holder.since else ""
    whom = f"run {holder.run} (pid {holder.pid}" if holder.run else "somebody ("
    place = f"{holder.user}@{holder.host}" if holder.host else "unknown"
    return f"device {holder.name} is held by {whom}{', ' if holder.run else ''}{place}){since}"


def _reason(error: OSError) -> str:
    text = error.strerror or str(error)
    return f"{error.filename}: {text}" if error.filename else text


@contextlib.contextmanager
def _interrupting(interrupt: Callable[[], None]) -> Iterator[None]:
    """Signals call `interrupt` meanwhile; where they cannot be caught (not the main thread) they keep their meaning."""
    loop = asyncio.get_running_loop()
    caught = []
    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number in SIGNALS:
        if before[number] is signal.SIG_IGN:
            continue  # nohup, or a background job of a script: it was said that this should not matter
        with contextlib.suppress(ValueError, RuntimeError):
            loop.add_signal_handler(number, interrupt)
            caught.append(number)
    try:
        yield
    finally:
        for number in caught:
            loop.remove_signal_handler(number)
            if (handler := before[number]) is not None:
                signal.signal(number, handler)
