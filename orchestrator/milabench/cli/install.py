"""`milabench install`: environments and programs, made once."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from milabench.cli.options import SuiteOptions, suite_options
from milabench.errors import DONE, EnvironmentFailed
from milabench.workflow.context import read_context

if TYPE_CHECKING:
    from milabench.bench.api import Source
    from milabench.execute.file_sync import RemoteFiles
    from milabench.execute.remote_host import RemoteHost
    from milabench.execute.venv import InstallProgress
    from milabench.facts.model import Node
    from milabench.plan.dirs import Dirs
    from milabench.plan.install import InstallPlan
    from milabench.workflow.context import CommandContext


@click.command("install", help="Make the environments of the selected benchmarks and fetch their programs.")
@suite_options(environment=True, reach=True)
@click.option("--force", is_flag=True, help="Make anew what is already there.")
@click.option("--update", is_flag=True, help="Make anew what is not pinned, with the newest packages.")
@click.option("--jobs", type=click.IntRange(1), default=min(4, os.cpu_count() or 1), help="How many at a time.")
def command(options: SuiteOptions, force: bool, update: bool, jobs: int) -> int:
    """Hand the command line's values on; see the help text above."""
    from milabench.workflow.environments import decide_install
    from milabench.workflow.remote_nodes import require_healthy

    inputs = read_context(options)
    require_healthy(inputs, options)
    if any(bench.declared is None for bench in inputs.benches):
        fetch_definitions(inputs)
        inputs = read_context(options)
    fetch_suite_images(inputs, options, anew=force or update)
    if options.use_current_env:
        return check_only(inputs)
    plan = decide_install(inputs)
    ours = local_part(plan, inputs)
    if ours.venvs or ours.sources or ours is plan:
        install_plan(ours, inputs, force=force, update=update, jobs=jobs)
    install_on_nodes(plan, inputs, options, force=force, update=update, jobs=jobs)
    return DONE


def local_part(plan: InstallPlan, inputs: CommandContext) -> InstallPlan:
    """The part of a plan that is made on this machine: all of it where it is a node, else what is copied from it."""
    from milabench.workflow.remote_nodes import is_needed_here

    return plan if is_needed_here(inputs) or "venv" in inputs.where.system.sync else replace(plan, venvs=())


def fetch_suite_images(inputs: CommandContext, options: SuiteOptions, *, anew: bool) -> None:
    """Let the engines of all nodes have the images of the selected benchmarks' containers.

    Raises EnvironmentFailed with a line for each that cannot be fetched, and Unreachable.
    """
    from milabench.workflow.environments import images

    wanted = images(inputs)
    if not wanted:
        return
    from milabench.execute.images import fetch_images, fetch_on_host
    from milabench.plan.context import dirs_at
    from milabench.workflow.remote_nodes import on_nodes, remote_nodes

    if any(node.local for node in inputs.where.facts.nodes):
        fetched = fetch_images(wanted, anew=anew, say=lambda text: print(f"  {text}", file=sys.stderr))
        print(f"install: {fetched} images fetched, {len(wanted)} are there", file=sys.stderr)

    async def fetch(node: Node, _: RemoteFiles, machine: RemoteHost) -> None:
        await fetch_on_host(machine, images(inputs, dirs_at(inputs.where, node).cache), anew=anew)

    on_nodes(inputs, options, fetch, remote_nodes(inputs))


def install_on_nodes(
    plan: InstallPlan, inputs: CommandContext, options: SuiteOptions, *, force: bool, update: bool, jobs: int
) -> None:
    """Make the plan ready on one node of every other file system, on all at once. Raises EnvironmentFailed and Unreachable."""
    import platform
    import tempfile

    from milabench.execute.inventory import store_folder
    from milabench.execute.remote_install import RemoteInstallJob, install_remotely
    from milabench.execute.venv import find_uv
    from milabench.plan.context import dirs_at
    from milabench.workflow.environments import BENCHMATE
    from milabench.workflow.remote_nodes import on_nodes, remote_nodes

    if not remote_nodes(inputs):
        return
    began = time.monotonic()
    dirs = inputs.where.dirs
    uv = find_uv(os.environ)

    with tempfile.TemporaryDirectory(prefix="milabench-") as scratch:

        async def make_there(node: Node, desk: RemoteFiles, machine: RemoteHost) -> None:
            if not node.storage:
                return
            there = dirs_at(inputs.where, node)
            for source in plan.sources:
                await desk.send(Path(dirs.code, source.folder), f"{there.code}/{source.folder}")
            if "venv" in inputs.where.system.sync:
                if there.venv != dirs.venv:
                    what = f"an environment cannot be moved from {dirs.venv} to {there.venv}"
                    raise EnvironmentFailed(f"{node.name}: {what}; give both the same base, or leave out system.sync")
                for venv in plan.venvs:
                    await desk.send(store_folder(dirs, venv), str(store_folder(there, venv)), thorough=False)
                    await desk.link(f"{there.venv}/{venv.group}", str(store_folder(there, venv)))
                return
            benchmate = f"{there.base}/definitions/benchmate"
            await desk.send(BENCHMATE, benchmate)
            same = node.details.get("machine") == platform.machine()
            own_uv = Path(uv) if uv is not None and same else None
            job = RemoteInstallJob(
                specs=plan.venvs,
                dirs=there,
                benchmate=benchmate,
                uv=f"{there.cache}/install/uv" if own_uv else None,
                jobs=jobs,
                force=force,
                update=update,
            )
            await install_remotely(machine, desk, job, Path(scratch), uv=own_uv, say=print_note)

        on_nodes(inputs, options, make_there)
    print(f"install: {install_summary(plan)} ready on every node ({time.monotonic() - began:.0f} s)", file=sys.stderr)


def fetch_definitions(inputs: CommandContext) -> None:
    """Fetch the benchmarks' folders that are not here. Raises EnvironmentFailed with a line for each that cannot be."""
    from milabench.bench.api import Git
    from milabench.config.definition import GitDefinition, PyPIDefinition
    from milabench.execute.base_lock import hold_base
    from milabench.execute.sources import fetch_sources, release, require_fetched

    environ = dict(os.environ)
    wanted: list[Source] = []
    for bench in inputs.benches:
        match bench.config.definition:
            case GitDefinition(url=url, rev=rev, branch=branch) if bench.declared is None:
                wanted.append(Git(url, rev or branch or "HEAD"))
            case PyPIDefinition(project=project, version=version) if bench.declared is None:
                wanted.append(release(project, version, environ=environ))
            case _:
                pass
    with hold_base(Path(inputs.where.dirs.base), "install", say=print_note):
        require_fetched(
            fetch_sources(tuple(dict.fromkeys(wanted)), inputs.where.dirs, environ=environ, report=print_progress)
        )


def install_plan(plan: InstallPlan, inputs: CommandContext, *, force: bool, update: bool, jobs: int) -> int:
    """Carry the plan out and say what was done. Raises EnvironmentFailed with a line for each thing that failed."""
    from milabench.execute.base_lock import hold_base

    dirs = inputs.where.dirs
    if not (force or update) and is_installed(plan, dirs):
        print(f"install: nothing to do, {install_summary(plan)} are there", file=sys.stderr)
        return 0
    with hold_base(Path(dirs.base), "install", say=print_note):
        return install_locally(plan, dirs, force=force, update=update, jobs=jobs)


def is_installed(plan: InstallPlan, dirs: Dirs) -> bool:
    """Whether every program and every environment of the plan is there."""
    from milabench.execute.inventory import is_fetched, is_linked

    return all(is_fetched(dirs, source) for source in plan.sources) and all(
        is_linked(dirs, venv) for venv in plan.venvs
    )


def install_locally(plan: InstallPlan, dirs: Dirs, *, force: bool, update: bool, jobs: int) -> int:
    """Fetch and build what is missing. Raises EnvironmentFailed with a line for each thing that failed."""
    from milabench.execute.sources import SourceBroken, fetch_sources
    from milabench.execute.venv import InstallOptions, VenvBroken, install_venvs
    from milabench.workflow.environments import BENCHMATE

    began = time.monotonic()
    environ = dict(os.environ)
    fetched = fetch_sources(plan.sources, dirs, environ=environ, report=print_progress, jobs=jobs, force=force)
    made = install_venvs(
        plan.venvs,
        dirs,
        InstallOptions(benchmate=BENCHMATE, environ=environ, jobs=jobs, force=force, update=update),
        print_progress,
    )
    for venv in made:
        for note in () if isinstance(venv, VenvBroken) else venv.notes:
            print_note(f"{venv.group}: {note}")
    broken = [str(each) for each in (*fetched, *made) if isinstance(each, SourceBroken | VenvBroken)]
    if broken:
        raise EnvironmentFailed("\nerror: ".join(broken))
    new = sum(each.is_new for each in (*fetched, *made) if not isinstance(each, SourceBroken | VenvBroken))
    print(f"install: {new} made, {install_summary(plan)} ready ({time.monotonic() - began:.0f} s)", file=sys.stderr)
    for skip in plan.skipped:
        print(f"skipped: {skip.bench}: {skip.why}", file=sys.stderr)
    return 0


def install_summary(plan: InstallPlan) -> str:
    """How much a plan makes ready."""
    return f"{len(plan.venvs)} environments and {len(plan.sources)} programs"


def print_note(text: str) -> None:
    """Something that a person should know, beside the progress."""
    print(f"note: {text}", file=sys.stderr)


def print_progress(progress: InstallProgress) -> None:
    """One line of progress."""
    print(f"  {progress.subject}: {progress.stage}{f': {progress.detail}' if progress.detail else ''}", file=sys.stderr)


def check_only(inputs: CommandContext) -> int:
    """Say what the active interpreter lacks for the selected benchmarks; fetch their programs all the same.

    Raises EnvironmentFailed with everything that is missing.
    """
    from milabench.execute.current_env import check_current_env
    from milabench.execute.sources import SourceBroken, fetch_sources
    from milabench.workflow.environments import BENCHMATE, require_files, requirements_of, warn_of_unknown_needs

    require_files(inputs)
    warn_of_unknown_needs(inputs)
    plan_sources = {bench.config.name: bench.declared.source for bench in inputs.benches if bench.declared is not None}
    wanted = tuple(dict.fromkeys(source for source in plan_sources.values() if source is not None))
    fetched = fetch_sources(wanted, inputs.where.dirs, environ=dict(os.environ), report=print_progress)
    problems = [str(each) for each in fetched if isinstance(each, SourceBroken)]
    for bench in inputs.benches:
        file = requirements_of(bench, inputs)
        lacking = check_current_env([file] if file is not None else [])
        for lack in lacking:
            wanted_from = BENCHMATE if lack.requirement == "benchmate" else f"'{lack.requirement}'"
            problems.append(f"{bench.config.name}: {lack} in {sys.prefix} (pip install {wanted_from})")
    if problems:
        raise EnvironmentFailed("\nerror: ".join(problems))
    print(f"install: {sys.prefix} has everything that {len(inputs.benches)} benchmarks need", file=sys.stderr)
    return 0


def install_text(plan: InstallPlan) -> str:
    """The plan for a person: each environment and each program."""
    lines = [f"install plan {plan.hash[:12]}: {len(plan.venvs)} environments, {len(plan.sources)} programs"]
    for venv in plan.venvs:
        hashed = "hash-checked" if venv.is_hashed else "not hash-checked"
        lines.append(
            f"venv/{venv.group} -> .store/{venv.folder}  python {venv.python}, {venv.variant}, "
            f"{len(venv.lock.pins)} packages, {hashed}; for {', '.join(venv.benches)}"
        )
    lines += [f"code/{source.folder}" for source in plan.sources]
    lines += [f"image {image.name} of {image.engine}" for image in plan.images]
    lines += [f"skipped: {skip.bench}: {skip.why}" for skip in plan.skipped]
    return "\n".join(lines) + "\n"
