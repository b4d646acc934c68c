"""`milabench export`: results for other programs."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("export", help="Write the results of runs to a Parquet file. Default: the latest run.")
@click.argument("runs", nargs=-1)
@click.option("--base", type=click.Path(path_type=Path), envvar="MILABENCH_BASE", help="Default: ./results.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), required=True, help="The file: NAME.parquet."
)
def command(runs: tuple[str, ...], base: Path | None, output: Path) -> int:
    """Hand the command line's values on; see the help text above."""
    from milabench.errors import UsageError
    from milabench.history.parquet import write
    from milabench.workflow.results import resolve_runs, run_rows

    if output.suffix != ".parquet":
        raise UsageError(
            f"--output: {output}: only .parquet is written here; `milabench report --format csv` writes CSV"
        )
    found = [run_rows(run) for run in resolve_runs(base, runs)]
    count = write(output, found)
    click.echo(f"written to {output}: {count} rows of {len(found)} runs", err=True)
    return 0
