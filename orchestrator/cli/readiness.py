"""Whether the environments and the data that a plan needs are there, and which command makes what is missing."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from orchestrator.cli.environments import BENCHMATE, decide_install
from orchestrator.cli.inputs import Inputs
from orchestrator.cli.options import SuiteOptions
from orchestrator.errors import EnvironmentFailed
from orchestrator.execute.sources import is_fetched
from orchestrator.execute.venv import is_ready
from orchestrator.plan.model import Plan


def missing_environments(inputs: Inputs) -> tuple[str, ...]:
    """The environments and programs that `milabench install` has yet to make, as a person names them."""
    plan = decide_install(inputs)
    dirs = inputs.where.dirs
    missing = [f"code/{source.folder}" for source in plan.sources if not is_fetched(dirs, source)]
    if inputs.where.current_env is None:
        missing += [f"venv/{venv.group}" for venv in plan.venvs if not is_ready(dirs, venv)]
    elif not _has_benchmate():
        missing.append(f"benchmate in {sys.prefix} (pip install {BENCHMATE})")
    return tuple(missing)


def _has_benchmate() -> bool:
    from importlib.util import find_spec

    return find_spec("benchmate") is not None


def missing_preparations(inputs: Inputs, plan: Plan) -> tuple[str, ...]:
    """The benchmarks of the plan whose prepare.py has not passed with the arguments of this plan."""
    from orchestrator.cli.preparations import decide

    wanted = {step.bench for step in plan.steps}
    return tuple(step.bench for step in decide(inputs).steps if step.bench in wanted)


def require_installed(inputs: Inputs, options: SuiteOptions) -> None:
    """Raise EnvironmentFailed, with the command to give, unless every environment is there."""
    if missing := missing_environments(inputs):
        raise EnvironmentFailed(f"not installed: {', '.join(missing)}; run `{command_line('install', options)}`")


def require_ready(inputs: Inputs, plan: Plan, options: SuiteOptions) -> None:
    """Raise EnvironmentFailed, with the command to give, unless everything that the plan needs is there."""
    require_installed(inputs, options)
    if missing := missing_preparations(inputs, plan):
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


def environment_records(inputs: Inputs) -> tuple[dict[str, str], dict[str, Mapping[str, str]]]:
    """What a run tells of its environments: `{group: sha256 of its locks}` and `{venv path: {package: version}}`."""
    if inputs.where.current_env is not None:
        return {}, {inputs.where.current_env: _packages_here()}
    locks: dict[str, str] = {}
    packages: dict[str, Mapping[str, str]] = {}
    for venv in decide_install(inputs).venvs:
        locks[venv.group] = venv.digest
        packages[str(Path(inputs.where.dirs.venv, venv.group))] = _packages_in(Path(inputs.where.dirs.venv, venv.group))
    return locks, packages


def _packages_here() -> dict[str, str]:
    from orchestrator.execute.current_env import installed_packages

    return installed_packages()


def _packages_in(venv: Path) -> dict[str, str]:
    """The packages of an environment, from the names of their metadata folders (`name-version.dist-info`)."""
    found = sorted(venv.glob("lib/python*/site-packages/*.dist-info"))
    names = (folder.name.removesuffix(".dist-info").rpartition("-") for folder in found)
    return {name: version for name, _, version in names}
