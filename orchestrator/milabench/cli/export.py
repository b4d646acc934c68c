"""`milabench export`."""

from __future__ import annotations

from pathlib import Path

import click

from milabench.cli.options import base_option, file_option, runs_argument
from milabench.errors import UsageError


@click.command("export")
@runs_argument()
@base_option
@file_option("-o", "--output", required=True, help="The file: NAME.parquet.")
def command(runs: tuple[str, ...], base: Path | None, output: Path) -> None:
    """Write the results of runs to a Parquet file. Default: the latest run."""
    from milabench.history.rows import write
    from milabench.workflow.results_store import run_rows
    from milabench.workflow.summaries import resolve_runs

    if output.suffix != ".parquet":
        raise UsageError(
            f"--output: {output}: only .parquet is written here; `milabench report --format csv` writes CSV"
        )
    rows = [run_rows(run) for run in resolve_runs(base, runs)]
    count = write(output, rows)
    click.echo(f"written to {output}: {count} rows of {len(rows)} runs", err=True)
