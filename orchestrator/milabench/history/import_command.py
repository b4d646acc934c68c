"""`milabench import`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from milabench.analysis.json_codec import to_json_value
from milabench.cli.options import base_option, json_option
from milabench.errors import NothingSelected


@click.command("import")
@click.argument("sources", nargs=-1, required=True, metavar="DIR|ZIP|JSON...")
@base_option
@click.option("--run-name", help="Name of the runs. Default: from the source.")
@json_option
def command(sources: tuple[str, ...], base: Path | None, run_name: str | None, as_json: bool) -> None:
    """Convert results of other programs into runs: run directories of milabench 1.3 (also zipped, also many at once), and
    the JSON of nccl-tests.
    """
    from milabench.history.import_runs import import_runs

    runs, notes = import_runs(sources, base, run_name=run_name)
    for note in notes:
        click.echo(f"left out: {note}", err=True)
    if not runs:
        raise NothingSelected(
            f"{', '.join(sources)}: nothing to import: no run of milabench 1.3, no JSON of nccl-tests"
        )
    if as_json:
        values = [{"run": run.path.name, **to_json_value(run)} for run in runs]
        click.echo(json.dumps({"schema": 1, "runs": values, "left_out": notes}, indent=1))
        return
    for run in runs:
        masked = f"; {run.masked} secrets masked" if run.masked else ""
        click.echo(f"{run.path}: {f'{run.benchmarks} benchmarks{masked}' if run.is_new else 'was imported before'}")
