"""Checks that the environments and the data of a plan exist, and names the command that creates missing ones.

A marker file records that a prepare.py has passed with these arguments, program and environment.
"""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path, PurePath

from milabench.analysis.json_codec import picked
from milabench.bench.registry import BENCHFILE
from milabench.devices.regular_file import read_regular
from milabench.errors import EnvironmentFailed
from milabench.execute.inventory import COMPLETE, altered_instruments, is_complete, is_fetched, store_folder
from milabench.facts.model import Node
from milabench.plan.context import ResolvedBenchmark, benchmark_on
from milabench.plan.method import nodes_of
from milabench.plan.model import Plan
from milabench.plan.prepare import (
    Preparation,
    has_preparation,
    marker_name,
    plan_prepare,
    prepare_digest,
    prepare_step,
)
from milabench.plan.run import describe_system
from milabench.shown import grouped, option_words, some_of
from milabench.workflow import environments
from milabench.workflow.context import on_this_machine
from milabench.workflow.files import display_path
from milabench.workflow.options import CommandContext, SuiteOptions
from milabench.workflow.remote_nodes import environment_marks, is_needed_here, remote_paths_exist, require_healthy

TORCH_CUDA = 13
"""The version of CUDA that torch of constraints/cuda.txt is for."""
_NAMED = 4  # of what is missing; the command makes all of it
_OF_A_SUITE = (
    *("config_file", "system_file", "base", "max_benchmarks", "size", "arch", "select", "exclude", "lock", "engine"),
)


def missing_environments(context: CommandContext) -> tuple[str, ...]:
    """Return the environments, programs and images that `milabench install` has yet to create, as a person names them."""
    if not is_needed_here(context):
        return ()
    missing = _missing_local(context)
    # Another node is not asked for its images: without one its steps fail.
    images = environments.images(context) if any(node.local for node in context.nodes) else ()
    if images:
        from milabench.execute.images import missing_images

        missing += missing_images(images)
    return tuple(missing)


def _missing_local(context: CommandContext) -> list[str]:
    """Return the environments and programs that are missing on this machine."""
    dirs = context.dirs
    missing = [f"code/{source.folder}" for source in environments.sources(context) if not is_fetched(dirs, source)]
    if context.plan_context.current_env is None:
        for venv in environments.decide_install(context).venvs:
            if not is_complete(dirs, venv):
                changed = altered_instruments(store_folder(dirs, venv))
                missing.append(f"venv/{venv.group}" + (f" ({changed} was changed)" if changed else ""))
        return missing
    environments.require_files(context)
    environments.warn_of_unknown_requirements(context)
    if find_spec("benchmate") is None:
        missing.append(f"benchmate in {sys.prefix} ({environments.benchmate_command()})")
    return missing


def missing_preparations(context: CommandContext, plan: Plan) -> tuple[str, ...]:
    """Return the benchmarks of the plan whose prepare.py has not passed with the arguments of this plan."""
    return _names(_concerning(plan, pending_preparations(context)), context)


def _concerning(plan: Plan, pending: Plan) -> Plan:
    """Return the preparations of the benchmarks of a plan."""
    wanted = {step.bench for step in plan.steps}
    return replace(pending, steps=tuple(step for step in pending.steps if step.bench in wanted))


def _names(pending: Plan, context: CommandContext) -> tuple[str, ...]:
    """Return the pending preparations as a person names them."""
    several = len(context.nodes) > 1
    return tuple(f"{step.bench} on {step.node}" if several else step.bench for step in pending.steps)


def require_installed(context: CommandContext) -> None:
    """Raise EnvironmentFailed, with the command to give, unless every environment exists."""
    _require_none("not installed", missing_environments(context), "install", context)


def driver_cuda(node: Node) -> float:
    """Return the version of CUDA that the driver of a node is made for, 12.4 say. inf where nobody tells."""
    try:
        return float(node.details["cuda"])
    except (KeyError, TypeError, ValueError):
        return math.inf


def require_drivers(context: CommandContext) -> None:
    """Raise EnvironmentFailed where torch or JAX of an environment would use the processor, its CUDA being newer than a driver.

    With `--ignore-node-checks` it is a warning.
    """
    oldest = min(context.nodes, key=driver_cuda, default=Node())
    if context.plan_context.current_env is not None or driver_cuda(oldest) >= TORCH_CUDA:
        return  # without reading a lock, which takes 15 ms for each environment
    problems = [
        f"{oldest.name}: the driver {oldest.details.get('driver')} is made for CUDA {driver_cuda(oldest):g}, and {venv.group}"
        f" needs CUDA {venv.cuda}: {', '.join(venv.benches)} would use the processor"
        for venv in environments.decide_install(context).venvs
        if venv.cuda > driver_cuda(oldest)
    ]
    if context.options.ignore_node_checks:
        for problem in problems:
            context.session.warn(problem)
    elif problems:
        hint = "install a driver of 580 or later, leave them out, or run all the same with --ignore-node-checks"
        raise EnvironmentFailed("\nerror: ".join([*problems, hint]))


def require_current_locks(context: CommandContext) -> None:
    """Raise EnvironmentFailed for the selected benchmarks whose lock was made from other requirements or constraints.

    A lock without its source, written by hand or by an older milabench, is accepted.
    """
    from milabench.plan.pin import inputs_digest
    from milabench.plan.requirements import parse_requirements
    from milabench.workflow.requirement_files import read_requirements

    stale: dict[str, str] = {}
    for bench in context.benches if context.options.lock is None else ():
        variant, folder = bench.config.install_variant, environments.requirements_of_benchmark(bench)
        lock, source = environments.requirement_file(folder, variant), environments.requirements_source(folder, variant)
        made_from = parse_requirements(lock.text).header.get("inputs") if lock is not None else None
        if lock is None or made_from is None or not source.is_file():
            continue
        limits = environments.constraints_for(context, variant)
        if made_from != inputs_digest(read_requirements(source).text, "" if limits is None else limits.text):
            changed = display_path(source) if limits is None else f"{display_path(source)} or {limits.name}"
            stale[bench.config.name] = f"{lock.name}: was not made from {changed} as it is now"
    if stale:
        pin = command_line("pin", replace(context.options, select=",".join(stale), exclude=None))
        raise EnvironmentFailed(
            "\nerror: ".join([*dict.fromkeys(stale.values()), f"run `{pin}`, or install it as it is with --frozen"])
        )


def _require_none(what: str, missing: Sequence[str], verb: str, context: CommandContext) -> None:
    if missing:
        named = some_of(missing, _NAMED)
        suite = display_path(Path(context.suite_file))
        first = "" if is_chosen(context.options) else f" for {suite}, or for a first look `milabench quickstart`"
        raise EnvironmentFailed(f"{what}: {named}. Run `{command_line(verb, context.options)}`{first}")


def is_chosen(options: SuiteOptions) -> bool:
    """Return whether the user named a suite, or a part of a suite."""
    return options.config_file is not None or options.select is not None


def require_ready(context: CommandContext, plan: Plan) -> None:
    """Raise EnvironmentFailed, with the command to give, unless everything that the plan needs exists on every node."""
    pending = lacking_preparations(context, plan)
    _require_none("not prepared", _names(pending, on_this_machine(context)), "prepare", context)


def lacking_preparations(context: CommandContext, plan: Plan) -> Plan:
    """Return the preparations that a plan lacks.

    Raises EnvironmentFailed, with the command to give, unless everything else that it needs exists on every node.
    """
    require_healthy(context)
    require_installed(context)
    require_drivers(context)
    marks = environment_marks(context, plan)
    existing, pending = _existing_and_pending(context, marks, upload=True)
    missing = [
        f"{path.removesuffix(f'/{COMPLETE}')} on {node}"
        for node, paths in marks.items()
        for path in paths
        if (node, path) not in existing
    ]
    _require_none("not installed", missing, "install", context)
    return _concerning(plan, pending)


def command_line(verb: str, options: SuiteOptions) -> str:
    """Return the command line of `verb` for the same suite, base and selection."""
    words = option_words(picked(options, *_OF_A_SUITE, "overrides", "slurm_args"), _OF_A_SUITE)
    return shlex.join(["milabench", verb, *words, *(["--use-current-env"] if options.use_current_env else [])])


def pending_preparations(context: CommandContext, *, force: bool = False, upload: bool = False) -> Plan:
    """Return the preparations that have not passed with these arguments, program and environment, on every node.

    `upload`: send the nodes the benchmarks' folders at the same time. Raises Unreachable for a node that does not answer.
    """
    return _existing_and_pending(on_this_machine(context), {}, force=force, upload=upload)[1]


def _existing_and_pending(
    context: CommandContext, marks: Mapping[str, Sequence[str]], *, force: bool = False, upload: bool
) -> tuple[set[tuple[str, str]], Plan]:
    """Return which (node, path) of `marks` exist on other nodes, and the pending preparations: one visit looks for both."""
    here = on_this_machine(context)
    preparations = preparation_steps(here)
    local = {node.name for node in here.nodes if not node.storage}  # their files are visible here
    wanted = [(node, path) for node, paths in marks.items() for path in paths]
    if context.options.ask_nodes:
        wanted += [each.key for each in preparations if each.step.node not in local]
    existing = remote_paths_exist(context, grouped(wanted), upload=upload)
    done = {each.key for each in preparations if each.step.node in local and Path(each.marker).exists()}
    pending = plan_prepare(
        preparations,
        markers=done | existing,
        force=force,
        skipped=environments.left_out_benches(here),
        system=describe_system(here.plan_context.facts),
    )
    return existing, pending


def preparation_steps(context: CommandContext) -> list[Preparation]:
    """Return the prepare steps with their markers. Raises EnvironmentFailed for a prepare.py that does not exist."""
    digests = {}
    if context.plan_context.current_env is None:
        digests = {bench: venv.digest for venv in environments.decide_install(context).venvs for bench in venv.benches}
    several = len(context.nodes) > 1
    preparations = []
    for bench in context.benches:
        if bench.declared is None or not has_preparation(bench.declared):
            continue
        if bench.config.name in context.plan_context.unavailable:
            continue
        script = Path(bench.folder, bench.declared.prepare or BENCHFILE)
        if not script.is_file():
            raise EnvironmentFailed(f"{bench.config.name}: {script}: no such file. Its benchfile names it")
        # All of its folder: prepare.py may import its neighbours, and those of the folder that it shares with others.
        folders = {"": script.parent, **({"modules/": Path(bench.modules)} if bench.modules else {})}
        files = {f"{of}{path.name}": read_regular(path) for of, at in folders.items() for path in at.glob("*.py")}
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
    # The environment counts by its digest, not by its folder: the marker is the same wherever that lies.
    anywhere = prepare_step(benchmark_on(node, bench, replace(context.plan_context, environments={})), rank=rank)
    assert anywhere is not None
    venv = digests.get(bench.config.name, "")
    digest = prepare_digest(anywhere, files, venv=venv, source=source)
    marker = PurePath(node_bench.context.dirs.data, marker_name(bench.config.name, digest))
    dirs = asdict(node_bench.dirs)
    places = {node_bench.folder: "@benchmark", **{folder: f"@{name}" for name, folder in dirs.items()}}
    if node_bench.modules:
        places[node_bench.modules] = "@modules"
    portable = prepare_digest(anywhere, files, venv=venv, source=source, places=places)
    return Preparation(step=step, marker=str(marker), portable=portable)
