"""`milabench pin`."""

from __future__ import annotations

import sys

import click

from milabench.cli.options import suite_options, terminal_session
from milabench.workflow.options import SuiteOptions

# The names of the lock files in the benchmarks' folders.
VARIANTS = ("cpu", "cuda", "rocm", "xpu")


@click.command("pin")
@suite_options()
@click.option(
    "--variant",
    "variants",
    type=click.Choice(VARIANTS),
    multiple=True,
    help="Which locks to write. Default: the system's.",
)
@click.option("--all-variants", is_flag=True, help="All four.")
@click.option(
    "--python",
    default=f"{sys.version_info.major}.{sys.version_info.minor}",
    show_default=True,
    help="Python version of the locks.",
)
def command(options: SuiteOptions, variants: tuple[str, ...], all_variants: bool, python: str) -> None:
    """Write the lock files of the selected benchmarks from their requirements.in."""
    from milabench.workflow.install import pin_benchmarks

    pin_benchmarks(options, VARIANTS if all_variants else variants, python, terminal_session())
