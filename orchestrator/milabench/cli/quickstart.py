"""`milabench quickstart`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from milabench.cli.options import display_option, suite_options, terminal_session
from milabench.errors import DONE
from milabench.workflow.options import Extent, ReportRequest, SuiteOptions
from milabench.workflow.run_suite import RunSettings

SUITE = "quickstart"


@click.command("quickstart")
@suite_options(environment=True, reach=True, own_default=SUITE)
@display_option
def command(options: SuiteOptions, display: str) -> int:
    """Install, prepare, run and report a small suite: a first look in a few minutes."""
    from milabench.workflow.context import read_context
    from milabench.workflow.install import install
    from milabench.workflow.prepare import prepare
    from milabench.workflow.report_runs import render_report
    from milabench.workflow.run_suite import execute_runs, prepare_runs

    options = replace(options, config_file=options.config_file or Path(SUITE))
    session = terminal_session(display)
    click.echo("== milabench install: environments and programs")
    install(options, session)
    click.echo("== milabench prepare: data and models")
    code = prepare(read_context(options, session))
    if code != DONE:
        return code
    click.echo("== milabench run: a first look; `milabench run --profile default` measures valid numbers")
    finished = execute_runs(prepare_runs(options, Extent(run_name="quickstart"), RunSettings(), session), session)
    click.echo("== milabench report")
    runs = tuple(str(run) for run, _ in finished)
    click.echo(render_report(ReportRequest(runs=runs), "brief", session), nl=False)
    return max(code for _, code in finished)
