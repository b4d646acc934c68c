"""`milabench db`."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from milabench.cli.options import base_option, db_option, json_option
from milabench.shown import csv_cell

if TYPE_CHECKING:
    from milabench.history.rows import Row

_ADDED = {"added": "added", "updated": "changed: replaced", "known": "already in the store"}


@click.group("db")
def command() -> None:
    """Keep and query the results of many runs."""


@command.command("add")
@click.argument("runs", nargs=-1)
@base_option
@db_option
@json_option
def add(runs: tuple[str, ...], base: Path | None, location: str | None, as_json: bool) -> None:
    """Add runs to the store; adding a run again is a no-op. Default: the latest run."""
    from milabench.workflow.results_store import add_runs, store_location

    added, count = add_runs(store_location(base, location), base, runs)
    if as_json:
        results = [{"run": run, "what": what} for run, what in added]
        click.echo(json.dumps({"schema": 1, "runs": results, "count": count}))
        return
    for run, what in added:
        click.echo(f"{run}: {_ADDED[what]}")
    click.echo(f"{count} runs in the store", err=True)


@command.command("query")
@click.argument("sql")
@base_option
@db_option
@json_option
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV instead of a table.")
def query(sql: str, base: Path | None, location: str | None, as_json: bool, as_csv: bool) -> None:
    """Query the store in SQL; its tables are runs, results and metrics (docs/reference/results-store.md)."""
    from milabench.workflow.results_store import query_store, store_location

    columns, rows = query_store(store_location(base, location), sql)
    if as_json:
        click.echo(json.dumps([dict(zip(columns, row, strict=True)) for row in rows], indent=1, default=str))
    elif as_csv:
        text = io.StringIO()
        csv.writer(text).writerows([map(csv_cell, row) for row in (columns, *rows)])
        click.echo(text.getvalue(), nl=False)
    else:
        click.echo(table_of_rows(columns, rows))


def table_of_rows(columns: list[str], rows: list[Row]) -> str:
    """Return the rows below their columns' names; numbers to the right."""
    from milabench.report.text import text_table

    is_text = [not all(isinstance(row[at], int | float) for row in rows) for at in range(len(columns))]
    lines = text_table(columns, [[_cell(value) for value in row] for row in rows], is_text)
    return "\n".join([*lines, f"{len(rows)} rows"])


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
