"""`milabench runs`."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from milabench.cli.options import base_option, json_option, table_width, wide_option

if TYPE_CHECKING:
    from milabench.workflow.run_lookup import RunHandle


@click.command("runs")
@base_option
@click.option("--all", "with_others", is_flag=True, help="Also the records of prepare and size.")
@wide_option
@json_option
def command(base: Path | None, with_others: bool, wide: bool, as_json: bool) -> None:
    """List the runs below the base with their verdicts."""
    from milabench.following.status_command import status_json
    from milabench.workflow.files import base_folder
    from milabench.workflow.measured_runs import with_ends
    from milabench.workflow.run_lookup import all_runs, run_handle

    handles = [handle for handle in all_runs(base) if with_others or handle.run.phase == "run"]
    silent: list[str] = []  # a scheduler that does not answer is asked about one run only
    handles = [
        run_handle(with_ends(handle.run, silent.append)) if handle.run.shares and not silent else handle
        for handle in handles
    ]
    if as_json:
        values = [
            {**status_json(handle), "detached": handle.is_detached, "path": str(handle.run.path)} for handle in handles
        ]
        click.echo(json.dumps({"schema": 1, "runs": values}, indent=1))
    elif not handles:
        click.echo(f"{base_folder(base) / 'runs'}: no runs", err=True)
    else:
        click.echo(runs_table(handles, table_width(wide)))


def runs_table(handles: Sequence[RunHandle], width: int | None = None) -> str:
    """Return a line for each run, fitted to a terminal's width."""
    from milabench.report.labels import duration
    from milabench.report.text_table import text_table

    rows = []
    for handle in handles:
        began, ended = handle.status.began, handle.status.ended
        at = time.strftime("%Y-%m-%d %H:%M", time.localtime(began)) if began is not None else ""
        is_over = not handle.is_active
        ended = ended if is_over else time.time()  # nothing may have been written since it began
        took = duration(ended - began) if began is not None and ended is not None else ""
        words = {} if is_over else {"missing": "to do"}
        counts = ", ".join(f"{count} {words.get(outcome, outcome)}" for outcome, count in handle.status.counts.items())
        state = f"{handle.state_text}, detached" if handle.is_detached else handle.state_text
        rows.append([handle.run.name, state, at, took, counts, ", ".join(handle.status.benches)])
    columns = "run | verdict | began | #took | steps | benchmarks"
    return "\n".join(text_table(columns, rows, ("took", "steps", "benchmarks", "began"), width))
