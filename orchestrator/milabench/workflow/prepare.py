"""Runs each benchmark's prepare.py once, in its environment, with the arguments of the run; a marker says that it passed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path, PurePath

from milabench.errors import DONE, INTERRUPTED, EnvironmentFailed
from milabench.facts.model import Node
from milabench.plan.context import ResolvedBenchmark, at_node
from milabench.plan.model import Plan
from milabench.plan.placement import nodes_of
from milabench.plan.prepare import ALREADY, Preparation, marker_name, plan_prepare, prepare_digest, prepare_step
from milabench.plan.run import containerized, describe, preparation_of
from milabench.workflow.context import CommandContext
from milabench.workflow.environments import decide_install, not_fetched
from milabench.workflow.remote_nodes import remote_paths_exist

TAIL_LINES = 15


def prepare(context: CommandContext, *, force: bool = False) -> int:
    """Prepare what has not been prepared, or with `force` all; return the exit code.

    Raises EnvironmentFailed for preparations that fail, and Unreachable.
    """
    from milabench.execute.base_lock import hold_base
    from milabench.workflow.preflight import require_installed
    from milabench.workflow.remote_nodes import copy_folders, require_healthy

    require_healthy(context)
    require_installed(context)
    copy_folders(context)
    plan = pending_preparations(context, force=force, upload=True)
    if not plan.steps:
        done = sum(skip.why == ALREADY for skip in plan.skipped)
        context.session.info(f"prepare: nothing to do, {done} benchmarks are prepared")
        return DONE
    with hold_base(Path(context.dirs.base), "prepare", say=context.session.note):
        return execute_preparations(plan, context)


def execute_preparations(plan: Plan, context: CommandContext) -> int:
    """Execute the plan; leave a marker for each preparation that passes. Raises EnvironmentFailed for those that fail."""
    from milabench.execute.api import Passed
    from milabench.workflow.execution import RunDescription, execute_plan, failure_reason
    from milabench.workflow.options import RetryPolicy
    from milabench.workflow.preflight import environment_records

    locks, packages = environment_records(context)
    description = RunDescription(name="prepare", locks=locks, packages=packages)
    markers = {preparation.step.id: preparation.marker for preparation in preparation_steps(context)}
    executed = execute_plan(plan, context, description, retry=RetryPolicy(wait=True, markers=markers))
    outcomes = {step.id: executed.result.outcomes[step.id] for step in plan.steps}
    failures = [
        f"{step}: prepare failed: {failure_reason(outcome)}{log_tail(executed.path, step)}"
        for step, outcome in outcomes.items()
        if not isinstance(outcome, Passed)
    ]
    if executed.result.interrupted:
        context.session.info("interrupted")
        return INTERRUPTED
    if failures:
        raise EnvironmentFailed("\nerror: ".join(failures))
    context.session.info(f"prepare: {len(plan.steps)} benchmarks prepared")
    return DONE


def log_tail(run: Path, step: str) -> str:
    """Return the end of a step's output, and where all of it is."""
    from milabench.events.rundir import open_run

    path = open_run(run).log(step)
    if path is None:
        return f" (no output; records in {run})"
    lines = path.read_text(errors="backslashreplace").splitlines()
    return "".join(f"\n  | {line}" for line in lines[-TAIL_LINES:]) + f"\n  (whole output: {path})"


def pending_preparations(context: CommandContext, *, force: bool = False, upload: bool = False) -> Plan:
    """Return the preparations that have not passed with these arguments, program and environment, on every node.

    `upload`: the nodes get the benchmarks' folders at the same time. Raises Unreachable for a node that does not answer.
    """
    preparations = preparation_steps(context)
    existing = remote_paths_exist(context, remote_markers(preparations, context), upload=upload)
    return unprepared(context, preparations, existing, force=force)


def unprepared(
    context: CommandContext,
    preparations: Sequence[Preparation],
    remote: Collection[tuple[str, str]],
    *,
    force: bool = False,
) -> Plan:
    """Return the preparations that have not passed, given the (node, marker) pairs that exist on other nodes."""
    local = {step.key for step in preparations if step.step.node in _local(context) and Path(step.marker).exists()}
    return plan_prepare(
        preparations,
        markers=local | set(remote),
        force=force,
        skipped=not_fetched(context),
        system=describe(context.plan_context.facts),
    )


def remote_markers(preparations: Sequence[Preparation], context: CommandContext) -> dict[str, list[str]]:
    """Return the markers that only other nodes can see, by node; none when those are not to be asked."""
    markers: dict[str, list[str]] = {}
    for preparation in preparations if context.options.ask_nodes else ():
        if preparation.step.node not in _local(context):
            markers.setdefault(preparation.step.node, []).append(preparation.marker)
    return markers


def _local(context: CommandContext) -> set[str]:
    """Return the nodes whose files are visible here."""
    return {node.name for node in context.nodes if not node.storage}


def preparation_steps(context: CommandContext) -> list[Preparation]:
    """Return the prepare steps with their markers. Raises EnvironmentFailed for a prepare.py that does not exist."""
    digests = {}
    if context.plan_context.current_env is None:
        digests = {bench: venv.digest for venv in decide_install(context).venvs for bench in venv.benches}
    several = len(context.nodes) > 1
    preparations = []
    for bench in context.benches:
        if bench.declared is None or bench.declared.prepare is None:
            continue
        script = Path(bench.folder, bench.declared.prepare)
        if not script.is_file():
            raise EnvironmentFailed(f"{bench.config.name}: {script}: no such file; its benchfile names it")
        files = {path.name: path.read_bytes() for path in script.parent.glob("*.py")}
        storages: set[str] = set()
        for rank, node in nodes_of(bench.config, context.plan_context.facts):
            if node.storage in storages:  # one node of each file system prepares
                continue
            storages.add(node.storage)
            preparations.append(_preparation(bench, context, node, rank if several else None, files, digests))
    return preparations


def _preparation(
    bench: ResolvedBenchmark,
    context: CommandContext,
    node: Node,
    rank: int | None,
    files: Mapping[str, bytes],
    digests: Mapping[str, str],
) -> Preparation:
    """Return what prepares a benchmark on a node."""
    assert bench.declared is not None
    argv, env, cwd, venv, config = preparation_of(bench, context.plan_context, node)
    node_bench, plan_context = at_node(bench, context.plan_context, node)
    step = prepare_step(
        bench.config.name,
        bench.declared,
        PurePath(node_bench.folder),
        argv=argv,
        env=env,
        venv=venv,
        cwd=cwd,
        python=context.plan_context.current_python,
        config=config,
        timeout_s=bench.config.max_duration,
        node=node.name,
        rank=rank,
    )
    assert step is not None
    step = containerized(step, node_bench, plan_context, ())
    source = bench.declared.source.folder if bench.declared.source is not None else ""
    digest = prepare_digest(step, files, venv=digests.get(bench.config.name, ""), source=source)
    marker = PurePath(plan_context.dirs.data, marker_name(bench.config.name, digest))
    return Preparation(step=step, marker=str(marker))
