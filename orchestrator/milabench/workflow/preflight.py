"""Whether the environments and the data that a plan needs are there, and which command makes what is missing."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from milabench.cli.options import SuiteOptions
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
    warn_of_unknown_needs,
)


def missing_environments(inputs: CommandContext) -> tuple[str, ...]:
    """The environments, programs and images that `milabench install` has yet to make, as a person names them."""
    from milabench.workflow.remote_nodes import is_needed_here

    if not is_needed_here(inputs):
        return ()
    return (*_missing_here(inputs), *_missing_images(inputs))


def _missing_here(inputs: CommandContext) -> list[str]:
    """The environments and programs among them."""
    dirs = inputs.where.dirs
    programs = dict.fromkeys(source for source in sources(inputs).values() if source is not None)
    missing = [f"code/{source.folder}" for source in programs if not is_fetched(dirs, source)]
    if inputs.where.current_env is None:
        missing += [f"venv/{venv.group}" for venv in decide_install(inputs).venvs if not is_linked(dirs, venv)]
        return missing
    require_files(inputs)
    warn_of_unknown_needs(inputs)
    if not _has_benchmate():
        missing.append(f"benchmate in {sys.prefix} (pip install {BENCHMATE})")
    return missing


def _missing_images(inputs: CommandContext) -> list[str]:
    """The images that this machine's engines do not have; whether another node's do, its steps will tell."""
    wanted = images(inputs) if any(node.local for node in inputs.where.facts.nodes) else ()
    if not wanted:
        return []
    from milabench.execute.images import missing_images

    return missing_images(wanted)


def _has_benchmate() -> bool:
    from importlib.util import find_spec

    return find_spec("benchmate") is not None


def missing_preparations(inputs: CommandContext, plan: Plan, options: SuiteOptions) -> tuple[str, ...]:
    """The benchmarks of the plan whose prepare.py has not passed with the arguments of this plan."""
    from milabench.workflow.preparations import pending_preparations

    return _named(pending_preparations(inputs, options), inputs, plan)


def _named(todo: Plan, inputs: CommandContext, plan: Plan) -> tuple[str, ...]:
    """The preparations that are left to do and concern a plan, as a person names them."""
    wanted = {step.bench for step in plan.steps}
    several = len(inputs.where.facts.nodes) > 1
    return tuple(
        f"{step.bench} on {step.node}" if several else step.bench for step in todo.steps if step.bench in wanted
    )


def require_installed(inputs: CommandContext, options: SuiteOptions) -> None:
    """Raise EnvironmentFailed, with the command to give, unless every environment is there."""
    if missing := missing_environments(inputs):
        raise EnvironmentFailed(f"not installed: {', '.join(missing)}; run `{command_line('install', options)}`")


def require_ready(inputs: CommandContext, plan: Plan, options: SuiteOptions) -> None:
    """Raise EnvironmentFailed, with the command to give, unless everything that the plan needs is there."""
    from milabench.workflow.preparations import markers_elsewhere, preparation_steps, unprepared
    from milabench.workflow.remote_nodes import interpreters, remote_paths_exist, require_healthy

    require_healthy(inputs, options)
    require_installed(inputs, options)
    wanted = preparation_steps(inputs)
    pythons, markers = interpreters(inputs, plan), markers_elsewhere(wanted, inputs, options)
    found = remote_paths_exist(
        inputs, options, {node: [*pythons.get(node, ()), *markers.get(node, ())] for node in {**pythons, **markers}}
    )
    gone = [f"{path} on {node}" for node, paths in pythons.items() for path in paths if (node, path) not in found]
    if gone:
        raise EnvironmentFailed(f"not installed: {', '.join(gone)}; run `{command_line('install', options)}`")
    if missing := _named(unprepared(inputs, wanted, found), inputs, plan):
        raise EnvironmentFailed(f"not prepared: {', '.join(missing)}; run `{command_line('prepare', options)}`")


def command_line(verb: str, options: SuiteOptions) -> str:
    """The command that does `verb` for the same suite, base and selection."""
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


def environment_records(inputs: CommandContext) -> tuple[dict[str, str], dict[str, Mapping[str, str]]]:
    """What a run tells of its environments: `{group: sha256 of its locks}` and `{venv path: {package: version}}`."""
    if inputs.where.current_env is not None:
        return {}, {inputs.where.current_env: installed_packages()}
    locks: dict[str, str] = {}
    packages: dict[str, Mapping[str, str]] = {}
    for venv in decide_install(inputs).venvs:
        locks[venv.group] = venv.digest
        packages[str(Path(inputs.where.dirs.venv, venv.group))] = packages_of(Path(inputs.where.dirs.venv, venv.group))
    return locks, packages
