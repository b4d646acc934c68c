"""`milabench dev`."""

from __future__ import annotations

import click

from milabench.cli.options import benchmark_names, suite_options, terminal_session
from milabench.workflow.options import SuiteOptions


@click.command("dev", context_settings={"ignore_unknown_options": True})
@suite_options(selection=False, environment=True)
@click.argument("bench", shell_complete=benchmark_names)
@click.argument("argv", nargs=-1, type=click.UNPROCESSED)
def command(options: SuiteOptions, bench: str, argv: tuple[str, ...]) -> int:
    """Open a shell in a benchmark's environment; with a command, run it there and return its exit code."""
    from milabench.workflow.dev_shell import open_shell

    return open_shell(options, bench, argv, terminal_session())
