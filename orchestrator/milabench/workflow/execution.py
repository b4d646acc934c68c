"""Executes a plan in its run directory and records it: agents, display, outcomes. For new and resumed runs."""

from __future__ import annotations

import asyncio
import contextlib
import platform
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, assert_never

from milabench.display.base import Display
from milabench.errors import Unreachable, UsageError
from milabench.events.fanout import Fanout
from milabench.events.model import Config, Data, Meta
from milabench.events.run_writer import RunWriter
from milabench.events.rundir import open_run
from milabench.events.wire import decode, encode
from milabench.execute.agent.outcome import MACHINE_KILLS, oom_kills
from milabench.execute.agent_client import SETTLE_S, AgentNode, local_node
from milabench.execute.api import (
    Ended,
    EvidenceCollected,
    Frame,
    Notice,
    Progress,
    Started,
    StepNotice,
    Waiting,
)
from milabench.execute.engine import ExecutionResult, ExecutionSettings, execute
from milabench.execute.interrupts import interrupts, run_deferring_signals
from milabench.execute.local_agent import LocalAgent, lock_folder
from milabench.execute.locks import Orchestrator, hold_in_use
from milabench.execute.retry_policy import RetryPolicy
from milabench.execute.shims import shims_of
from milabench.plan.context import dirs_at
from milabench.plan.model import STEP_DIRS, Plan, Step
from milabench.plan.prepare import data_lock
from milabench.redaction import mask_settings
from milabench.version import __version__
from milabench.workflow.device_use import device_locks
from milabench.workflow.environments import sources
from milabench.workflow.files import writing
from milabench.workflow.live_checks import LiveChecks, import_readers_in_background
from milabench.workflow.local_agents import local_names
from milabench.workflow.options import CommandContext
from milabench.workflow.run_records import (
    ExtendPlan,
    RunDescription,
    planned_entries,
    recorded_plan,
    stems,
    with_stems,
)
from milabench.workflow.shown_steps import ShownSteps

if TYPE_CHECKING:
    from milabench.execute.detach import DetachHandover
    from milabench.execute.ssh import Address
    from milabench.schedulers.scheduler import HeldNodes

OnProgress = Callable[[Progress], object]
_DISPLAYED = (b'"pause"', b'"progress"')  # what is looked for in records while benchmarks run
TICK_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutedPlan:
    """A plan that was executed, and the run directory that it was recorded in."""

    path: Path
    result: ExecutionResult


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
    agents: Mapping[str, LocalAgent] = MappingProxyType({}),
) -> ExecutedPlan:
    """Execute a plan, or the rest of the `whole` plan, in a run directory whose lock we hold."""
    require_nodes(context)
    if handover is not None:
        handover.hold(writer.path)
    session, whole = context.session, whole or plan
    with (
        interrupts().deferred(),
        _held_for_use(whole, context),
        contextlib.closing(session.reporter.open_display()) as display,
    ):
        _journal_start(writer, orchestrator, addresses_used(plan, context), session.allocation)
        checks = LiveChecks(plan, writer.path)
        shown = ShownSteps(display, checks.measured if plan.phase == "run" else lambda *_: None)

        def show(progress: Progress) -> None:
            _show(display, shown, progress)
            if isinstance(progress, Started) and plan.phase == "run":
                import_readers_in_background()
            for finding in checks.findings():
                display.on_message(finding)

        sinks: dict[str, OnProgress] = {"display": show}
        if handover is not None:
            # The first event: we hold the devices, or wait for them. Until then errors are shown in the terminal.
            sinks["handover"] = lambda _: handover.let_go(writer.path)
        display.on_estimate(description.seconds)
        shown.on_plan(plan)

        displayed = list(plan.steps)

        def more() -> Plan | None:
            # Only the added steps are executed; the display shows them behind those that have ended.
            added = None if extend is None else _extended(writer, extend, display.on_message)
            if added is not None:
                checks.on_plan(added)
                displayed.extend(added.steps)
                shown.on_plan(replace(plan, steps=tuple(displayed), skipped=()))
            return added

        # What remains of a resumed run holds the devices of the whole run: between its steps no other may measure there.
        remote = _remote_nodes(whole, context, orchestrator.marker)
        nodes = _local_nodes(whole, context, orchestrator.marker, agents) | remote
        settings = ExecutionSettings(
            values={"run": str(writer.path)},
            makedirs=_folders,
            locks=device_locks(context, whole) if plan.phase == "run" else {},
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

        result = session.hosts.run(work, handles_signals=True) if remote else run_deferring_signals(work)
        return ExecutedPlan(path=writer.path, result=result)


def require_nodes(context: CommandContext) -> None:
    """Raise UsageError for nodes that are only stated: nothing can be executed on them."""
    if context.allocation is not None and not context.allocation.job:
        raise UsageError("the nodes of Slurm are only planned for here. `milabench run --engine slurm` asks for them")


@contextlib.contextmanager
def _held_for_use(plan: Plan, context: CommandContext) -> Iterator[None]:
    """Hold the environments and data of a plan on this machine. Raises Unreachable, also where they were removed meanwhile."""
    locks = installed_locks(plan, context)
    with hold_in_use(locks):
        data = {str(data_lock(Path(context.dirs.data), name)): Path(context.dirs.data, name) for name in _benches(plan)}
        for lock in locks:
            thing = data.get(lock, Path(lock).with_name(Path(lock).name.removesuffix(".lock").lstrip(".")))
            if plan.phase == "run" and Path(lock).exists() and not thing.exists():
                raise Unreachable(f"{locks[lock]}: was removed while this command started. Try again")
        yield


def _benches(plan: Plan) -> Iterable[str]:
    return dict.fromkeys(step.bench for step in plan.steps)


def installed_locks(plan: Plan, context: CommandContext) -> dict[str, str]:
    """Return the locks of the environments, programs and data that a plan uses on this machine, each with its name."""
    local = {node.name for node in context.nodes if node.local}
    venvs = dict.fromkeys(step.venv for step in plan.steps if step.venv and step.node in local)
    locks = {f"{Path(venv).resolve()}.lock": venv for venv in venvs}
    folders = [source.folder for source in sources(context)] if local else []
    locks |= {f"{context.dirs.code}/.{folder}.lock": f"code/{folder}" for folder in folders}
    return locks | {
        str(data_lock(Path(context.dirs.data), bench)): f"data/{bench}" for bench in _benches(plan) if local
    }


def _journal_start(
    writer: RunWriter, orchestrator: Orchestrator, addresses: Sequence[Address], allocation: HeldNodes | None
) -> None:
    """Journal that an orchestrator begins, with the facts that a cleanup after its death needs. Raises RecordError."""
    # The other nodes, so that processes left by a crash can be found there.
    used: dict[str, Any] = {"nodes": [asdict(address) for address in addresses]} if addresses else {}
    if allocation is not None:
        # So that whoever resumes or cancels the run finds the job.
        used["allocation"] = allocation.to_json()
    # So that a kill by the kernel can be guessed afterwards: who was killed cannot tell.
    kills = {"oom_kills": oom_kills(MACHINE_KILLS)}
    with writing(writer.path):
        writer.journal({"run": "started", **orchestrator.to_json(), **used, **kills})


def _remote_nodes(whole: Plan, context: CommandContext, marker: str) -> dict[str, AgentNode]:
    """Return the other machines that the plan uses."""
    addresses = addresses_used(whole, context)
    if not addresses:
        return {}
    from milabench.execute.remote_host import remote_node

    locks = lock_folder() if context.allocation is not None else None
    hosts = [context.session.hosts.machine(address) for address in addresses]
    return {host.name: remote_node(host, marker, locks=locks) for host in hosts}


def _local_nodes(
    whole: Plan, context: CommandContext, marker: str, agents: Mapping[str, LocalAgent]
) -> dict[str, AgentNode]:
    """Return this machine where the plan uses it, or where it is the only node."""
    locks = lock_folder()
    return {
        name: local_node(marker, name=name, locks=locks, started=agents.get(name))
        for name in local_names(whole, context)
    }


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
            # A command that is timed is left alone from its start on.
            if plan.phase == "run" and any(step.config.get("timed") for step in plan.steps):
                import_readers_in_background()
            await asyncio.gather(*map(start, nodes.values()))
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
    if not context.system.nodes and context.allocation is None:
        return ()
    from milabench.workflow.node_query import node_addresses  # with all that reaches other machines

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
            observed = [progress.last] if progress.last else list(_display_sums(progress))
            if observed:
                shown.on_sums(progress.step, *observed)
        case Ended():
            outcome = progress.outcome
            shown.on_end(progress.step, outcome.name, outcome.failure, progress.attempt, progress.node)
        case Waiting():
            display.on_message(f"waiting: {'; '.join(map(str, progress.holders))}")
        case Notice():
            display.on_message(progress.text)
        case StepNotice() | EvidenceCollected():
            pass
        case _:
            assert_never(progress)


def _display_sums(frame: Frame) -> Iterator[Mapping[str, Any]]:
    """Yield the facts of records that a display needs: pauses, current cases, and the number of rates that programs gave."""
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
    # Its own folder is made for each attempt; that of a source, a definition or a suite is there, or is misspelt.
    data = step.env.get("MILABENCH_DIR_DATA")
    cwd = (step.cwd,) if data and Path(step.cwd).is_relative_to(data) else ()
    return tuple(dict.fromkeys([*cwd, *(step.env[name] for name in names if name in step.env)]))


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


def _extended(writer: RunWriter, extend: ExtendPlan, report: Callable[[str], object]) -> Plan | None:
    """Return the added steps, which the manifest holds from now on. None when there are none. Raises RecordError."""
    with interrupts().raising():  # all records are read
        extension = extend(writer.path)
    if extension is None:
        return None
    manifest = dict(open_run(writer.path).as_planned)
    # Steps keep their files: one that has ended must not get another name because its benchmark is repeated now.
    known = manifest["files"]
    files = {**stems(extension.plan.steps), **known}
    plan = with_stems(extension.plan, files)
    added = tuple(step for step in plan.steps if step.id not in known)
    changes = {**recorded_plan(plan), "files": files, **extension.manifest}
    with writing(writer.path):
        writer.write_manifest({**manifest, **changes})
        writer.journal_all(planned_entries(added))
    for message in extension.messages:
        report(message)
    return replace(plan, steps=added) if added else None
