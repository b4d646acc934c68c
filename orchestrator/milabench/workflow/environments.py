"""Reads the inputs of environments (requirement files, constraints, benchmate's source) and plans the install from them."""

from __future__ import annotations

import platform
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from milabench.bench.api import Source
from milabench.bench.load import load_benchfile, missing_files, requirements_folder
from milabench.bench.registry import BENCHFILE
from milabench.errors import ConfigError, MilabenchError, Problem, UsageError
from milabench.execute.inventory import (
    benchmate_digest,
    installed_packages,
    packages_of,
    store_folder,
    unmet_requirements,
)
from milabench.plan.container import Image, container_of, image_of
from milabench.plan.context import COMMAND
from milabench.plan.model import SkippedBench
from milabench.plan.pin import BACKENDS
from milabench.plan.requirements import RequirementFile, parse_requirements
from milabench.plan.venvs import UNPINNED, InstallPlan, VenvRequest, plan_venvs
from milabench.workflow.files import ROOT
from milabench.workflow.foreign_environments import foreign_request, foreign_requirements
from milabench.workflow.requirement_files import included_files, read_requirements, required_packages

if TYPE_CHECKING:
    from milabench.plan.context import ResolvedBenchmark
    from milabench.workflow.options import CommandContext

BENCHMATE = ROOT / "benchmate"
CONSTRAINTS = ROOT / "constraints"


def decide_install(context: CommandContext) -> InstallPlan:
    """Return the environments and sources of the selected benchmarks. Raises ConfigError for missing or contradictory inputs."""
    require_files(context)
    venvs = plan_venvs(
        venv_requests(context),
        benchmate=benchmate_digest(BENCHMATE),
        python=f"{sys.version_info.major}.{sys.version_info.minor}",
        platform=f"{sys.platform}-{platform.machine()}",
        selected={bench.config.name for bench in context.benches},
    )
    skipped = tuple(left_out_benches(context))
    return InstallPlan(venvs=venvs, sources=sources(context), images=images(context), skipped=skipped)


def environment_folders(context: CommandContext) -> dict[str, str]:
    """Return the folder of each environment of the selected benchmarks below `dirs.venv`, by its install group.

    Empty where they cannot be decided, a lock being missing: a plan can still be shown, and a run reports the problem.
    """
    if context.plan_context.current_env is not None:
        return {}
    try:
        venvs = decide_install(context).venvs
    except MilabenchError:
        return {}
    return {venv.group: str(store_folder(context.dirs, venv).relative_to(context.dirs.venv)) for venv in venvs}


def left_out_benches(context: CommandContext) -> list[SkippedBench]:
    """Return the selected benchmarks whose definition has yet to be fetched, or whose packages the active interpreter lacks."""
    unavailable = context.plan_context.unavailable
    return [
        SkippedBench(bench=bench.config.name, why=unavailable.get(bench.config.name, "not fetched"))
        for bench in context.benches
        if bench.declared is None or bench.config.name in unavailable
    ]


def unavailable_benches(context: CommandContext) -> dict[str, str]:
    """Return why selected benchmarks cannot run in the active interpreter: the packages that it lacks, and what gets them.

    Empty where each has an environment of its own. Each benchmark's requirements.in counts, as a person wrote it. Its lock, with
    exact versions, counts only without that file. Of requirements that several benchmarks share, only the `packages` of each
    count.
    """
    with_packages = [bench for bench in context.benches if bench.declared is not None and bench.declared is not COMMAND]
    if context.plan_context.current_env is None or not with_packages:
        return {}
    installed = installed_packages()
    lacking: dict[str, str] = {}
    for bench in with_packages:
        assert bench.declared is not None
        folder, variant = requirements_of_benchmark(bench), bench.config.install_variant
        source = requirements_source(folder, variant)
        lock = None if source.is_file() else requirement_file(folder, variant)
        files = included_files(source) if lock is None else [lock]
        unmet = unmet_requirements(files, installed)
        if own := {pin.name for pin in parse_requirements("\n".join(bench.declared.packages)).pins}:
            unmet = {line: state for line, state in unmet.items() if parse_requirements(line).pins[0].name in own}
        unmet.pop("benchmate", None)  # the instruments are not the benchmark's: without them nothing is measured
        if unmet:
            needs = ", ".join(f"{requirement} ({state})" for requirement, state in unmet.items())
            lacking[bench.config.name] = f"needs {needs} in {sys.prefix}: {shlex.join(['pip', 'install', *unmet])}"
    return lacking


def benchmate_command() -> str:
    """Return the command that installs the instruments into the active interpreter."""
    return shlex.join(["pip", "install", str(BENCHMATE)])


def require_files(context: CommandContext) -> None:
    """Raise ConfigError for the files that benchfiles name and that do not exist."""
    problems = [
        Problem(str(path), bench.config.name, "no such file", "its benchfile names it")
        for bench in context.benches
        if bench.declared is not None
        for path in missing_files(bench.declared, Path(bench.folder))
    ]
    if problems:
        raise ConfigError(problems)


def sources(context: CommandContext) -> tuple[Source, ...]:
    """Return the sources of the selected benchmarks' programs, each once. A program in a benchmark's own folder has none."""
    left_out = context.plan_context.unavailable
    used = (bench for bench in context.benches if bench.config.name not in left_out)
    declared = (bench.declared.source for bench in used if bench.declared is not None)
    return tuple(dict.fromkeys(source for source in declared if source is not None))


def images(context: CommandContext, cache: str | None = None) -> tuple[Image, ...]:
    """Return the images of the selected benchmarks' containers, each once. `cache` is the node's, by default this machine's.

    Raises ConfigError for a container without an image.
    """
    folder = context.dirs.cache if cache is None else cache
    containers = (container_of(bench.config, context.system) for bench in context.benches)
    return tuple(dict.fromkeys(image_of(box.engine, box.image, folder) for box in containers if box is not None))


def venv_requests(context: CommandContext) -> tuple[VenvRequest, ...]:
    """Return the requirements that benchmarks sharing an environment with a selected benchmark have on it."""
    from milabench.execute.venv_build import benchmate_requirements

    # Not only of the selected ones: which benchmark is installed first must not change the environment that they share.
    groups = {bench.config.install_group for bench in context.benches if bench.declared is not None}
    selected = {bench.config.name: bench for bench in context.benches}
    lock = _given_lock(context)
    requests: list[VenvRequest] = []
    problems: list[Problem] = []
    for config in context.suite.benchmarks.values():
        if config.install_group not in groups or not isinstance(config.definition, Path):
            continue
        if not config.enabled and config.name not in selected:
            continue
        if lock is None and (names := foreign_requirements(config.definition)) is not None:
            request = foreign_request(
                config,
                names,
                constraints=constraints_for(context, UNPINNED),
                arch=context.plan_context.facts.arch,
                instruments=benchmate_requirements(BENCHMATE),
                is_lock_missing=config.name in context.missing_locks,
            )
            requests.append(request)
            continue
        folder = requirements_of(config.definition)
        file = lock or requirement_file(folder, config.install_variant)
        if file is None:
            problems.append(
                Problem(
                    str(folder),
                    config.name,
                    f"has no {requirements_name(config.install_variant)}",
                    f"{_how_to_add(config.install_variant)}, or choose another variant with install_variant",
                )
            )
            continue
        variant, header = config.install_variant, parse_requirements(file.text).header
        if lock is not None:
            variant = header.get("variant", context.plan_context.facts.arch)
        requests.append(
            VenvRequest(
                bench=config.name,
                group=config.install_group,
                variant=variant,
                requirements=(file,),
                constraints=constraints_for(context, variant),
                pip={str(key): str(value) for key, value in config.pip.items()},
                arch=context.plan_context.facts.arch,
                required=required_packages(
                    requirements_source(folder, variant),
                    python=header.get("python", ""),
                ),
            )
        )
    if problems:
        raise ConfigError(problems)
    return tuple(requests)


def _given_lock(context: CommandContext) -> RequirementFile | None:
    """Return the lock that the command names. Raises UsageError where several environments are selected."""
    if context.options.lock is None:
        return None
    groups = sorted({bench.config.install_group for bench in context.benches if bench.declared is not COMMAND})
    if len(groups) > 1:
        raise UsageError(
            f"{context.options.lock}: is the lock of a single environment, and the selected benchmarks have {len(groups)} "
            f"({', '.join(groups)}). --select the benchmarks of a single environment"
        )
    return read_requirements(context.options.lock)


def requirements_of(definition: Path) -> Path:
    """Return the folder of a definition's requirement files. Raises ConfigError for a benchfile that cannot be read."""
    if not (definition / BENCHFILE).is_file() or foreign_requirements(definition) is not None:
        return definition
    return requirements_folder(load_benchfile(definition), definition)


def requirements_of_benchmark(bench: ResolvedBenchmark) -> Path:
    """Return the folder of the requirement files of a selected benchmark."""
    folder = Path(bench.folder)
    return folder if bench.declared is None else requirements_folder(bench.declared, folder)


def requirements_name(variant: str) -> str:
    """Return the name of a variant's requirement file."""
    return "requirements.in" if variant == UNPINNED else f"requirements.{variant}.txt"


def _how_to_add(variant: str) -> str:
    """Return a hint how to create a variant's requirement file."""
    name = requirements_name(variant)
    if name.endswith(".in"):
        return f"write {name}, empty where nothing is needed"
    is_written = variant in (*BACKENDS, "cuda")
    return "write it with `milabench pin`" if is_written else f"copy its lock to {name}, and change versions there"


def warn_of_unknown_requirements(context: CommandContext) -> None:
    """Warn, where the active interpreter serves all benchmarks, of those that do not declare their requirements."""
    for bench in context.benches:
        variant = bench.config.install_variant
        if (
            bench.declared is not None
            and bench.declared is not COMMAND
            and not Path(requirements_of_benchmark(bench), requirements_name(variant)).is_file()
        ):
            context.session.warn(
                f"{bench.config.name}: has no {requirements_name(variant)}, so only benchmate is looked for in "
                f"{sys.prefix}: {_how_to_add(variant)}"
            )


def requirements_source(folder: Path, variant: str) -> Path:
    """Return the file that a benchmark's lock for a variant is made from: requirements.<variant>.in, else requirements.in."""
    own = folder / f"requirements.{variant}.in"
    return own if own.is_file() else folder / "requirements.in"


def requirement_file(folder: Path, variant: str) -> RequirementFile | None:
    """Return a benchmark's requirement file for a variant. None when there is none."""
    path = folder / requirements_name(variant)
    return read_requirements(path) if path.is_file() else None


def constraints_for(context: CommandContext, variant: str) -> RequirementFile | None:
    """Return `constraints/<variant>.txt`. For an unpinned variant the constraints of the system's arch."""
    path = CONSTRAINTS / f"{context.plan_context.facts.arch if variant == UNPINNED else variant}.txt"
    return read_requirements(path) if path.is_file() else None


def environment_records(context: CommandContext) -> tuple[dict[str, str], dict[str, Mapping[str, str]]]:
    """Return `{group: sha256 of its locks}` and `{venv path: {package: version}}`, for the records of a run."""
    if context.plan_context.current_env is not None:
        # milabench did not make this environment: it has no lock, only packages.
        return {}, {context.plan_context.current_env: installed_packages()}
    locks: dict[str, str] = {}
    packages: dict[str, Mapping[str, str]] = {}
    for venv in decide_install(context).venvs:
        folder = store_folder(context.dirs, venv)
        locks[venv.group] = venv.digest
        packages[str(folder)] = packages_of(folder)
    return locks, packages
