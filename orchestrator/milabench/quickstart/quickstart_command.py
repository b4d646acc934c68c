"""`milabench quickstart`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from milabench.cli.options import (
    display_option,
    plan_options,
    suite_options,
    table_width,
    terminal_session,
    wait_option,
)
from milabench.workflow.options import Extent, SuiteOptions

SUITE = "quickstart"


@click.command("quickstart")
@suite_options(environment=True, nodes="executes", own_default=SUITE)
@plan_options
@wait_option
@display_option
def command(options: SuiteOptions, extent: Extent, wait: bool, display: str) -> int:
    """Install, prepare, run and report a small suite: a first look in a few minutes."""
    from milabench.quickstart.all_stages import first_look

    options = replace(options, config_file=options.config_file or Path(SUITE))
    return first_look(options, extent, terminal_session(display), click.echo, table_width(wide=False), wait=wait)
