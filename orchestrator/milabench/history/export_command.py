"""`milabench export`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from milabench.cli.formats import Destination
from milabench.cli.options import base_option, file_option, runs_argument
from milabench.errors import UsageError
from milabench.shown import counted

if TYPE_CHECKING:
    from milabench.analysis.summary_model import Summary

# Format -> the ending that names it, empty where it has to be named itself; and why it is of a single run, empty where it is not.
FORMATS = {
    "parquet": (".parquet", ""),
    "prometheus": (
        ".prom",
        "Prometheus reads the current state. Name a single run, or use --format otlp-json for several",
    ),
    "otlp-json": (".json", ""),
    "result-rows": ("", ""),
    "system-description": ("", "a description is of a single system. Name a single run"),
}
_OF_SUBMITTER = ("result-rows", "system-description")


@click.command("export")
@runs_argument()
@base_option
@click.option(
    "-f",
    "--format",
    "form",
    type=click.Choice(tuple(FORMATS)),
    help="Format. Default: from the output file's ending: .parquet, .prom, .json.",
)
@file_option("-o", "--output", help="The file. Default: the terminal, but for Parquet.")
@click.option("--submitter", default="", help="Who measured, in result-rows and system-description.")
def command(runs: tuple[str, ...], base: Path | None, form: str | None, output: Path | None, submitter: str) -> None:
    """Write the results of runs for other programs: Parquet, Prometheus, OpenTelemetry, lists. Default: the latest run."""
    from milabench.history.results_store import run_rows
    from milabench.workflow.measured_runs import resolve_runs
    from milabench.workflow.summaries import summary_of

    form = form or _format_of(output)
    if submitter and form not in _OF_SUBMITTER:
        raise UsageError(f"--submitter is of --format {' and '.join(_OF_SUBMITTER)}. Leave it out")
    if form == "parquet":
        from milabench.history.rows import write

        if output is None:
            raise UsageError("Parquet is no text: name the file with --output NAME.parquet")
        rows = [run_rows(run) for run in resolve_runs(base, runs)]
        count = write(output, rows)
        click.echo(f"written to {output}: {counted(count, 'row')} of {counted(len(rows), 'run')}", err=True)
        return
    summaries = [summary_of(run) for run in resolve_runs(base, runs)]
    Destination(form=None, as_json=False, output=output).write(_text(form, summaries, submitter))


def _format_of(output: Path | None) -> str:
    if output is None:
        raise UsageError(f"missing option --format {'|'.join(FORMATS)}, or a file with --output")
    for form, (ending, _) in FORMATS.items():
        if ending and output.suffix == ending:
            return form
    raise UsageError(
        f"--output: {output}: no format ends in '{output.suffix}'. Give --format {'|'.join(FORMATS)}. "
        "`milabench report --format csv` writes CSV of our own"
    )


def _text(form: str, summaries: Sequence[Summary], submitter: str) -> str:
    from milabench.history import otlp, prometheus, result_rows

    _, why_single = FORMATS[form]
    if why_single and len(summaries) > 1:
        raise UsageError(f"{len(summaries)} runs: {why_single}")
    match form:
        case "otlp-json":
            return otlp.metrics_request(summaries)
        case "result-rows":
            return result_rows.result_rows(summaries, submitter)
        case "system-description":
            return result_rows.system_description(summaries[0], submitter)
        case _:
            return prometheus.exposition(summaries[0])
