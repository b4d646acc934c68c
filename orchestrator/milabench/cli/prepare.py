"""`milabench prepare`."""

from __future__ import annotations

import click

from milabench.cli.options import display_option, suite_options, terminal_session
from milabench.workflow.options import SuiteOptions


@click.command("prepare")
@suite_options(environment=True, reach=True)
@click.option("--force", is_flag=True, help="Prepare again what is already prepared.")
@display_option
def command(options: SuiteOptions, force: bool, display: str) -> int:
    """Download or generate the data and models of the selected benchmarks."""
    from milabench.workflow.context import read_context
    from milabench.workflow.prepare import prepare

    return prepare(read_context(options, terminal_session(display)), force=force)
