"""Checks that the environments and the data of a plan exist, and names the command that creates what is missing."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from milabench.errors import EnvironmentFailed
from milabench.execute.inventory import installed_packages, is_fetched, is_linked, packages_of
from milabench.plan.model import Plan
from milabench.workflow.context import CommandContext
from milabench.workflow.environments import (
    BENCHMATE,
    decide_install,
    images,
    require_files,
    sources,
    warn_of_unknown_requirements,
)
from milabench.workflow.options import SuiteOptions


def missing_environments(context: CommandContext) -> tuple[str, ...]:
    """Return the environments, programs and images that `milabench install` has yet to create, as a person names them."""
    from milabench.workflow.remote_nodes import is_needed_here

    if not is_needed_here(context):
        return ()
    return (*_missing_local(context), *_missing_images(context))


def _missing_local(context: CommandContext) -> list[str]:
    """Return the environments and programs that are missing on this machine."""
    dirs = context.dirs
    programs = dict.fromkeys(source for source in sources(context).values() if source is not None)
    missing = [f"code/{source.folder}" for source in programs if not is_fetched(dirs, source)]
    if context.plan_context.current_env is None:
        missing += [f"venv/{venv.group}" for venv in decide_install(context).venvs if not is_linked(dirs, venv)]
        return missing
    require_files(context)
    warn_of_unknown_requirements(context)
    if not _has_benchmate():
        missing.append(f"benchmate in {sys.prefix} (pip install {BENCHMATE})")
    return missing


def _missing_images(context: CommandContext) -> list[str]:
    """Return the images that this machine's engines do not have; on another node, its steps will fail without them."""
    wanted = images(context) if any(node.local for node in context.nodes) else ()
    if not wanted:
        return []
    from milabench.execute.images import missing_images

    return missing_images(wanted)


def _has_benchmate() -> bool:
    from importlib.util import find_spec

    return find_spec("benchmate") is not None


def missing_preparations(context: CommandContext, plan: Plan) -> tuple[str, ...]:
    """Return the benchmarks of the plan whose prepare.py has not passed with the arguments of this plan."""
    from milabench.workflow.preparations import pending_preparations

    return _names(pending_preparations(context), context, plan)


def _names(pending: Plan, context: CommandContext, plan: Plan) -> tuple[str, ...]:
    """Return the pending preparations that concern a plan, as a person names them."""
    wanted = {step.bench for step in plan.steps}
    several = len(context.nodes) > 1
    return tuple(
        f"{step.bench} on {step.node}" if several else step.bench for step in pending.steps if step.bench in wanted
    )


def require_installed(context: CommandContext) -> None:
    """Raise EnvironmentFailed, with the command to give, unless every environment exists."""
    _require_none("not installed", missing_environments(context), "install", context)


def _require_none(what: str, missing: Sequence[str], verb: str, context: CommandContext) -> None:
    if missing:
        raise EnvironmentFailed(f"{what}: {', '.join(missing)}; run `{command_line(verb, context.options)}`")


def require_ready(context: CommandContext, plan: Plan) -> None:
    """Raise EnvironmentFailed, with the command to give, unless everything that the plan needs exists on every node."""
    from milabench.workflow.preparations import preparation_steps, remote_markers, unprepared
    from milabench.workflow.remote_nodes import interpreters, remote_paths_exist, require_healthy

    require_healthy(context)
    require_installed(context)
    preparations = preparation_steps(context)
    pythons, markers = interpreters(context, plan), remote_markers(preparations, context)
    existing = remote_paths_exist(
        context, {node: [*pythons.get(node, ()), *markers.get(node, ())] for node in {**pythons, **markers}}
    )
    missing = [f"{path} on {node}" for node, paths in pythons.items() for path in paths if (node, path) not in existing]
    _require_none("not installed", missing, "install", context)
    pending = unprepared(context, preparations, existing)
    _require_none("not prepared", _names(pending, context, plan), "prepare", context)


def command_line(verb: str, options: SuiteOptions) -> str:
    """Return the command line of `verb` for the same suite, base and selection."""
    words = ["milabench", verb]
    for flag, value in (
        ("--config", options.config_file),
        ("--system", options.system_file),
        ("--base", options.base),
        ("--max-jobs", options.max_jobs),
        ("--arch", options.arch),
        ("--select", options.select),
        ("--exclude", options.exclude),
    ):
        if value is not None:
            words += [flag, str(value)]
    for override in options.overrides:
        words += ["--override", override]
    if options.use_current_env:
        words.append("--use-current-env")
    return shlex.join(words)


def environment_records(context: CommandContext) -> tuple[dict[str, str], dict[str, Mapping[str, str]]]:
    """Return `{group: sha256 of its locks}` and `{venv path: {package: version}}`, for the records of a run."""
    if context.plan_context.current_env is not None:
        return {}, {context.plan_context.current_env: installed_packages()}
    locks: dict[str, str] = {}
    packages: dict[str, Mapping[str, str]] = {}
    for venv in decide_install(context).venvs:
        locks[venv.group] = venv.digest
        packages[str(Path(context.dirs.venv, venv.group))] = packages_of(Path(context.dirs.venv, venv.group))
    return locks, packages
