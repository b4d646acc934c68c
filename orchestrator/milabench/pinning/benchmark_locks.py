"""The lock files of the selected benchmarks: which there are to write, from which requirements."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from milabench.errors import EnvironmentFailed
from milabench.execute.venv_build import benchmate_requirements
from milabench.pinning.compiled_locks import PinInput, pin_specs
from milabench.pinning.pinned_locks import pin_locks
from milabench.plan.requirements import RequirementFile
from milabench.plan.venvs import UNPINNED
from milabench.workflow import environments
from milabench.workflow.context import read_context
from milabench.workflow.files import require_file
from milabench.workflow.foreign_environments import ADDED, foreign_requirements, lock_name
from milabench.workflow.install import progress_report
from milabench.workflow.options import CommandContext, Session, SuiteOptions


def pin_benchmarks(
    options: SuiteOptions, variants: Sequence[str], python: str, session: Session, *, is_proposal: bool = False
) -> None:
    """Write the locks of the selected benchmarks for these variants, by default the system's, and this Python.

    Of a proposal, in a copy of the tree, nobody is told how many files changed. Raises ConfigError and EnvironmentFailed.
    """
    context = read_context(options, session)
    wanted = variants or (context.plan_context.facts.arch,)
    groups = {bench.config.install_group for bench in context.benches}
    # Benchmarks that share a folder share its locks: each is written once.
    folders = dict.fromkeys(
        (config.install_group, environments.requirements_of(config.definition))
        for config in context.suite.benchmarks.values()
        if config.install_group in groups and isinstance(config.definition, Path)
    )
    instruments = benchmate_requirements(environments.BENCHMATE)
    foreign = {folder for _, folder in folders if foreign_requirements(folder) is not None}
    specs = [
        spec
        for variant in wanted
        for added, is_foreign in (((), False), (ADDED, True))
        for spec in pin_specs(
            [
                (group, each)
                for group, folder in folders
                if (folder in foreign) is is_foreign
                for each in pin_inputs(folder, variant)
            ],
            variant,
            python=python,
            benchmate=(*instruments, *added),
            constraints=_constraints(variant),
        )
    ]
    written = pin_locks(specs, environ=dict(os.environ), report=progress_report(session))
    changed = sum(lock.has_changed for lock in written)
    if not is_proposal:
        session.info(f"pin: {changed} of {len(written)} lock files changed")
        for where, benches in _unpinned(context).items():
            session.warn(
                f"{', '.join(benches)}: installed without these locks, from requirements.in. To use them, remove "
                f"`install_variant: unpinned` at {where}"
            )


def _constraints(variant: str) -> RequirementFile | None:
    path = environments.CONSTRAINTS / f"{variant}.txt"
    return RequirementFile(name=str(path), text=path.read_text()) if path.is_file() else None


def _unpinned(context: CommandContext) -> dict[str, list[str]]:
    """Return the selected benchmarks that the suite itself leaves without a lock, by the place where it says so."""
    benches: dict[str, list[str]] = {}
    for config in (bench.config for bench in context.benches):
        if config.install_variant == UNPINNED and config.name not in context.missing_locks:
            benches.setdefault(config.origin.where("install_variant"), []).append(config.name)
    return benches


def pin_inputs(folder: Path, variant: str) -> Iterator[PinInput]:
    """Yield the locks of a folder for a variant, each with its source, its own where it exists. Raises EnvironmentFailed."""
    names = foreign_requirements(folder)
    for name in ("requirements.in",) if names is None else names:
        requirements = environments.requirements_source(folder, variant) if names is None else folder / name
        if requirements.exists():  # uv says best what is not there, but waits for a pipe
            require_file(requirements, EnvironmentFailed)
        yield PinInput(requirements=str(requirements), lock=str(folder / lock_name(name, variant)))
