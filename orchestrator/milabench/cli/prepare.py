"""`milabench prepare`."""

from __future__ import annotations

import click

from milabench.cli.options import display_option, suite_options, terminal_session
from milabench.workflow.options import SuiteOptions


@click.command("prepare")
@suite_options(environment=True, nodes="executes")
@click.option("--force", is_flag=True, help="Prepare again.")
@display_option
def command(options: SuiteOptions, force: bool, display: str) -> int | None:
    """Download or generate the data and models of the selected benchmarks."""
    from milabench.workflow.allocation import run_in_partition
    from milabench.workflow.context import read_context
    from milabench.workflow.prepare import prepare

    session = terminal_session(display)
    code = run_in_partition(options, session)
    if code is None:
        prepare(read_context(options, session), force=force)
    return code
