"""Which prepare.py have yet to run with these arguments, program and environment."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path, PurePath

from milabench.cli.options import SuiteOptions
from milabench.errors import EnvironmentFailed
from milabench.facts.model import Node
from milabench.plan.context import ResolvedBenchmark, benchmark_on
from milabench.plan.method import nodes_of
from milabench.plan.model import Plan, SkippedBench
from milabench.plan.prepare import Preparation, marker_name, plan_prepare, prepare_digest, prepare_step
from milabench.plan.run import describe_system
from milabench.workflow.context import CommandContext
from milabench.workflow.environments import decide_install
from milabench.workflow.remote_nodes import remote_paths_exist


def pending_preparations(
    inputs: CommandContext, options: SuiteOptions, *, force: bool = False, give: bool = False
) -> Plan:
    """The preparations that have not passed with these arguments, program and environment, on every node.

    `give`: the nodes get the benchmarks' folders at the same time. Raises Unreachable for a node that does not answer.
    """
    wanted = preparation_steps(inputs)
    there = remote_paths_exist(inputs, options, markers_elsewhere(wanted, inputs, options), give=give)
    return unprepared(inputs, wanted, there, force=force)


def unprepared(
    inputs: CommandContext, wanted: Sequence[Preparation], there: Collection[tuple[str, str]], *, force: bool = False
) -> Plan:
    """Those of the preparations that have not passed, given the markers that were found on other nodes."""
    skipped = [
        SkippedBench(bench=bench.config.name, why="not fetched") for bench in inputs.benches if bench.declared is None
    ]
    here = {each.key for each in wanted if Path(each.marker).exists() and each.step.node in _local(inputs)}
    system = describe_system(inputs.where.facts)
    return plan_prepare(wanted, markers=here | set(there), force=force, skipped=skipped, system=system)


def markers_elsewhere(
    wanted: Sequence[Preparation], inputs: CommandContext, options: SuiteOptions
) -> dict[str, list[str]]:
    """The markers that only other nodes can see, by node; none when they are not to be asked."""
    found: dict[str, list[str]] = {}
    for each in wanted if options.ask_nodes else ():
        if each.step.node not in _local(inputs):
            found.setdefault(each.step.node, []).append(each.marker)
    return found


def _local(inputs: CommandContext) -> set[str]:
    """The nodes whose files we see."""
    return {node.name for node in inputs.where.facts.nodes if not node.storage}


def preparation_steps(inputs: CommandContext) -> list[Preparation]:
    """The prepare steps with their markers."""
    digests = {}
    if inputs.where.current_env is None:
        digests = {bench: venv.digest for venv in decide_install(inputs).venvs for bench in venv.benches}
    found = []
    for bench in inputs.benches:
        if bench.declared is None or bench.declared.prepare is None:
            continue
        script = Path(bench.folder, bench.declared.prepare)
        if not script.is_file():
            raise EnvironmentFailed(
                f"{bench.config.name}: {script}: no such file; its benchfile says prepare.py stands there"
            )
        files = {path.name: path.read_bytes() for path in script.parent.glob("*.py")}
        several = len(inputs.where.facts.nodes) > 1
        made_on: set[str] = set()
        for rank, node in nodes_of(bench.config, inputs.where.facts):
            if node.storage in made_on:  # of a file system that is shared, one node prepares
                continue
            made_on.add(node.storage)
            found.append(_preparation(bench, inputs, node, rank if several else None, files, digests))
    return found


def _preparation(
    bench: ResolvedBenchmark,
    inputs: CommandContext,
    node: Node,
    rank: int | None,
    files: Mapping[str, bytes],
    digests: Mapping[str, str],
) -> Preparation:
    """What prepares a benchmark on a node."""
    assert bench.declared is not None
    node_bench = benchmark_on(node, bench, inputs.where)
    step = prepare_step(node_bench, rank=rank)
    assert step is not None
    source = bench.declared.source.folder if bench.declared.source is not None else ""
    digest = prepare_digest(step, files, venv=digests.get(bench.config.name, ""), source=source)
    return Preparation(
        step=step, marker=str(PurePath(node_bench.context.dirs.data, marker_name(bench.config.name, digest)))
    )
