"""Decides which prepare.py must still run with these arguments, program and environment; a marker file records a pass."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path, PurePath

from milabench.errors import EnvironmentFailed
from milabench.facts.model import Node
from milabench.plan.context import ResolvedBenchmark, benchmark_on
from milabench.plan.method import nodes_of
from milabench.plan.model import Plan
from milabench.plan.prepare import Preparation, marker_name, plan_prepare, prepare_digest, prepare_step
from milabench.plan.run import describe_system
from milabench.workflow.context import CommandContext
from milabench.workflow.environments import decide_install, unfetched_benches
from milabench.workflow.remote_nodes import remote_paths_exist


def pending_preparations(context: CommandContext, *, force: bool = False, upload: bool = False) -> Plan:
    """Return the preparations that have not passed with these arguments, program and environment, on every node.

    `upload`: send the nodes the benchmarks' folders at the same time. Raises Unreachable for a node that does not answer.
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
        skipped=unfetched_benches(context),
        system=describe_system(context.plan_context.facts),
    )


def remote_markers(preparations: Sequence[Preparation], context: CommandContext) -> dict[str, list[str]]:
    """Return the markers that only other nodes can see, by node; none when those are not queried."""
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
    """Return the preparation of a benchmark on a node."""
    assert bench.declared is not None
    node_bench = benchmark_on(node, bench, context.plan_context)
    step = prepare_step(node_bench, rank=rank)
    assert step is not None
    source = bench.declared.source.folder if bench.declared.source is not None else ""
    digest = prepare_digest(step, files, venv=digests.get(bench.config.name, ""), source=source)
    marker = PurePath(node_bench.context.dirs.data, marker_name(bench.config.name, digest))
    return Preparation(step=step, marker=str(marker))
