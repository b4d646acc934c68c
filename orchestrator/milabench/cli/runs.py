"""`milabench runs`: what was run here, and how it ended."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from milabench.workflow.run_lookup import RunHandle


@click.command("runs", help="List the runs below the base with their verdicts.")
@click.option("--base", type=click.Path(path_type=Path), envvar="MILABENCH_BASE", help="Default: ./results.")
@click.option("--all", "with_others", is_flag=True, help="Also what prepare and size recorded.")
@click.option("--json", "as_json", is_flag=True, help="JSON instead of a table.")
def command(base: Path | None, with_others: bool, as_json: bool) -> int:
    """Hand the command line's values on; see the help text above."""
    from milabench.analysis.run_status import status_json
    from milabench.workflow.context import base_folder
    from milabench.workflow.run_lookup import all_runs

    found = [each for each in all_runs(base) if with_others or each.run.phase == "run"]
    if as_json:
        listed = [
            {**status_json(each.standing, each.state), "detached": each.is_detached, "path": str(each.run.path)}
            for each in found
        ]
        click.echo(json.dumps({"schema": 1, "runs": listed}, indent=1))
    elif not found:
        click.echo(f"{base_folder(base) / 'runs'}: nothing was run here", err=True)
    else:
        click.echo(runs_table(found))
    return 0


def runs_table(found: list[RunHandle]) -> str:
    """One line for each run."""
    from milabench.report.labels import duration
    from milabench.report.text import text_table as columns

    rows = []
    for each in found:
        began, ended = each.standing.began, each.standing.ended
        at = time.strftime("%Y-%m-%d %H:%M", time.localtime(began)) if began is not None else ""
        took = duration(ended - began) if began is not None and ended is not None else ""
        counts = ", ".join(f"{count} {outcome}" for outcome, count in each.standing.counts.items())
        state = f"{each.state}, detached" if each.is_detached else each.state
        rows.append([each.run.name, state, at, took, counts, ", ".join(each.standing.benches)[:60]])
    headings = ["run", "verdict", "began", "took", "steps", "benchmarks"]
    return "\n".join(columns(headings, rows, [True, True, True, False, True, True]))
