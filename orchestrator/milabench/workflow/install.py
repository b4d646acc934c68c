"""Installs the needs of the selected benchmarks: definitions, programs, environments, images; here and on nodes."""

from __future__ import annotations

import contextlib
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from milabench.bench.api import ForeignBenchmark, Git, Source
from milabench.config.definition import GitDefinition, PyPIDefinition
from milabench.errors import EnvironmentFailed
from milabench.execute.activities import Activities, Report
from milabench.execute.file_sync import RemoteFiles
from milabench.execute.git_commits import with_known_commits
from milabench.execute.install_session import InstallOptions, raise_failures
from milabench.execute.inventory import (
    is_complete,
    is_fetched,
    store_folder,
    venv_link,
)
from milabench.execute.locks import hold_base
from milabench.execute.remote_host import RemoteHost
from milabench.execute.sizes import disk_text
from milabench.execute.sources import fetch_sources, find_release
from milabench.execute.venv import install_venvs, link_to
from milabench.facts.model import Node
from milabench.plan.context import dirs_at
from milabench.plan.resources import ResourceSum, sum_of_environments
from milabench.plan.venvs import UNPINNED, InstallPlan, VenvSpec
from milabench.shown import counted
from milabench.workflow import environments
from milabench.workflow.context import on_this_machine, read_context
from milabench.workflow.options import CommandContext, InstallSettings, Session, SuiteOptions
from milabench.workflow.preflight import command_line, require_current_locks
from milabench.workflow.remote_nodes import is_needed_here, on_nodes, remote_nodes, require_healthy
from milabench.workflow.suites_used import record_use

SHOWN_EVERY_S = 1.0
DEFAULTS = InstallSettings()


def install(options: SuiteOptions, session: Session, settings: InstallSettings = DEFAULTS) -> None:
    """Install the environments, programs and images of a suite, here and on its other nodes.

    Raises EnvironmentFailed with a line for each thing that failed, or whose lock is stale unless `frozen`, ConfigError
    and Unreachable.
    """
    context = on_this_machine(read_context(options, session))
    require_healthy(context)
    how = InstallOptions(
        benchmate=str(environments.BENCHMATE),
        environ=dict(os.environ),
        jobs=settings.jobs,
        force=settings.force,
        update=settings.update,
        ignore_space=settings.ignore_space,
        devices=kinds_of_devices(context.machine),
    )
    # --force is for the environments: neither a definition nor a program beside the active interpreter is fetched again.
    unforced = replace(how, force=False)
    if any(bench.declared is None for bench in context.benches):
        fetch_definitions(context, unforced)
        context = on_this_machine(read_context(options, session))
    install_images(context, refetch=settings.force or settings.update)
    if options.use_current_env:
        check_active_environment(context, unforced)
        record_use(context, as_default=settings.as_default)
        return
    if not settings.frozen:
        require_current_locks(context)
    plan = environments.decide_install(context)
    warn_of_missing_locks(context)
    plan = replace(plan, venvs=with_known_commits(plan.venvs, context.dirs, how))
    # Environments that only other nodes use are built there, unless they are copied from here.
    is_local = is_needed_here(context) or "venv" in context.system.sync
    local = plan if is_local else replace(plan, venvs=())
    if is_local or local.sources:
        install_locally(local, context, how, as_default=settings.as_default)
    else:
        record_use(context, as_default=settings.as_default)
    install_on_nodes(plan, context, how)


def warn_of_missing_locks(context: CommandContext) -> None:
    """Warn once of foreign benchfiles without a lock for this machine. Note options without effect."""
    types = {
        str(bench.config.venv["type"]): bench.config.name
        for bench in context.benches
        if isinstance(bench.declared, ForeignBenchmark) and "type" in bench.config.venv
    }
    for kind, name in types.items():
        context.session.note(f"{name}: venv.type {kind} has no effect: every environment is made by uv")
    lacking = [bench.config.name for bench in context.benches if bench.config.name in context.missing_locks]
    if not lacking:
        return
    arch = context.plan_context.facts.arch
    limits = environments.constraints_for(context, UNPINNED)
    pin = command_line("pin", replace(context.options, select=",".join(lacking), exclude=None))
    context.session.warn(
        f"no {', '.join(dict.fromkeys(context.missing_locks[bench] for bench in lacking))}: installed from requirements.in"
        + (f" within {limits.name}" if limits is not None else "")
        + f", in the versions of another lock where they fit, else the newest. `{pin} --variant {arch}` writes the lock"
    )


def kinds_of_devices(node: Node) -> tuple[str, ...]:
    """Return the kinds of accelerators that a node has, as far as it was asked or its system file says."""
    return tuple(dict.fromkeys(device.arch for device in node.devices if device.arch != "cpu"))


def fetch_definitions(context: CommandContext, how: InstallOptions) -> None:
    """Fetch the benchmarks' folders that are missing. Raises EnvironmentFailed with a line for each that cannot be."""
    wanted: list[Source] = []
    for bench in context.benches:
        match bench.config.definition:
            case GitDefinition(url=url, rev=rev, branch=branch) if bench.declared is None:
                wanted.append(Git(url, rev or branch or "HEAD"))
            case PyPIDefinition(project=project, version=version) if bench.declared is None:
                wanted.append(find_release(project, version, environ=how.environ))
            case _:
                pass
    with hold_base(Path(context.dirs.base), "install", say=context.session.note):
        with progress_shown(context.session) as activities:
            fetched = fetch_sources(tuple(dict.fromkeys(wanted)), context.dirs, how, activities)
        # While the base is held: a `gc` that comes before the environments are made must find them in use.
        record_use(context, as_default=False)
    raise_failures(fetched)


@contextlib.contextmanager
def progress_shown(session: Session, report: Report | None = None) -> Iterator[Activities]:
    """Yield the activities that are shown until the end: on a terminal every second, in a log every ten."""
    activities = Activities(report or progress_report(session))
    with (
        contextlib.closing(session.reporter.open_display()) as display,
        activities.watched(display.on_activities, every_s=SHOWN_EVERY_S),
    ):
        yield activities


def progress_report(session: Session) -> Report:
    """Return the function that reports each stage of an installation as a line. It is called from several threads."""
    return lambda stage: session.info(f"  {stage}")


def install_images(context: CommandContext, *, refetch: bool) -> None:
    """Fetch the images of the selected benchmarks' containers on all nodes.

    Raises EnvironmentFailed with a line for each that cannot be fetched, and Unreachable.
    """
    wanted = environments.images(context)
    if not wanted:
        return

    from milabench.execute.images import fetch_images, fetch_on_host

    session = context.session
    if any(node.local for node in context.nodes):
        with progress_shown(session) as activities:
            fetched = fetch_images(wanted, refetch=refetch, activities=activities)
        session.info(f"install: {fetched} images fetched, {len(wanted)} present")

    with progress_shown(session) as remote_activities:

        async def fetch(node: Node, _: RemoteFiles, host: RemoteHost) -> None:
            remote_activities.now(node.name, "fetching images")
            images = environments.images(context, dirs_at(context.plan_context, node).cache)
            await fetch_on_host(host, images, refetch=refetch)
            remote_activities.over(node.name)

        on_nodes(context, fetch, remote_nodes(context))


def install_locally(
    plan: InstallPlan, context: CommandContext, how: InstallOptions, *, as_default: bool = True
) -> None:
    """Fetch and build missing parts on this machine. Raises EnvironmentFailed with a line for each failure."""
    dirs, session = context.dirs, context.session
    is_all_there = all(is_fetched(dirs, source) for source in plan.sources) and all(
        is_complete(dirs, venv) for venv in plan.venvs
    )
    if is_all_there and not (how.force or how.update):
        for venv in plan.venvs:
            with contextlib.suppress(OSError):  # a base that somebody else has installed, and that can only be read
                link_to(venv_link(dirs, venv.group), store_folder(dirs, venv))
        record_use(context, as_default=as_default)
        session.info(f"install: nothing to do, {install_summary(plan)} are installed")
        return
    needs = environments_of(context, plan, lambda venv: how.force or how.update or not is_complete(dirs, venv))
    if needs.disk or needs.download:
        session.info(f"install: {resources_text(needs, plan.venvs)}")
    with hold_base(Path(dirs.base), "install", say=session.note), progress_shown(session) as activities:
        began = time.monotonic()
        # Environments first: they say what they need, and are refused where it does not fit.
        built = install_venvs(plan.venvs, dirs, how, activities)
        fetched = fetch_sources(plan.sources, dirs, how, activities)
        # While the base is held: a `gc` that waits for it must find what was built in use.
        record_use(context, as_default=as_default)
    for result in built:
        for note in result.notes:
            session.note(f"{result.name}: {note}")
    raise_failures((*fetched, *built))
    new = sum(result.is_new for result in (*fetched, *built))
    session.info(f"install: {new} made, {install_summary(plan)} ready ({time.monotonic() - began:.0f} s)")
    for skip in plan.skipped:
        session.info(f"skipped: {skip.bench}: {skip.why}")


def install_on_nodes(plan: InstallPlan, context: CommandContext, how: InstallOptions) -> None:
    """Install on a node of every other file system, on all at once. Raises EnvironmentFailed and Unreachable."""
    if not remote_nodes(context):
        return

    from milabench.execute.remote_install import install_remotely

    began = time.monotonic()
    dirs, session = context.dirs, context.session

    with (
        tempfile.TemporaryDirectory(prefix="milabench-") as scratch,
        progress_shown(session, session.note) as activities,
    ):

        async def install_node(node: Node, files: RemoteFiles, host: RemoteHost) -> None:
            if not node.storage:
                return
            remote = dirs_at(context.plan_context, node)
            activities.now(node.name, "sending programs")
            for source in plan.sources:
                await files.send(Path(dirs.code, source.folder), f"{remote.code}/{source.folder}")
            if "venv" in context.system.sync:
                if remote.venv != dirs.venv:
                    # The scripts of an environment begin with the absolute path of its interpreter.
                    what = f"an environment cannot be moved from {dirs.venv} to {remote.venv}"
                    raise EnvironmentFailed(f"{node.name}: {what}. Give both the same base, or leave out system.sync")
                for venv in plan.venvs:
                    activities.now(node.name, f"sending {venv.group}")
                    await files.send(store_folder(dirs, venv), str(store_folder(remote, venv)), thorough=False)
                    await files.link(f"{remote.venv}/{venv.group}", str(store_folder(remote, venv)))
                activities.over(node.name)
                return
            activities.now(node.name, "installing")
            benchmate = f"{remote.base}/definitions/benchmate"
            await files.send(environments.BENCHMATE, benchmate)
            is_same_machine = node.details.get("machine") == platform.machine()
            # A program of this machine's architecture; elsewhere pip does the work.
            own_uv = Path(how.uv) if how.uv is not None and is_same_machine else None
            options = replace(how, benchmate=benchmate, environ={}, uv=None, devices=kinds_of_devices(node))
            await install_remotely(
                host, files, plan.venvs, remote, options, Path(scratch), uv=own_uv, activities=activities
            )
            activities.over(node.name)

        on_nodes(context, install_node)
    session.info(f"install: {install_summary(plan)} ready on every node ({time.monotonic() - began:.0f} s)")


def environments_of(
    context: CommandContext, plan: InstallPlan, is_wanted: Callable[[VenvSpec], bool] = lambda _: True
) -> ResourceSum:
    """Return the sizes of a plan's environments, as their benchmarks state them. Only of the wanted environments."""
    names = {bench for venv in plan.venvs if is_wanted(venv) for bench in venv.benches}
    return sum_of_environments(bench for bench in context.suite.benchmarks.values() if bench.name in names)


def resources_text(needs: ResourceSum, venvs: Iterable[VenvSpec]) -> str:
    """Return the sizes of environments in a line, with unstated sizes and the variant for which they are stated."""
    others = sorted({venv.variant for venv in venvs} - {"cpu", "unpinned"})
    known = f"about {disk_text(needs.disk, needs.download)}"
    if others:
        known += f" (stated for the variant cpu: {', '.join(others)} may take several times that)"
    if not needs.unknown:
        return f"environments: {known}"
    names = ", ".join(needs.unknown)
    if not needs.disk and not needs.download:
        return f"environments: the suite does not state the size of {names}"
    return f"environments: {known}, and {names}, which the suite does not state"


def install_summary(plan: InstallPlan) -> str:
    """Return how much a plan installs."""
    return f"{counted(len(plan.venvs), 'environment')} and {counted(len(plan.sources), 'program')}"


def check_active_environment(context: CommandContext, how: InstallOptions) -> None:
    """Check for which of the selected benchmarks the active interpreter has the packages. Fetch the programs of these.

    Raises EnvironmentFailed with everything that is missing where it is for none.
    """
    session = context.session
    environments.require_files(context)
    environments.warn_of_unknown_requirements(context)
    fetched = fetch_sources(environments.sources(context), context.dirs, how, Activities(progress_report(session)))
    problems = [str(result) for result in fetched if result.why]
    if find_spec("benchmate") is None:
        problems.append(f"benchmate: not installed in {sys.prefix} ({environments.benchmate_command()})")
    lacking = context.plan_context.unavailable
    if len(lacking) == len(context.benches):
        problems += [f"{bench}: {why}" for bench, why in lacking.items()]
    if problems:
        raise EnvironmentFailed("\nerror: ".join(problems))
    for skip in environments.left_out_benches(context):
        session.info(f"skipped: {skip.bench}: {skip.why}")
    count = len(context.benches) - len(lacking)
    session.info(f"install: {sys.prefix} has everything that {counted(count, 'benchmark')} need{'s' * (count == 1)}")


def install_text(plan: InstallPlan) -> str:
    """Return the plan for a person: each environment, program and image."""
    lines = [f"install plan {plan.hash[:12]}: {install_summary(plan)}"]
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
