"""Writes the lock files of benchmarks from their requirements, with the hash of every file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from milabench.execute.pinning import pin_locks
from milabench.execute.venv import benchmate_requirements
from milabench.plan.pin import PinInput, pin_specs
from milabench.workflow.context import read_context
from milabench.workflow.environments import BENCHMATE, CONSTRAINTS
from milabench.workflow.install import progress_report
from milabench.workflow.options import SuiteOptions
from milabench.workflow.session import Session


def pin_benchmarks(options: SuiteOptions, variants: Sequence[str], python: str, session: Session) -> None:
    """Write the locks of the selected benchmarks for these variants, by default the system's, and this Python.

    Raises ConfigError and EnvironmentFailed.
    """
    context = read_context(options, session)
    wanted = variants or (context.plan_context.facts.arch,)
    groups = {bench.config.install_group for bench in context.benches}
    folders = {
        config.name: (config.install_group, config.definition)
        for config in context.suite.benchmarks.values()
        if config.install_group in groups and isinstance(config.definition, Path)
    }
    constraints = {
        path.stem: (str(path), path.read_text()) for path in sorted(CONSTRAINTS.glob("*.txt")) if path.stem in wanted
    }
    specs = [
        spec
        for variant in wanted
        for spec in pin_specs(
            [(group, pin_input(bench, folder, variant)) for bench, (group, folder) in folders.items()],
            [variant],
            python=python,
            benchmate=benchmate_requirements(BENCHMATE),
            constraints=constraints,
        )
    ]
    written = pin_locks(specs, environ=dict(os.environ), report=progress_report(session))
    changed = sum(lock.has_changed for lock in written)
    session.info(f"pin: {changed} of {len(written)} lock files changed")


def pin_input(bench: str, folder: Path, variant: str) -> PinInput:
    """Return a benchmark's lock for a variant and its source: requirements.<variant>.in where it exists."""
    own = folder / f"requirements.{variant}.in"
    requirements = own if own.is_file() else folder / "requirements.in"
    return PinInput(bench=bench, requirements=str(requirements), lock=str(folder / f"requirements.{variant}.txt"))
