"""`milabench pin`."""

from __future__ import annotations

import sys

import click

from milabench.cli.options import is_on_command_line, suite_options, terminal_session, wait_option
from milabench.errors import DONE
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
    help="Python version of the locks. Default: this program's.",
)
@click.option(
    "--upgrade",
    is_flag=True,
    help="Show the changes of newer locks and try them, in separate environments at the smallest size.",
)
@click.option("--write", is_flag=True, help="With --upgrade: keep the locks with which all benchmarks passed.")
@wait_option
def command(
    options: SuiteOptions,
    variants: tuple[str, ...],
    all_variants: bool,
    python: str,
    upgrade: bool,
    write: bool,
    wait: bool,
) -> int:
    """Write the lock files of the selected benchmarks from their requirements.in."""
    if write and not upgrade:
        raise click.UsageError("--write goes with --upgrade. Without it, locks are written anyway")
    if wait and not upgrade and is_on_command_line("wait"):
        raise click.UsageError("--wait goes with --upgrade. Without it, nothing is run")
    if upgrade:
        if variants or all_variants:
            raise click.UsageError("--upgrade tries the locks of this machine. Leave out --variant and --all-variants")
        from milabench.pinning.upgrade import upgrade as try_newer_locks

        return try_newer_locks(options, python, terminal_session(), write=write, wait=wait)
    from milabench.pinning.pinned_locks import pin_benchmarks

    pin_benchmarks(options, VARIANTS if all_variants else variants, python, terminal_session())
    return DONE
