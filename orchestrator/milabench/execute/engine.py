"""Execution of a plan: group after group, journalled and recorded as it proceeds, with an outcome for every step."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, TypeVar

from milabench.errors import Unreachable
from milabench.events.model import Why
from milabench.events.run_files import attempt_stem
from milabench.events.run_writer import RunWriter, texts_of
from milabench.execute.agent.protocol import format_oserror
from milabench.execute.agent_client import INTERRUPT_GRACE_S, AgentNode, secrets_of
from milabench.execute.api import (
    Emit,
    Ended,
    EvidenceCollected,
    Frame,
    Notice,
    Outcome,
    Progress,
    Started,
    StepNotice,
    StepRequest,
)
from milabench.execute.hung_jobs import HungJobs
from milabench.execute.interrupts import InterruptRequested, interrupts
from milabench.execute.retry_policy import RetryPolicy
from milabench.execute.start_barrier import GroupBarrier, group_barrier
from milabench.plan.container import names_in
from milabench.plan.model import RECORDS_MIB, Plan, Step
from milabench.plan.step_dir import keeps_step_dir, uses_step_dir, with_step_dir
from milabench.shown import counted

T = TypeVar("T")

Nodes = Mapping[str, AgentNode]
"""The nodes of a plan, by name."""
INTERRUPTED = "the run was interrupted"
OWN_ENDS = ("exit", "signal", "no-data")  # why a step failed, where a signal to it may be the reason
LAST_LINES = 5
"""How many lines of a step are shown where they cannot be recorded."""
_KEPT = 2000  # characters of these lines
_LOOKED_AT = 1 << 16  # bytes of a frame in which they are looked for


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionSettings:
    """Settings of an execution that are not part of the plan.

    `values` replace `@name` (`@run`: the run directory). `makedirs` are folders that a step needs. `preamble` returns the
    records, as whole lines, with which a step's file begins.

    `locks` are the names of the devices' locks, and `step_dirs` the folder that the folders of repeats are made in, by node.

    `extend_plan` is called when all steps have ended and none was cancelled, again after each extension, until it returns
    None. It may raise InterruptRequested for a signal. `missing_data` returns the records that an attempt at a step
    (by number) lacks although it passed. Empty when nothing is missing. An interrupt cancels it.

    `settle_s`: so long after the end of a step an interrupt still cancels it. For a job of a scheduler, which asks the
    steps to end at the same moment as us: a step that then ends well has not passed.
    """

    values: Mapping[str, str] = field(default_factory=dict)
    makedirs: Callable[[Step], tuple[str, ...]] = lambda _: ()
    preamble: Callable[[Step], bytes] = lambda _: b""
    locks: Mapping[str, Sequence[str]] = field(default_factory=dict)
    step_dirs: Mapping[str, str] = field(default_factory=dict)
    grace_s: float = 5.0
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    extend_plan: Callable[[], Plan | None] | None = None
    missing_data: Callable[[Step, int], Coroutine[Any, Any, str]] | None = None
    settle_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Overhead:
    """CPU seconds that the harness used while steps ran, and how long they ran."""

    control_cpu_s: float = 0.0
    agent_cpu_s: float = 0.0
    wall_s: float = 0.0

    @property
    def share(self) -> float:
        """Share of a core. 0.005 is half a percent."""
        return (self.control_cpu_s + self.agent_cpu_s) / self.wall_s if self.wall_s > 0 else 0.0

    def to_json(self) -> dict[str, float]:
        """Return the entry for the journal and the summary."""
        return {name: round(value, 6) for name, value in {**asdict(self), "share": self.share}.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionResult:
    """The result of an execution: an outcome for each step.

    `interrupted`: it received a signal. `is_cut`: it did so before all was done.
    """

    outcomes: Mapping[str, Outcome]
    interrupted: bool
    is_cut: bool
    overhead: Overhead

    @property
    def all_passed(self) -> bool:
        """Whether nothing failed or was cancelled. A skipped step does not count as a failure."""
        return not self.is_cut and all(o.name in ("passed", "skipped") for o in self.outcomes.values())


async def execute(
    plan: Plan, executors: Nodes, recorder: RunWriter, progress: Emit, settings: ExecutionSettings | None = None
) -> ExecutionResult:
    """Execute a plan and return the outcome of every step.

    `progress` must not raise (events.fanout.Fanout does not). The first SIGINT, SIGTERM or SIGHUP ends the steps in
    order and cancels the rest, the second kills at once. Either way it returns. Raises Unreachable when a device is
    held by somebody else or a node cannot be asked for its locks. Nothing has been started then.
    """
    engine = Engine(plan, executors, recorder, progress, settings or ExecutionSettings())
    loop = asyncio.get_running_loop()
    with interrupts().routed_to(lambda: loop.call_soon_threadsafe(engine.interrupt)):
        return await engine.run()


class Engine:
    """An execution of a plan. `interrupt` may be called at any time from the loop's thread."""

    def __init__(
        self, plan: Plan, executors: Nodes, recorder: RunWriter, progress: Emit, settings: ExecutionSettings
    ) -> None:
        self._plan = plan
        self._executors = executors
        self._recorder = recorder
        self._progress = progress
        self._settings = settings
        self._retry = settings.retry
        self._outcomes: dict[str, Outcome] = dict.fromkeys(settings.retry.passed, Outcome("passed"))
        self._attempts: dict[str, int] = {}
        self._ended: dict[str, Outcome] = {}  # of the group that runs
        self._running: dict[str, AgentNode] = {}
        self._hung = HungJobs(plan.steps, self._running)
        self._unrecorded: dict[str, OSError] = {}
        self._last_text: dict[str, str] = {}  # the end of the output that was not recorded
        self._recorded: dict[str, int] = {}
        self._has_complained = False
        self._interrupts = 0
        self._is_complete = True
        self._interruptible: set[asyncio.Task[Any]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._servers: dict[str, asyncio.Future[bool]] = {}
        self._to_end: set[str] = set()
        self._barrier: GroupBarrier | None = None
        self._barrier_timer: asyncio.TimerHandle | None = None

    def interrupt(self) -> None:
        """End the running steps in order and start nothing more. On a second call kill them at once."""
        self._interrupts += 1
        if self._interrupts == 1:
            self._progress(Notice(text="interrupted: ending the running steps. Interrupt again to kill them"))
        for task in self._interruptible:
            task.cancel()
        for executor in self._executors.values():
            executor.give_up(at_once=self._interrupts > 1)
        for step in self._running:
            grace_s = min(self._settings.grace_s, INTERRUPT_GRACE_S) if self._interrupts == 1 else 0.0
            self._end(step, grace_s=grace_s)

    async def run(self) -> ExecutionResult:
        """Execute everything, in the plan's order."""
        await self._unless_interrupted(self._lock_devices())
        control, agents, wall = time.process_time(), await self._agents_cpu_s(), 0.0
        plan: Plan | None = self._plan
        while plan is not None:
            for group in plan.groups():
                start = time.monotonic()
                if await self._try_group(group):
                    wall += time.monotonic() - start
            plan = self._extend_plan()
        while self._tasks:
            await asyncio.wait(set(self._tasks))  # a copy: each removes itself when it is done
        overhead = Overhead(
            control_cpu_s=time.process_time() - control,
            agent_cpu_s=max(0.0, await self._agents_cpu_s() - agents),
            wall_s=wall,
        )
        outcomes = {step.id: self._outcomes[step.id] for step in self._plan.steps}
        is_cut = self._interrupts > 0 and (self._has_cancelled() or not self._is_complete)
        result = ExecutionResult(outcomes=outcomes, interrupted=self._interrupts > 0, is_cut=is_cut, overhead=overhead)
        verdict = "interrupted" if is_cut else "passed" if result.all_passed else "failed"
        self._journal({"run": "ended", "verdict": verdict, "overhead": overhead.to_json()})
        return result

    def _extend_plan(self) -> Plan | None:
        """Return an extension of the plan, decided from the records so far. It becomes part of the plan."""
        if self._settings.extend_plan is None:
            return None
        if self._interrupts or self._has_cancelled():
            self._is_complete = False  # the extension was not decided
            return None
        try:
            plan = self._settings.extend_plan()
        except InterruptRequested:
            self._is_complete = False
            self.interrupt()
            return None
        if plan is not None:
            self._plan = replace(self._plan, steps=(*self._plan.steps, *plan.steps))
        return plan

    def _has_cancelled(self) -> bool:
        return any(outcome.name == "cancelled" for outcome in self._outcomes.values())

    async def _lock_devices(self) -> None:
        """Lock all devices. An interrupt ends the wait for them, and the run still concludes every step."""
        for name in sorted(self._settings.locks):
            holders = await self._executors[name].lock(
                self._settings.locks[name], wait=self._retry.wait, emit=self._progress
            )
            if holders:
                raise Unreachable(f"{name}: {holders[0]}. Use --wait to wait for it to end")

    async def _agents_cpu_s(self) -> float:
        return sum(await asyncio.gather(*(executor.cpu_s() for executor in self._executors.values())))

    async def _try_group(self, group: Sequence[Step]) -> bool:
        """Run a group, and again while a step fails and may be retried. Return whether any step was started."""
        was_started = False
        for tries_left in range(self._retry.max_retries, -1, -1):
            for step in group:
                self._attempts[step.id] = self._attempts.get(step.id, self._retry.attempts.get(step.id, 0)) + 1
            was_started = await self._run_group(group) or was_started
            failed = [step.id for step in group if self._ended[step.id].name == "failed"]
            if not failed or not tries_left or self._interrupts or any(step in self._unrecorded for step in failed):
                break
            self._progress(Notice(text=f"{', '.join(failed)}: trying again"))
        return was_started

    async def _run_group(self, group: Sequence[Step]) -> bool:
        """Run the steps of a group together. Return whether any was started."""
        self._ended.clear()
        self._to_end.clear()
        startable = []
        for step in group:
            if outcome := self._before_start(step):
                self._conclude(step, outcome)
            else:
                startable.append(step)
        on_node = Counter(step.node for step in startable)
        servers = [step.id for step in startable if role_of(step) == "server"]
        self._servers = {server: asyncio.get_running_loop().create_future() for server in servers}
        self._barrier = group_barrier(startable)
        ports = await self._ports_of(startable)
        secrets = _secrets_of_jobs(startable)
        tasks = [
            asyncio.create_task(
                self._run_step(step, on_node[step.node], ports.get(step.job, {}), secrets.get(step.job, ()))
            )
            for step in startable
        ]
        if tasks:
            try:
                await asyncio.gather(*tasks)
            except BaseException:
                # gather leaves the others running when one raises; each ends its step when it is cancelled.
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
                raise
            finally:
                self._cancel_barrier_timer()
        return bool(tasks)

    async def _ports_of(self, group: Sequence[Step]) -> dict[str, dict[str, str]]:
        """Return the value of `@port` for each job of a group that needs a port: a port free where its first step runs."""
        ports: dict[str, dict[str, str]] = {}
        for step in group:
            job = step.job
            if job and job not in ports and any(member.job == job and asks_for_port(member) for member in group):
                port = await self._executors[step.node].port()
                ports[job] = {} if port is None else {"port": str(port)}
        return ports

    def _before_start(self, step: Step) -> Outcome | None:
        """Return the outcome of a step that will not be started, else None."""
        limit = self._retry.max_failures
        if self._interrupts:
            return Outcome("cancelled", INTERRUPTED)
        # A retry goes on although the failure that it repeats was the last one allowed.
        is_retry = self._attempts[step.id] > self._retry.attempts.get(step.id, 0) + 1
        failures = sum(outcome.name == "failed" for outcome in self._outcomes.values())
        if limit is not None and failures >= limit and not is_retry:
            return Outcome("cancelled", f"not started after {counted(limit, 'failure')}")
        for name in step.after:
            before = self._outcomes.get(name)
            if before is None or before.name != "passed":
                return Outcome("skipped", f"{name} {dependency_outcome_text(before)}")
        if step.node not in self._executors:
            return Outcome("failed", f"unknown node {step.node}", "lost-node")
        return None

    async def _run_step(self, step: Step, group_size: int, values: Mapping[str, str], secrets: tuple[str, ...]) -> None:
        serving = self._servers.get(server := server_of(step))
        if server and not (serving is not None and await asyncio.shield(serving)):
            self._conclude(step, self._unserved(step))
            return
        try:
            await self._attempt(step, group_size, values, secrets)
        finally:
            self._notify_client(step, is_serving=False)

    async def _attempt(self, step: Step, group_size: int, values: Mapping[str, str], secrets: tuple[str, ...]) -> None:
        settings = self._settings
        # Of each attempt its own: what another one left must not be found.
        step_dir = f"{settings.step_dirs[step.node]}/{self._stem(step)}" if uses_step_dir(step) else ""
        request = StepRequest(
            step=with_step_dir(step, step_dir) if step_dir else step,
            group_size=group_size,
            is_spread=self._barrier is not None and step.id in self._barrier.nodes,
            values={**settings.values, **names_in(step, self._attempts[step.id]), **values},
            makedirs=settings.makedirs(step),
            marks=(marker,) if (marker := self._retry.markers.get(step.id)) else (),
            step_dir=step_dir,
            secrets=secrets,
            grace_s=settings.grace_s,
        )
        if preamble := settings.preamble(step):
            self._record(step, Frame(kind="rec", step=step.id, payload=preamble))
            if step.id in self._unrecorded:
                self._conclude(step, Outcome("cancelled", "cannot record"))
                return
        executor = self._running[step.id] = self._executors[step.node]
        self._hung.begin(step)
        try:
            outcome = await executor.run(request, self._emit_of(step))
        finally:
            # In this order: the barrier ends and stops what is running, and this step is gone.
            self._running.pop(step.id, None)
            self._update_barrier(step, "gone")
        with self._recording(step):
            self._recorder.finish(self._stem(step))
        if not self._interrupts:
            outcome = await self._hung.explained(step, outcome)
        if role_of(step) == "client":
            self._end(server_of(step), is_done=True)
        elif outcome.name != "passed":
            self._end_rest_of_job(step)
        outcome = self._with_log(step, await self._checked(step, await self._settled(outcome)))
        if step_dir and not keeps_step_dir(step.keep_step_dir, outcome.name):
            # Before the next step starts: it must not be measured while files are removed.
            left = await executor.discard(step.id)
            if left:
                self._progress(Notice(text=f"{step.id}: {step_dir} is not removed: {left}"))
        self._conclude(step, outcome)

    async def _settled(self, outcome: Outcome) -> Outcome:
        """Return the outcome. Cancelled where the end of the step may be due to the signal that interrupted us."""
        is_own = outcome.name == "passed" or outcome.why in OWN_ENDS
        if not self._settings.settle_s or not is_own:
            return outcome
        if not self._interrupts:
            await asyncio.sleep(self._settings.settle_s)
            await asyncio.sleep(0)  # a signal that came with the end of the pause is handled now
        return Outcome("cancelled", INTERRUPTED) if self._interrupts else outcome

    async def _checked(self, step: Step, outcome: Outcome) -> Outcome:
        """Return the outcome, or a failure where a step that passed lacks data. The loop goes on while long records are read."""
        if outcome.name != "passed" or self._settings.missing_data is None:
            return outcome
        lacking = await self._unless_interrupted(self._settings.missing_data(step, self._attempts[step.id]))
        if lacking is None:
            return Outcome("cancelled", INTERRUPTED)
        return Outcome("failed", lacking, "no-data") if lacking else outcome

    async def _unless_interrupted(self, what: Coroutine[Any, Any, T]) -> T | None:
        """Return the result of a coroutine, which an interrupt cancels. None then."""
        task = asyncio.create_task(what)
        self._interruptible.add(task)
        try:
            await asyncio.wait({task})
            return None if task.cancelled() else task.result()
        finally:
            task.cancel()
            self._interruptible.discard(task)

    def _update_barrier(self, step: Step, at: Literal["at-barrier", "measured", "gone"]) -> None:
        """Update the group barrier: release it when the last step is ready, stop its steps when the last has measured."""
        group = self._barrier
        if group is None or step.id not in group.nodes:
            return
        {"at-barrier": group.ready, "measured": group.measured, "gone": group.ended}[at].add(step.id)
        if self._interrupts:
            return
        if group.may_start:
            group.is_released = True
            self._cancel_barrier_timer()
            self._start_task(self._release(group))
        elif group.may_stop:
            group.is_stopped = True
            for other in group.live:
                if executor := self._running.get(other):
                    self._start_task(executor.stop(other))
        elif at == "at-barrier" and self._barrier_timer is None and group.limit_s is not None and group.late:
            self._barrier_timer = asyncio.get_running_loop().call_later(group.limit_s, self._fail_late, group)

    async def _release(self, group: GroupBarrier) -> None:
        """Release a group on all its nodes concurrently, and journal the time this took by our clock."""

        async def release(node: str) -> tuple[str, dict[str, float]]:
            sent = time.monotonic(), time.time()
            node_clock = await self._executors[node].release(group.group)
            took = time.monotonic() - sent[0]
            if node_clock is None:
                return node, {}
            # The node read its clock between request and reply: assume the middle, with half the round trip as the error.
            return node, {"ahead_s": round(node_clock - sent[1] - took / 2, 6), "give_or_take_s": round(took / 2, 6)}

        began = time.monotonic()
        clocks = dict(
            await asyncio.gather(*(release(node) for node in sorted({group.nodes[step] for step in group.live})))
        )
        within = round(time.monotonic() - began, 6)
        entry = {"group": group.group, "state": "released", "within_s": within, "clocks": clocks}
        self._journal({**entry, "steps": {step: group.nodes[step] for step in group.live}})

    def _fail_late(self, group: GroupBarrier) -> None:
        """End the whole group: without its last step it cannot be measured."""
        late = group.late
        group.is_released = group.is_stopped = True  # no step may pass the barrier while they end one by one
        for step in group.live:
            if executor := self._running.get(step):
                if step in late:
                    reason = f"not ready within {group.limit_s:g} s of the first of its group"
                else:
                    reason = f"waited at the start barrier for {', '.join(late)}, which was not ready within {group.limit_s:g} s"
                self._start_task(executor.end(step, late=reason))

    def _cancel_barrier_timer(self) -> None:
        if self._barrier_timer is not None:
            self._barrier_timer.cancel()
            self._barrier_timer = None

    def _notify_client(self, step: Step, *, is_serving: bool) -> None:
        """Wake the client of a server. Only the first call counts."""
        serving = self._servers.get(step.id)
        if serving is not None and not serving.done():
            serving.set_result(is_serving)

    def _unserved(self, step: Step) -> Outcome:
        """Return the outcome of a client that was not started because its server failed."""
        if self._interrupts:
            return Outcome("cancelled", INTERRUPTED)
        server = server_of(step)
        return Outcome("skipped", f"{server} {dependency_outcome_text(self._ended.get(server))}")

    def _with_log(self, step: Step, outcome: Outcome) -> Outcome:
        """Return the outcome. A failed server's names the log that explains it."""
        if role_of(step) != "server" or outcome.name != "failed":
            return outcome
        stem = f"{self._settings.values.get('run', '.')}/{self._stem(step)}"
        return replace(outcome, detail=f"{outcome.detail}; its output is in {stem}.*")

    def _end_rest_of_job(self, step: Step) -> None:
        """End the other ranks of a job, or a server's client: without the missing rank or server they would wait for ever.

        The client of a sweep notices it, and records which points it could not measure: it has the grace period to end.
        """
        for other in self._plan.steps:
            if step.job and other.job == step.job and other.id != step.id:
                self._to_end.add(other.id)  # it may be about to start
                if other.config.get("serve"):
                    asyncio.get_running_loop().call_later(
                        self._settings.grace_s, self._end_attempt, other.id, self._attempts[other.id]
                    )
                else:
                    self._end(other.id)

    def _end_attempt(self, step: str, attempt: int) -> None:
        """End a step, unless it is being tried again by now."""
        if self._attempts[step] == attempt:
            self._end(step)

    def _emit_of(self, step: Step) -> Emit:
        def emit(event: Progress) -> None:
            match event:
                case Frame():
                    self._record(step, event)
                case StepNotice(stage="ready"):
                    self._notify_client(step, is_serving=True)
                case StepNotice(stage="at-barrier" | "measured" as stage):
                    self._update_barrier(step, stage)
                case StepNotice(stage="hung"):
                    self._hung.ask_others(step.id)
                case EvidenceCollected(evidence=evidence, payload=payload):
                    self._hung.add(step.id, evidence)
                    with self._recording(step):
                        self._recorder.write_evidence(self._stem(step), payload)
                case Started(pid=pid, pgid=pgid, pid_start=pid_start):
                    self._journal_step(step, state="started", pid=pid, pgid=pgid, pid_start=pid_start)
                    if self._interrupts or step.id in self._unrecorded or step.id in self._to_end:
                        self._end(step.id)
                case _:
                    pass
            self._progress(event)

        return emit

    def _record(self, step: Step, frame: Frame) -> None:
        # Of a step that is being ended no output is written: that must not delay its end.
        if step.id not in self._unrecorded or frame.kind == "rec":
            append = self._recorder.append_lines if frame.kind == "line" else self._recorder.append
            with self._recording(step):
                self._require_room(step, frame)
                append(self._stem(step), frame.payload)
        if step.id in self._unrecorded and frame.kind == "line":
            text = "".join(text.decode("utf-8", "replace") for _, text in texts_of(frame.payload[-_LOOKED_AT:]))
            self._last_text[step.id] = (self._last_text.get(step.id, "") + text)[-_KEPT:]

    def _require_room(self, step: Step, frame: Frame) -> None:
        """Raise OSError when an attempt has more records than it may: neither a program nor a node fills our disk."""
        stem, most = self._stem(step), int(step.config.get("max_records_mib") or RECORDS_MIB)
        size = self._recorded[stem] = self._recorded.get(stem, 0) + len(frame.payload)
        # The last record, with the reason, still has its place.
        if size > (most << 20) + (_LOOKED_AT if frame.kind == "rec" else 0):
            raise OSError(errno.EFBIG, f"more than {most} MiB of records and output (max_records_mib)")

    @contextlib.contextmanager
    def _recording(self, step: Step | None) -> Iterator[None]:
        """End and fail a step whose records cannot be kept. The reason is reported once per run."""
        try:
            yield
        except OSError as error:
            if step is not None and step.id not in self._unrecorded:
                self._unrecorded[step.id] = error
                self._end(step.id)
            if not self._has_complained:
                self._has_complained = True
                self._progress(Notice(text=f"cannot record: {format_oserror(error)}. The steps concerned fail"))

    def _stem(self, step: Step) -> str:
        return attempt_stem(step.stem or step.id, self._attempts[step.id])

    def _conclude(self, step: Step, outcome: Outcome) -> None:
        """Record the end of an attempt. A step that passed once has passed, whatever a later attempt did."""
        outcome = self._as_recorded(step, outcome)
        if outcome.why == "out-of-memory" and step.sizing:
            outcome = replace(outcome, detail=f"with {step.sizing}: {outcome.detail}")
        has_passed = outcome.name == "passed"
        detail, doubts = None if has_passed else outcome.detail, list(outcome.doubts) or None
        self._journal_step(step, state="ended", outcome=outcome.name, why=outcome.why, detail=detail, reasons=doubts)
        outcome = self._as_recorded(step, outcome)  # writing the journal may just have failed
        for line in self._last_text.pop(step.id, "").splitlines()[-LAST_LINES:]:
            self._progress(Notice(text=f"{step.id}: not recorded: {line}"))
        self._ended[step.id] = outcome
        before = self._outcomes.get(step.id)
        if before is None or before.name != "passed":
            self._outcomes[step.id] = outcome
        self._progress(Ended(step=step.id, outcome=outcome, attempt=self._attempts[step.id], node=step.node))

    def _as_recorded(self, step: Step, outcome: Outcome) -> Outcome:
        """Return the outcome, or a failure if it was not recorded: a number that cannot be read later was not measured."""
        error = self._unrecorded.get(step.id)
        if error is None or outcome.name == "skipped":
            return outcome
        why: Why = "no-space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "environment"
        return Outcome("failed", f"cannot record: {format_oserror(error)}", why)

    def _journal_step(self, step: Step, **entry: object) -> None:
        fields = {key: value for key, value in entry.items() if value is not None}
        with self._recording(step):
            self._recorder.journal({"step": step.id, "attempt": self._attempts[step.id], "node": step.node, **fields})

    def _journal(self, entry: Mapping[str, object]) -> None:
        with self._recording(None):
            self._recorder.journal(entry)

    def _end(self, step: str, grace_s: float | None = None, *, is_done: bool = False) -> None:
        executor = self._running.get(step)
        if executor is not None:
            self._start_task(executor.end(step, grace_s=grace_s, is_done=is_done))

    def _start_task(self, what: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in addition to the steps. `run` waits for it before it returns."""
        task = asyncio.create_task(what)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def role_of(step: Step) -> str:
    """Return `server` or `client`. Empty for a step that is neither."""
    return str(step.config.get("role") or "")


def server_of(step: Step) -> str:
    """Return the step that a client connects to. Empty for any other step."""
    server = step.config.get("server")
    return str(server.get("step") or "") if role_of(step) == "client" and isinstance(server, Mapping) else ""


def asks_for_port(step: Step) -> bool:
    """Return whether a value of the step is a port that is chosen at the start."""
    return any(text.endswith("@port") for text in (*step.argv, *step.env.values())) or "@port" in str(
        step.config.get("server")
    )


def dependency_outcome_text(outcome: Outcome | None) -> str:
    """Describe the outcome of a step that another step depends on."""
    if outcome is None:
        return "was not run"
    is_of_others = outcome.name in ("skipped", "cancelled")
    return ("was " if is_of_others else "") + outcome.name + (f" ({outcome.failure})" if outcome.failure else "")


def _secrets_of_jobs(group: Sequence[Step]) -> dict[str, tuple[str, ...]]:
    """Return the secrets of each job with a server: its client may repeat the server's answers, and the other way round."""
    jobs = {step.job for step in group if step.job and role_of(step) == "server"}
    return {
        job: tuple(sorted({secret for step in group if step.job == job for secret in secrets_of(step)})) for job in jobs
    }
