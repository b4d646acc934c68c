"""`milabench ci`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from milabench.cli import options as shared
from milabench.cli.compare import margin_option
from milabench.errors import DONE, INTERRUPTED, EnvironmentFailed
from milabench.workflow.ci_reports import Gates
from milabench.workflow.options import Extent, ReportRequest, SuiteOptions
from milabench.workflow.run_suite import RunSettings


@click.command(
    "ci",
    epilog="Exit codes: those of every command; with criteria 7 FAIL and 8 INCONCLUSIVE come first; then 1: a step did not "
    "pass, or a benchmark is SLOWER than in the baseline.",
)
@shared.suite_options(environment=True, reach=True)
@shared.plan_options
@shared.retry_options
@click.option(
    "--baseline",
    "reference",  # a suite's own `baseline`, in Extent, is a benchmark
    metavar="RUN|FILE",
    help="Compare with this run, JSON report of one, or bundle of one; also what `x reference` in the criteria means.",
)
@shared.file_option("--criteria", help="Acceptance criteria (YAML) that decide the exit code.")
@margin_option
@click.option(
    "--reports",
    type=click.Path(path_type=Path, file_okay=False),
    default="milabench-reports",
    show_default=True,
    help="Folder of the reports: summary.md, report.json (the next baseline), JUnit XML; earlier ones are removed.",
)
@shared.display_option
@shared.collected_as("gates", Gates)
@shared.collected_as("settings", RunSettings)
def command(options: SuiteOptions, extent: Extent, settings: RunSettings, gates: Gates, display: str) -> int:
    """Do all steps of a build server's job: doctor, install, prepare, run, report, compare, accept."""
    from milabench.cli.doctor import findings_text
    from milabench.workflow.ci_reports import checked_gates, require_one_run, write_reports
    from milabench.workflow.context import read_context
    from milabench.workflow.doctor import diagnose_machine
    from milabench.workflow.install import install
    from milabench.workflow.prepare import prepare
    from milabench.workflow.report_runs import render_report
    from milabench.workflow.run_suite import execute_runs, prepare_runs

    if extent.ab is not None:
        raise click.UsageError("ci compares one suite with a baseline; `milabench run --ab` measures two")
    session = shared.terminal_session(display)
    # What cannot be read is an error now, not after an hour of measuring.
    gates = checked_gates(gates, options.base)
    require_one_run(options, extent, session)
    extent = replace(extent, run_name="ci")
    click.echo("== milabench doctor: this machine")
    findings = diagnose_machine(options.base)
    click.echo(findings_text(findings))
    if bad := [finding for finding in findings if finding.state == "bad"]:
        raise EnvironmentFailed("\nerror: ".join(f"{finding.what}: {finding.says}" for finding in bad))
    click.echo("== milabench install: environments and programs")
    install(options, session)
    click.echo("== milabench prepare: data and models")
    code = prepare(read_context(options, session))
    if code != DONE:
        return code
    click.echo("== milabench run")
    [(run, code)] = execute_runs(prepare_runs(options, extent, settings, session), session)
    if code == INTERRUPTED:
        return code
    click.echo("== milabench report")
    request = ReportRequest(runs=(str(run),), base=options.base, reference=gates.reference)
    click.echo(render_report(request, "brief", session, shared.table_width(wide=False)), nl=False)
    return write_reports(request, gates, code, session)
