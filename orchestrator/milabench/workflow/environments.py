"""Reads what shapes the environments (requirement files, constraints, benchmate's source) and plans the install from it."""

from __future__ import annotations

import platform
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from milabench.bench.api import Source
from milabench.bench.load import missing_files
from milabench.errors import ConfigError, EnvironmentFailed, Problem
from milabench.execute.inventory import benchmate_digest
from milabench.plan.context import COMMAND, ResolvedBenchmark
from milabench.plan.model import SkippedBench
from milabench.workflow.context import ROOT, CommandContext, warn_user

if TYPE_CHECKING:
    from milabench.plan.image import Image
    from milabench.plan.install import InstallPlan
    from milabench.plan.requirements import RequirementFile
    from milabench.plan.venvs import VenvRequest

BENCHMATE = ROOT / "benchmate"
CONSTRAINTS = ROOT / "constraints"


def decide_install(inputs: CommandContext) -> InstallPlan:
    """The environments and sources of the selected benchmarks. Raises ConfigError for what is missing or contradicts itself."""
    from milabench.plan.install import plan_install

    selected = {bench.config.name for bench in inputs.benches}
    require_files(inputs)
    return plan_install(
        venv_requests(inputs),
        sources(inputs),
        benchmate=benchmate_digest(BENCHMATE),
        python=f"{sys.version_info.major}.{sys.version_info.minor}",
        platform=f"{sys.platform}-{platform.machine()}",
        selected=selected,
        images=images(inputs),
        skipped=[
            SkippedBench(bench=bench.config.name, why="not fetched")
            for bench in inputs.benches
            if bench.declared is None
        ],
    )


def require_files(inputs: CommandContext) -> None:
    """Raise ConfigError for the files that benchfiles name and that are not there."""
    gone = [
        Problem(where=str(path), path=bench.config.name, what="no such file", hint="its benchfile names it")
        for bench in inputs.benches
        if bench.declared is not None
        for path in missing_files(bench.declared, Path(bench.folder))
    ]
    if gone:
        raise ConfigError(gone)


def sources(inputs: CommandContext) -> dict[str, Source | None]:
    """Where each selected benchmark's program comes from; None for one that stands in the benchmark's own folder."""
    return {bench.config.name: bench.declared.source for bench in inputs.benches if bench.declared is not None}


def images(inputs: CommandContext, cache: str | None = None) -> tuple[Image, ...]:
    """The images of the selected benchmarks' containers, each once; `cache` is that of the node, by default this machine's.

    Raises ConfigError for a container without one.
    """
    from milabench.plan.container import container_of
    from milabench.plan.image import image_of

    found = (container_of(bench.config, inputs.where.system) for bench in inputs.benches)
    place = inputs.where.dirs.cache if cache is None else cache
    return tuple(dict.fromkeys(image_of(each.engine, each.image, place) for each in found if each is not None))


def venv_requests(inputs: CommandContext) -> tuple[VenvRequest, ...]:
    """What the benchmarks that share an environment with a selected one ask of it."""
    from milabench.plan.venvs import VenvRequest

    groups = {bench.config.install_group for bench in inputs.benches if bench.declared is not None}
    selected = {bench.config.name: bench for bench in inputs.benches}
    requests: list[VenvRequest] = []
    problems: list[Problem] = []
    for config in inputs.suite.benchmarks.values():
        if config.install_group not in groups or not isinstance(config.definition, Path):
            continue
        if not config.enabled and config.name not in selected:
            continue
        file = requirement_file(config.definition, config.install_variant)
        if file is None:
            problems.append(
                Problem(
                    where=str(config.definition),
                    path=config.name,
                    what=f"has no {requirements_name(config.install_variant)}",
                    hint=f"{_way_to(config.install_variant)}, or choose another variant with install_variant",
                )
            )
            continue
        requests.append(
            VenvRequest(
                bench=config.name,
                group=config.install_group,
                variant=config.install_variant,
                requirements=(file,),
                constraints=constraints_for(inputs, config.install_variant),
                pip={str(key): str(value) for key, value in config.pip.items()},
                arch=inputs.where.facts.arch,
            )
        )
    if problems:
        raise ConfigError(problems)
    return tuple(requests)


def requirements_name(variant: str) -> str:
    """The name of a variant's requirement file."""
    from milabench.plan.venvs import UNPINNED

    return "requirements.in" if variant == UNPINNED else f"requirements.{variant}.txt"


def _way_to(variant: str) -> str:
    """How a variant's requirement file comes to be."""
    name = requirements_name(variant)
    return f"write {name}, empty where nothing is needed" if name.endswith(".in") else "write it with `milabench pin`"


def warn_of_unknown_needs(inputs: CommandContext) -> None:
    """Warn, where the active interpreter serves for all benchmarks, of those that do not say what they need of it."""
    for bench in inputs.benches:
        variant = bench.config.install_variant
        if (
            bench.declared is not None
            and bench.declared is not COMMAND
            and not Path(bench.folder, requirements_name(variant)).is_file()
        ):
            warn_user(
                f"{bench.config.name}: has no {requirements_name(variant)}, so that only benchmate is looked for in "
                f"{sys.prefix}; {_way_to(variant)}"
            )


def requirement_file(folder: Path, variant: str) -> RequirementFile | None:
    """A benchmark's requirement file for a variant, read; None when there is none."""
    path = folder / requirements_name(variant)
    return read_file(path) if path.is_file() else None


def constraints_for(inputs: CommandContext, variant: str) -> RequirementFile | None:
    """`constraints/<variant>.txt`; what is unpinned is held by those of the system's arch."""
    from milabench.plan.venvs import UNPINNED

    path = CONSTRAINTS / f"{inputs.where.facts.arch if variant == UNPINNED else variant}.txt"
    return read_file(path) if path.is_file() else None


def read_file(path: Path) -> RequirementFile:
    """A requirement file, read. Raises EnvironmentFailed when it cannot be."""
    from milabench.plan.requirements import RequirementFile

    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    try:
        return RequirementFile(name=str(shown), text=path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise EnvironmentFailed(f"{shown}: cannot be read: {error}") from None


def requirements_of(bench: ResolvedBenchmark, inputs: CommandContext) -> RequirementFile | None:
    """The requirement file that shapes a benchmark's environment."""
    return requirement_file(Path(bench.folder), bench.config.install_variant)
