"""`milabench baseline`: what the nodes and devices of a fleet do."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command("baseline", help="Compute what is expected of nodes and devices like those of these runs.")
@click.argument("runs", nargs=-1, required=True)
@click.option("--base", type=click.Path(path_type=Path), envvar="MILABENCH_BASE", help="Default: ./results.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), required=True, help="The baseline's file."
)
@click.option("--json", "as_json", is_flag=True, help="Print the baseline as JSON too.")
def command(runs: tuple[str, ...], base: Path | None, output: Path, as_json: bool) -> int:
    """Hand the command line's values on; see the help text above."""
    from milabench.analysis.baseline import LEAST_PLACES, Baseline, baseline
    from milabench.cli.formats import write_output
    from milabench.errors import NothingSelected
    from milabench.workflow.results import resolve_runs
    from milabench.workflow.summaries import summary_of

    made: Baseline = baseline([summary_of(run) for run in resolve_runs(base, runs)])
    if not made.expected:
        raise NothingSelected(f"{', '.join(made.runs)}: no benchmark passed with a number; there is nothing to expect")
    text = json.dumps(made.to_json(), indent=1) + "\n"
    write_output(text, output)
    if as_json:
        click.echo(text, nl=False)
    places = {name for expected in made.expected for name in expected.values}
    click.echo(f"metrics: {len(made.expected)}, places: {len(places)}", err=True)
    few = sorted({expected.bench for expected in made.expected if expected.n < LEAST_PLACES})
    if few:
        click.echo(
            f"warning: fewer than {LEAST_PLACES} places measured {', '.join(few)}: nothing can be told to fall out there",
            err=True,
        )
    for told in made.suspects:
        click.echo(f"warning: suspect, and counted all the same: {told}", err=True)
    return 0
