"""`milabench pin`: lock files of the selected benchmarks, with the hash of every file."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from milabench.cli.options import SuiteOptions, suite_options
from milabench.workflow.context import read_context

if TYPE_CHECKING:
    from milabench.plan.pin import PinInput

VARIANTS = ("cpu", "cuda", "rocm", "xpu")


@click.command("pin", help="Write the lock files of the selected benchmarks from their requirements.in.")
@suite_options()
@click.option(
    "--variant",
    "variants",
    type=click.Choice(VARIANTS),
    multiple=True,
    help="Which locks: cpu, cuda, rocm, xpu. Default: the system's.",
)
@click.option("--all-variants", is_flag=True, help="All four.")
@click.option(
    "--python",
    default=f"{sys.version_info.major}.{sys.version_info.minor}",
    show_default=True,
    help="The Python that the locks are for.",
)
def command(options: SuiteOptions, variants: tuple[str, ...], all_variants: bool, python: str) -> int:
    """Hand the command line's values on; see the help text above."""
    from milabench.cli.install import print_progress
    from milabench.execute.pinning import benchmate_requirements, pin_locks
    from milabench.plan.pin import pin_specs
    from milabench.workflow.environments import BENCHMATE, CONSTRAINTS

    inputs = read_context(options)
    wanted = VARIANTS if all_variants else variants or (inputs.where.facts.arch,)
    groups = {bench.config.install_group for bench in inputs.benches}
    folders = {
        config.name: (config.install_group, config.definition)
        for config in inputs.suite.benchmarks.values()
        if config.install_group in groups and isinstance(config.definition, Path)
    }
    constraints = {
        path.stem: (str(path), path.read_text()) for path in sorted(CONSTRAINTS.glob("*.txt")) if path.stem in wanted
    }
    specs = [
        spec
        for variant in wanted
        for spec in pin_specs(
            [(group, files_of(bench, folder, variant)) for bench, (group, folder) in folders.items()],
            [variant],
            python=python,
            benchmate=benchmate_requirements(BENCHMATE),
            constraints=constraints,
        )
    ]
    written = pin_locks(specs, environ=dict(os.environ), report=print_progress)
    changed = sum(lock.has_changed for lock in written)
    print(f"pin: {changed} of {len(written)} lock files changed", file=sys.stderr)
    return 0


def files_of(bench: str, folder: Path, variant: str) -> PinInput:
    """A benchmark's lock for a variant and what it is made from: requirements.<variant>.in where there is one."""
    from milabench.plan.pin import PinInput

    own = folder / f"requirements.{variant}.in"
    requirements = own if own.is_file() else folder / "requirements.in"
    return PinInput(bench=bench, requirements=str(requirements), lock=str(folder / f"requirements.{variant}.txt"))
