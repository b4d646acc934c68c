"""Carries a plan out and records it: run directory, agents, display, outcomes; shared by run, resume and prepare."""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import secrets
import shutil
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

from milabench import __version__
from milabench.display.selection import Display, choose_display
from milabench.errors import RecordError, Unreachable
from milabench.events.fanout import Fanout
from milabench.events.model import Config, Line, Meta
from milabench.events.rundir import RunWriter, create_run, open_run, stems
from milabench.events.wire import encode
from milabench.execute.agent_client import AgentNode, local_node
from milabench.execute.api import (
    BarrierEvent,
    Ended,
    Failed,
    Frame,
    Notice,
    Outcome,
    Progress,
    ServerReady,
    Skipped,
    Started,
    Waiting,
)
from milabench.execute.engine import ExecutionResult, ExecutionSettings, execute, holder_text, outcome_name
from milabench.execute.interrupts import interrupts, run_deferring_signals
from milabench.execute.remote_host import RemoteHost, remote_node
from milabench.execute.run_lock import Orchestrator, hold_run, this_orchestrator
from milabench.execute.ssh import Address
from milabench.plan.environ import without_secrets
from milabench.plan.model import Plan, Step
from milabench.workflow.context import CommandContext
from milabench.workflow.live_checks import LiveChecks, import_readers_aside
from milabench.workflow.remote_nodes import host_pool, node_addresses

if TYPE_CHECKING:
    from milabench.execute.detach import DetachHandover


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDescription:
    """What a run directory tells beside the plan: the name, what the environments were made from, the suite as resolved.

    `phase` is that of the plan unless given; only runs of the phase `run` are reported when no run is named. `told` are
    further entries of the manifest: what `resume` needs to decide the same plan again.
    """

    name: str
    phase: str | None = None
    suite: Mapping[str, Any] = field(default_factory=dict)
    locks: Mapping[str, str] = field(default_factory=dict)
    packages: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    told: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How hard is tried; see `execute.engine.Settings`. `made` and `passed` are what a resumed run has behind it.

    `marks` are the files, by step, that say that it need not be done again.
    """

    wait: bool = False
    max_retries: int = 0
    max_failures: int | None = None
    made: Mapping[str, int] = field(default_factory=dict)
    passed: frozenset[str] = frozenset()
    marks: Mapping[str, str] = field(default_factory=dict)


Listen = Callable[[Progress], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanExtension:
    """A plan that goes on where another one ends, whose steps it begins with; what the manifest tells of that, and a person."""

    plan: Plan
    told: Mapping[str, Any] = field(default_factory=dict)
    said: tuple[str, ...] = ()


# Asked with the run directory when all has ended, until it answers None; see `execute.engine.Settings.more`.
More = Callable[[Path], PlanExtension | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutedPlan:
    """A plan that was carried out and recorded."""

    path: Path
    done: ExecutionResult


def execute_plan(
    plan: Plan,
    inputs: CommandContext,
    recording: RunDescription,
    *,
    display: str,
    wait: bool = False,
    effort: RetryPolicy | None = None,
    listen: Listen | None = None,
    more: More | None = None,
    tether: DetachHandover | None = None,
) -> ExecutedPlan:
    """Carry out the plan on this machine in a new run directory; `listen` is told what happens, beside the display.

    `more` decides, by what was recorded, how the run goes on after it; `tether` is what still ties us to a terminal that we
    left. Raises RecordError and Unreachable before anything is started, RecordError also when what `more` decided cannot
    be recorded.
    """
    named = stems(plan.steps)
    plan = with_stems(plan, named)
    writer = create_run(Path(inputs.where.dirs.base), recording.name, datetime.now())
    who = this_orchestrator(new_marker(writer.path), detached=tether is not None)
    try:
        # Held from before there is a plan until the journal says that its run began: an interrupt in between would leave a
        # run that nothing can go on with.
        with interrupts().held(), hold_run(writer.path, who):
            _write_manifest(writer, plan, inputs, recording, named)
            effort = effort or RetryPolicy(wait=wait)
            return continue_plan(
                plan,
                inputs,
                recording,
                writer,
                who,
                display=display,
                effort=effort,
                listen=listen,
                more=more,
                tether=tether,
            )
    except Unreachable:
        # Nothing was started: a run that never was must not be the latest one. In that of a detached one stands why.
        if tether is None or tether.is_held:
            shutil.rmtree(writer.path, ignore_errors=True)
        raise
    finally:
        writer.close()


def continue_plan(
    plan: Plan,
    inputs: CommandContext,
    recording: RunDescription,
    writer: RunWriter,
    who: Orchestrator,
    *,
    display: str,
    effort: RetryPolicy,
    listen: Listen | None = None,
    more: More | None = None,
    whole: Plan | None = None,
    tether: DetachHandover | None = None,
) -> ExecutedPlan:
    """Carry out the steps of a plan, or those that are left of the `whole` one, in a run directory that is ours."""
    if tether is not None:
        tether.hold(writer.path)
    with interrupts().held(), contextlib.closing(choose_display(display, sys.stderr)) as shown:
        _journal(writer, [{"run": "started", **who.to_json(), **_nodes_entry(plan, inputs)}])
        sinks: dict[str, Listen] = {"display": lambda progress: _show(shown, progress)}
        if listen is not None:
            sinks["listener"] = listen
        if tether is not None:
            # The first that happens: devices are ours, or waited for. Until then whoever sits there is told what is wrong.
            sinks["tether"] = lambda _: tether.let_go(writer.path)
        checks = LiveChecks(plan, writer.path, shown.on_message)
        if plan.phase == "run":
            sinks["checks"] = checks.on_progress
        shown.on_plan(plan)

        def grow() -> Plan | None:
            beyond = None if more is None else _grown(writer, more, shown.on_message)
            if beyond is not None:
                checks.on_plan(beyond)
                shown.on_plan(replace(plan, steps=(*plan.steps, *beyond.steps), skipped=()))
            return beyond

        progress = Fanout(sinks, warn=print_warning)
        by = host_pool()
        machines = [by.machine(address) for address in addresses_used(whole or plan, inputs)]

        def work() -> Coroutine[Any, Any, ExecutionResult]:
            return _engine(plan, inputs, recording, writer, who, progress, effort, whole or plan, machines, grow)

        return ExecutedPlan(path=writer.path, done=by.run(work) if machines else run_deferring_signals(work))


def with_stems(plan: Plan, named: Mapping[str, str]) -> Plan:
    """The plan whose steps know the names of their files."""
    return replace(plan, steps=tuple(replace(step, stem=named[step.id]) for step in plan.steps))


def new_marker(path: Path) -> str:
    """What the processes of one orchestrator carry: unlike any other's, and by its beginning the run's."""
    return f"{path.name}-{secrets.token_hex(4)}"


async def _engine(
    plan: Plan,
    inputs: CommandContext,
    recording: RunDescription,
    writer: RunWriter,
    who: Orchestrator,
    progress: Listen,
    effort: RetryPolicy,
    whole: Plan,
    machines: Sequence[RemoteHost],
    more: Callable[[], Plan | None],
) -> ExecutionResult:
    """Start the agents, execute, and end the agents whatever happened; the devices of the `whole` plan are held."""
    # Elsewhere than where all runs of this machine look for each other: only for tests of ours that run side by side.
    locks = Path(os.environ["MILABENCH_LOCK_DIR"]) if "MILABENCH_LOCK_DIR" in os.environ else None
    used = {step.node for step in whole.steps}
    nodes = {
        node.name: local_node(who.marker, name=node.name, locks=locks)
        for node in inputs.where.facts.nodes
        if node.local and (node.name in used or len(inputs.where.facts.nodes) == 1)
    }
    nodes |= {machine.name: remote_node(machine, who.marker) for machine in machines}
    settings = ExecutionSettings(
        values={"run": str(writer.path), "path": os.environ.get("PATH", os.defpath)},
        makedirs=_folders,
        marks=lambda step: (effort.marks[step.id],) if step.id in effort.marks else (),
        locks=_device_locks(whole, inputs) if plan.phase == "run" else {},
        wait=effort.wait,
        preamble=lambda step: _preamble(step, inputs, recording),
        made=effort.made,
        passed=effort.passed,
        max_retries=effort.max_retries,
        max_failures=effort.max_failures,
        more=more,
        lacks=lambda step, stem: missing_metrics(step.config, writer.path / f"{stem}.data"),
    )
    try:
        opening = asyncio.gather(*map(_opened, nodes.values()))
        await asyncio.sleep(0)  # this machine's agent is a process now, and takes its time to begin
        if plan.phase == "run":
            import_readers_aside()
        await opening
        return await execute(plan, nodes, writer, progress, settings)
    finally:
        await asyncio.gather(*(node.close() for node in nodes.values()))


def missing_metrics(config: Mapping[str, Any], records: Path) -> str:
    """Which of the numbers that a step's configuration looks for in its output are not there; empty when all are.

    Records that cannot be read are not told of: whoever writes them does.
    """
    if not config.get("metrics"):
        return ""
    from milabench.analysis.log_metrics import LogFold, metrics_of
    from milabench.events.rundir import read_batches

    fold = LogFold(metrics_of(config))
    with contextlib.suppress(RecordError):
        for event in read_batches(records, ""):
            if isinstance(event, Line):
                fold.observe(event.text, event.pipe)
        return "; ".join(one.problem for one in fold.series() if one.problem)
    return ""


async def _opened(node: AgentNode) -> None:
    """Starts a node's agent with those of all others; what keeps it from starting is said by its first step."""
    with contextlib.suppress(Unreachable):
        await node.open()


def addresses_used(plan: Plan, inputs: CommandContext) -> tuple[Address, ...]:
    """How the other nodes of a plan are reached."""
    used = {step.node for step in plan.steps}
    found = node_addresses(inputs.where.system, inputs.here)
    return tuple(address for name, address in found.items() if name in used)


def _nodes_entry(plan: Plan, inputs: CommandContext) -> dict[str, Any]:
    """What the journal keeps of the other nodes, so that what a dead orchestrator left there can be found."""
    used = addresses_used(plan, inputs)
    return {"nodes": [asdict(address) for address in used]} if used else {}


def print_warning(text: str) -> None:
    """Say something beside the display that failed."""
    print(f"warning: {text}", file=sys.stderr)


def _show(shown: Display, progress: Progress) -> None:
    match progress:
        case Started():
            shown.on_start(progress.step)
        case Frame():
            if progress.kind == "obs" and progress.last:
                shown.on_progress(progress.step, progress.last)
            elif progress.kind == "line":
                shown.on_line(progress.step, progress.payload)
        case Ended():
            shown.on_end(progress.step, outcome_name(progress.outcome), failure_reason(progress.outcome))
        case Waiting():
            shown.on_message(f"waiting: {'; '.join(holder_text(holder) for holder in progress.holders)}")
        case Notice():
            shown.on_message(progress.text)
        case ServerReady() | BarrierEvent():
            pass
        case _:
            assert_never(progress)


def failure_reason(outcome: Outcome) -> str:
    """Why a step did not pass, in one line; empty when it did."""
    match outcome:
        case Failed():
            return f"{outcome.why}: {outcome.detail}"
        case Skipped():
            return outcome.reason
        case _:
            return ""


def _folders(step: Step) -> tuple[str, ...]:
    """The folders that a step expects to exist."""
    names = ("MILABENCH_DIR_DATA", "MILABENCH_DIR_CACHE", "MILABENCH_DIR_EXTRA")
    return tuple(dict.fromkeys([step.cwd, *(step.env[name] for name in names if name in step.env)]))


def _device_locks(plan: Plan, inputs: CommandContext) -> dict[str, Sequence[str]]:
    """The names of the locks of the devices that are measured on, per node; slots of a processor share one lock."""
    locks: dict[str, Sequence[str]] = {}
    for node in inputs.where.facts.nodes:
        used = {device for step in plan.steps if step.node == node.name for device in step.devices}
        names = {
            f"cpu-{node.hostname}" if device.arch == "cpu" else f"{device.arch}-{device.uuid}"
            for device in node.devices
            if device.index in used
        }
        if names:
            locks[node.name] = sorted(names)
    return locks


def _preamble(step: Step, inputs: CommandContext, recording: RunDescription) -> bytes:
    """The records that open a step: its resolved configuration, then machine and software."""
    node = next(node for node in inputs.where.facts.nodes if node.name == step.node)
    meta = {
        "version": __version__,
        "date": datetime.now().astimezone().isoformat(timespec="seconds"),
        "cpu": {"model": node.cpu_model, "count": node.cpu_count},
        "memory_MiB": node.memory_mib,
        "os": node.os,
        "kernel": node.kernel,
        "hostname": node.hostname,
        "python": platform.python_version(),
        "accelerators": [
            {"index": each.index, "uuid": each.uuid, "name": each.name, "memory_MiB": each.memory_mib, **each.details}
            for each in node.devices
            if each.arch != "cpu"
        ],
        "lost_accelerators": list(node.details.get("lost") or ()),
        "packages": dict(recording.packages.get(step.venv, {})),
    }
    return encode(Config(step=step.id, data=step.config)) + encode(Meta(step=step.id, data=meta))


def _write_manifest(
    writer: RunWriter, plan: Plan, inputs: CommandContext, recording: RunDescription, named: Mapping[str, str]
) -> None:
    where = inputs.where
    manifest = {
        "phase": recording.phase or plan.phase,
        "name": recording.name,
        "created": datetime.now().astimezone().isoformat(timespec="seconds"),
        "version": __version__,
        "argv": ["milabench", *without_secrets(sys.argv[1:])],
        "cwd": str(Path.cwd()),
        "suite": dict(recording.suite),
        "suite_file": str(inputs.suite_file),
        "system": dict(plan.system),
        "plan": plan.to_json(),
        "plan_hash": plan.hash,
        "files": dict(named),
        "seed": where.seed,
        "profile": where.profile.name,
        **({"costs": dict(inputs.suite.system.costs)} if inputs.suite.system.costs else {}),
        **({"reference": inputs.suite.system.reference} if inputs.suite.system.reference else {}),
        "locks": dict(recording.locks),
        **recording.told,
    }
    try:
        writer.write_manifest(manifest)
    except OSError as error:
        raise RecordError(f"{writer.path}: cannot be written: {error.strerror}") from None
    _journal(writer, _planned(plan.steps))


def _grown(writer: RunWriter, more: More, say: Callable[[str], object]) -> Plan | None:
    """What is to be done beyond the plan in the manifest, which holds it from now on. Raises RecordError."""
    grown = more(writer.path)
    if grown is None:
        return None
    manifest = dict(open_run(writer.path).manifest)
    known = manifest["files"]
    named = {**stems(grown.plan.steps), **known}
    plan = with_stems(grown.plan, named)
    beyond = tuple(step for step in plan.steps if step.id not in known)
    told = {"plan": plan.to_json(), "plan_hash": plan.hash, "files": named, **grown.told}
    try:
        writer.write_manifest({**manifest, **told})
    except OSError as error:
        raise RecordError(f"{writer.path}: cannot be written: {error.strerror}") from None
    _journal(writer, _planned(beyond))
    for line in grown.said:
        say(line)
    return replace(plan, steps=beyond) if beyond else None


def _planned(steps: Iterable[Step]) -> list[dict[str, Any]]:
    return [{"step": step.id, "attempt": 1, "state": "planned", "node": step.node} for step in steps]


def _journal(writer: RunWriter, entries: Iterable[Mapping[str, Any]]) -> None:
    try:
        writer.journal_all(entries)
    except OSError as error:
        raise RecordError(f"{writer.path}: cannot be written: {error.strerror}") from None
