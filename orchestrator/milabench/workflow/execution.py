"""Executes a plan and records it: run directory, agents, display, outcomes; shared by run, resume, prepare and size."""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import shutil
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

from milabench.dataclass import dataclass
from milabench.display.base import Display
from milabench.errors import RecordError, Unreachable, UsageError
from milabench.events.fanout import Fanout
from milabench.events.model import Config, Data, Meta
from milabench.events.rundir import RunWriter, create_run, open_run, stems
from milabench.events.wire import decode, encode
from milabench.execute.agent.outcome import MACHINE_KILLS, oom_kills
from milabench.execute.agent_client import AgentNode, local_node
from milabench.execute.api import Ended, Frame, Notice, Progress, ServerReady, Started, Waiting
from milabench.execute.engine import ExecutionResult, ExecutionSettings, execute
from milabench.execute.interrupts import interrupts, run_deferring_signals
from milabench.execute.locks import Orchestrator, hold_in_use, hold_run, this_orchestrator
from milabench.execute.remote_host import remote_node
from milabench.execute.retry_policy import RetryPolicy
from milabench.execute.shims import shims_of
from milabench.execute.ssh import Address
from milabench.execute.start_barrier import BarrierEvent
from milabench.plan.context import dirs_at
from milabench.plan.model import STEP_DIR, STEP_DIRS, Plan, Step
from milabench.redaction import mask_argument, mask_settings
from milabench.version import __version__
from milabench.workflow.context import CommandContext
from milabench.workflow.environments import sources
from milabench.workflow.live_checks import LiveChecks, import_readers_in_background
from milabench.workflow.node_query import node_addresses
from milabench.workflow.shown_steps import ShownSteps

if TYPE_CHECKING:
    from milabench.execute.detach import DetachHandover


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDescription:
    """What a run directory holds beside the plan: the name, what the environments were made from, the suite as resolved.

    `phase` is that of the plan unless given; only runs of the phase `run` are reported when no run is named. `manifest` are
    further entries of the manifest: what `resume` needs to decide the same plan again.
    """

    name: str
    phase: str | None = None
    suite: Mapping[str, Any] = field(default_factory=dict)
    locks: Mapping[str, str] = field(default_factory=dict)
    packages: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    manifest: Mapping[str, Any] = field(default_factory=dict)


OnProgress = Callable[[Progress], object]
NO_RETRIES = RetryPolicy()
_DISPLAYED = (b'"pause"', b'"progress"')  # what is looked for in records while benchmarks run
TICK_S = 1.0
# By which a job's signal may reach us later than a step: one after the other, on each node by its own daemon.
SETTLE_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanExtension:
    """A longer plan, which begins with the steps of the executed one; what the manifest holds of it, and messages on it."""

    plan: Plan
    manifest: Mapping[str, Any] = field(default_factory=dict)
    messages: tuple[str, ...] = ()


# Called with the run directory when all steps have ended, until it returns None; see `extend_plan` of `ExecutionSettings`.
ExtendPlan = Callable[[Path], PlanExtension | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutedPlan:
    """A plan that was executed, and the run directory that it was recorded in."""

    path: Path
    result: ExecutionResult


def execute_plan(
    plan: Plan,
    context: CommandContext,
    description: RunDescription,
    *,
    retry: RetryPolicy = NO_RETRIES,
    extend: ExtendPlan | None = None,
    handover: DetachHandover | None = None,
) -> ExecutedPlan:
    """Execute the plan in a new run directory.

    `extend` decides, by what was recorded, how the run goes on after the plan; `handover` lets go of the terminal
    when the run has begun. Raises RecordError and Unreachable before anything is started, RecordError also when the
    extension cannot be recorded.
    """
    files = stems(plan.steps)
    plan = with_stems(plan, files)
    writer = create_run(Path(context.dirs.base), description.name, datetime.now())
    orchestrator = this_orchestrator(new_marker(writer.path), detached=handover is not None)
    try:
        # Held from before there is a plan until the journal says that its run began: an interrupt in between would leave a
        # run that cannot be resumed.
        with interrupts().deferred(), hold_run(writer.path, orchestrator):
            write_manifest(writer, plan, context, description, files)
            return continue_plan(
                plan, context, description, writer, orchestrator, retry=retry, extend=extend, handover=handover
            )
    except Unreachable:
        # Nothing was started: such a run must not be the latest one. That of a detached one holds the reason.
        if handover is None or handover.is_held:
            shutil.rmtree(writer.path, ignore_errors=True)
        raise
    finally:
        writer.close()


def continue_plan(
    plan: Plan,
    context: CommandContext,
    description: RunDescription,
    writer: RunWriter,
    orchestrator: Orchestrator,
    *,
    retry: RetryPolicy,
    extend: ExtendPlan | None = None,
    whole: Plan | None = None,
    handover: DetachHandover | None = None,
) -> ExecutedPlan:
    """Execute a plan, or what remains of the `whole` one, in a run directory whose lock we hold."""
    require_nodes(context)
    if handover is not None:
        handover.hold(writer.path)
    session, addresses = context.session, addresses_used(plan, context)
    with (
        interrupts().deferred(),
        hold_in_use(installed_locks(whole or plan, context)),
        contextlib.closing(session.reporter.open_display()) as display,
    ):
        # The other nodes too, so that processes left by a crash can be found there.
        used: dict[str, Any] = {"nodes": [asdict(address) for address in addresses]} if addresses else {}
        if session.allocation is not None:
            # So that whoever resumes or cancels the run finds the job, should we die.
            used["allocation"] = session.allocation.to_json()
        with writing(writer.path):
            # So that a kill by the kernel can be guessed afterwards: who was killed cannot tell.
            kills = {"oom_kills": oom_kills(MACHINE_KILLS)}
            writer.journal({"run": "started", **orchestrator.to_json(), **used, **kills})
        checks = LiveChecks(plan, writer.path)
        shown = ShownSteps(display, checks.measured if plan.phase == "run" else lambda *_: None)

        def show(progress: Progress) -> None:
            _show(display, shown, progress)
            for finding in checks.findings():
                display.on_message(finding)

        sinks: dict[str, OnProgress] = {"display": show}
        if handover is not None:
            # The first event: we hold the devices, or wait for them. Until then errors are shown in the terminal.
            sinks["handover"] = lambda _: handover.let_go(writer.path)
        shown.on_plan(plan)

        def more() -> Plan | None:
            # Only the added steps are executed; the display shows them behind those that have ended.
            added = None if extend is None else _extended(writer, extend, display.on_message)
            if added is not None:
                checks.on_plan(added)
                shown.on_plan(replace(plan, steps=(*plan.steps, *added.steps), skipped=()))
            return added

        whole = whole or plan
        # What remains of a resumed run holds the devices of the whole run: between its steps no other may measure there.
        hosts = [session.hosts.machine(address) for address in addresses_used(whole, context)]
        nodes = _local_nodes(whole, context, orchestrator.marker)
        locks = lock_folder() if context.allocation is not None else None
        nodes |= {host.name: remote_node(host, orchestrator.marker, locks=locks) for host in hosts}
        settings = ExecutionSettings(
            values={"run": str(writer.path), "path": os.environ.get("PATH", os.defpath)},
            makedirs=_folders,
            locks=_device_locks(whole, context) if plan.phase == "run" else {},
            step_dirs={
                node.name: f"{dirs_at(context.plan_context, node).runs}/{writer.path.name}/{STEP_DIRS}"
                for node in context.nodes
            },
            preamble=lambda step: _preamble(step, context, description),
            retry=retry,
            extend_plan=more,
            missing_data=checks.missing_metrics,
            settle_s=SETTLE_S if context.allocation is not None else 0.0,
        )

        def work() -> Coroutine[Any, Any, ExecutionResult]:
            return _execute(plan, nodes, writer, Fanout(sinks, warn=session.warn), settings, display)

        result = session.hosts.run(work, handles_signals=True) if hosts else run_deferring_signals(work)
        return ExecutedPlan(path=writer.path, result=result)


def require_nodes(context: CommandContext) -> None:
    """Raise UsageError for nodes that are only stated: nothing can be executed on them."""
    if context.allocation is not None and not context.allocation.job:
        raise UsageError("the nodes of Slurm are only planned for here; `milabench run --engine slurm` asks for them")


def installed_locks(plan: Plan, context: CommandContext) -> dict[str, str]:
    """Return the locks of the environments and programs that a plan uses on this machine, each with its name."""
    local = {node.name for node in context.nodes if node.local}
    venvs = dict.fromkeys(step.venv for step in plan.steps if step.venv and step.node in local)
    locks = {f"{Path(venv).resolve()}.lock": venv for venv in venvs}
    folders = [source.folder for source in sources(context)] if local else []
    return locks | {f"{context.dirs.code}/.{folder}.lock": f"code/{folder}" for folder in folders}


def with_stems(plan: Plan, files: Mapping[str, str]) -> Plan:
    """Return the plan with the file name of each step's records."""
    return replace(plan, steps=tuple(replace(step, stem=files[step.id]) for step in plan.steps))


def new_marker(path: Path) -> str:
    """Return a new mark for the processes of one orchestrator; it begins with the run's name."""
    return f"{path.name}-{os.urandom(4).hex()}"


def _local_nodes(whole: Plan, context: CommandContext, marker: str) -> dict[str, AgentNode]:
    """Return this machine where the plan uses it, or where it is the only one."""
    locks = lock_folder()
    used = {step.node for step in whole.steps}
    return {
        node.name: local_node(marker, name=node.name, locks=locks)
        for node in context.nodes
        if node.local and (node.name in used or len(context.nodes) == 1)
    }


def lock_folder() -> Path | None:
    """Return another folder for device locks than the one that all runs of a machine share: for tests, which run concurrently."""
    return Path(os.environ["MILABENCH_LOCK_DIR"]) if "MILABENCH_LOCK_DIR" in os.environ else None


async def _execute(
    plan: Plan,
    nodes: Mapping[str, AgentNode],
    writer: RunWriter,
    progress: OnProgress,
    settings: ExecutionSettings,
    display: Display,
) -> ExecutionResult:
    """Start the agents, execute, and end the agents whatever happened.

    A signal before the execution or after it, which is none of its own, ends the waiting for nodes.
    """
    loop = asyncio.get_running_loop()

    def give_up() -> None:
        for node in nodes.values():
            node.give_up(at_once=True)

    async def start(node: AgentNode) -> None:
        with contextlib.suppress(Unreachable):  # an error at its start becomes the outcome of its first step
            await node.open()

    with interrupts().noticed_by(lambda: loop.call_soon_threadsafe(give_up)):
        ticking = asyncio.create_task(_tick(display))
        try:
            opening = asyncio.gather(*map(start, nodes.values()))
            await asyncio.sleep(0)  # this machine's agent is a process now, which starts while the imports below go on
            if plan.phase == "run":
                import_readers_in_background()
            await opening
            return await execute(plan, nodes, writer, progress, settings)
        finally:
            ticking.cancel()
            await asyncio.gather(*(node.close() for node in nodes.values()))


async def _tick(display: Display) -> None:
    """Let a display show that time passes, until we are cancelled or its terminal is gone."""
    with contextlib.suppress(OSError, ValueError):
        while True:
            await asyncio.sleep(TICK_S)
            display.tick()


def addresses_used(plan: Plan, context: CommandContext) -> tuple[Address, ...]:
    """Return how the other nodes of a plan are reached."""
    used = {step.node for step in plan.steps}
    addresses = node_addresses(context.system, context.machine, allocation=context.allocation)
    return tuple(address for name, address in addresses.items() if name in used)


def _show(display: Display, shown: ShownSteps, progress: Progress) -> None:
    match progress:
        case Started():
            shown.on_start(progress.step)
        case Frame(kind="line"):
            display.on_line(progress.step, progress.payload)
        case Frame():
            observed = [progress.last] if progress.last else list(_told_apart(progress))
            if observed:
                shown.on_sums(progress.step, *observed)
        case Ended():
            shown.on_end(progress.step, progress.outcome.name, progress.outcome.failure, progress.attempt)
        case Waiting():
            display.on_message(f"waiting: {'; '.join(map(str, progress.holders))}")
        case Notice():
            display.on_message(progress.text)
        case ServerReady() | BarrierEvent():
            pass
        case _:
            assert_never(progress)


def _told_apart(frame: Frame) -> Iterator[Mapping[str, Any]]:
    """Yield what a display needs of records: pauses, the cases in hand, and how many rates a program has given of its own."""
    if not any(word in frame.payload for word in _DISPLAYED):
        return
    from milabench.analysis.rate_so_far import sums_of

    for line in frame.payload.splitlines():
        if any(word in line for word in _DISPLAYED):
            with contextlib.suppress(ValueError):
                event = decode(line, frame.step)
                sums = sums_of(event)
                # The progress of an observed loop comes with its observations, and what a program says of its own is not ours.
                is_of_rates = isinstance(event, Data) and event.data.get("clock") == "program"
                if "pause" in sums or "case" in sums or ("progress" in sums and is_of_rates):
                    yield sums


def _folders(step: Step) -> tuple[str, ...]:
    """Return the folders that a step expects to exist."""
    names = ("MILABENCH_DIR_DATA", "MILABENCH_DIR_CACHE", "MILABENCH_DIR_EXTRA")
    # Its own folder is made for each attempt.
    cwd = () if STEP_DIR in step.cwd else (step.cwd,)
    return tuple(dict.fromkeys([*cwd, *(step.env[name] for name in names if name in step.env)]))


def _device_locks(plan: Plan, context: CommandContext) -> dict[str, Sequence[str]]:
    """Return the locks of the devices that are measured on, by node; slots of a processor share one lock."""
    locks: dict[str, Sequence[str]] = {}
    for node in context.nodes:
        used = {device for step in plan.steps if step.node == node.name for device in step.devices}
        # Slurm may call several nodes, with processors of their own, by the name of one machine.
        host = node.hostname if context.allocation is None else node.name
        # The UUID, not the index: containers and CUDA_VISIBLE_DEVICES number the same device differently.
        names = {
            f"cpu-{host}" if device.arch == "cpu" else f"{device.arch}-{device.uuid}"
            for device in node.devices
            if device.index in used
        }
        if names:
            locks[node.name] = sorted(names)
    return locks


def _preamble(step: Step, context: CommandContext, description: RunDescription) -> bytes:
    """Return the records that open a step: its resolved configuration, then machine and software."""
    node = next(node for node in context.nodes if node.name == step.node)
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
            {"index": dev.index, "uuid": dev.uuid, "name": dev.name, "memory_MiB": dev.memory_mib, **dev.details}
            for dev in node.devices
            if dev.arch != "cpu"
        ],
        "lost_accelerators": list(node.details.get("lost") or ()),
        "packages": dict(description.packages.get(step.venv, {})),
        "shims": list(shims_of(step.venv)),
    }
    return encode(Config(step=step.id, data=mask_settings(step.config))) + encode(Meta(step=step.id, data=meta))


def write_manifest(
    writer: RunWriter, plan: Plan, context: CommandContext, description: RunDescription, files: Mapping[str, str]
) -> None:
    """Write what a new run will do, and journal its steps as planned. Raises RecordError."""
    manifest = {
        "phase": description.phase or plan.phase,
        "name": description.name,
        "created": datetime.now().astimezone().isoformat(timespec="seconds"),
        "version": __version__,
        # A manifest is copied and shown to others.
        "argv": ["milabench", *map(mask_argument, sys.argv[1:])],
        "cwd": str(Path.cwd()),
        "suite": dict(description.suite),
        "suite_file": str(context.suite_file),
        "system": dict(plan.system),
        "plan": plan.to_json(),
        "plan_hash": plan.hash,
        "files": dict(files),
        "seed": context.plan_context.seed,
        "profile": context.plan_context.profile.name,
        **({"costs": dict(context.suite.system.costs)} if context.suite.system.costs else {}),
        **({"reference": context.suite.system.reference} if context.suite.system.reference else {}),
        "locks": dict(description.locks),
        **description.manifest,
    }
    with writing(writer.path):
        writer.write_manifest(manifest)
        writer.journal_all(_planned(plan.steps))


def _extended(writer: RunWriter, extend: ExtendPlan, report: Callable[[str], object]) -> Plan | None:
    """Return the added steps, which the manifest holds from now on; None when there are none. Raises RecordError."""
    with interrupts().raising():  # all records of the pilot are read
        extension = extend(writer.path)
    if extension is None:
        return None
    manifest = dict(open_run(writer.path).as_planned)
    # Steps keep their files: a step of the pilot must not get another name because its benchmark is repeated now.
    known = manifest["files"]
    files = {**stems(extension.plan.steps), **known}
    plan = with_stems(extension.plan, files)
    added = tuple(step for step in plan.steps if step.id not in known)
    changes = {"plan": plan.to_json(), "plan_hash": plan.hash, "files": files, **extension.manifest}
    with writing(writer.path):
        writer.write_manifest({**manifest, **changes})
        writer.journal_all(_planned(added))
    for message in extension.messages:
        report(message)
    return replace(plan, steps=added) if added else None


def _planned(steps: Iterable[Step]) -> list[dict[str, Any]]:
    return [{"step": step.id, "attempt": 1, "state": "planned", "node": step.node} for step in steps]


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise RecordError for an OSError while a run directory is written."""
    try:
        yield
    except OSError as error:
        raise RecordError(f"{path}: cannot be written: {error.strerror}") from None
