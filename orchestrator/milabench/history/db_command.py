"""`milabench db`."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from milabench.cli.options import base_option, db_option, json_option, runs_argument, table_width, wide_option
from milabench.errors import UsageError
from milabench.shown import counted, csv_cell

if TYPE_CHECKING:
    from milabench.history.rows import Row
    from milabench.report.document import Table

_ADDED = {"added": "added", "updated": "changed: replaced", "known": "already in the store"}


@click.group("db")
def command() -> None:
    """Keep and query the results of many runs."""


@command.command("add", short_help="Add runs to the store")
@runs_argument()
@base_option
@db_option
@json_option
def add(runs: tuple[str, ...], base: Path | None, location: str | None, as_json: bool) -> None:
    """Add runs to the store. Adding a run again is a no-op. Default: the latest run."""
    from milabench.history.results_store import add_runs, store_location

    added, count = add_runs(store_location(base, location), base, runs)
    if as_json:
        results = [{"run": run, "what": what} for run, what in added]
        click.echo(json.dumps({"schema": 1, "runs": results, "count": count}))
        return
    for run, what in added:
        click.echo(f"{run}: {_ADDED[what]}")
    click.echo(f"{counted(count, 'run')} in the store", err=True)


@command.command("query", short_help="Query the store in SQL")
@click.argument("sql")
@base_option
@db_option
@click.option(
    "-f",
    "--format",
    "form",
    type=click.Choice(["table", "csv", "json", "markdown"]),
    help="Format. Default: table.",
)
@click.option("--json", "as_json", is_flag=True, help="Short for --format json.")
@click.option("--csv", "as_csv", is_flag=True, help="Short for --format csv.")
@wide_option
def query(
    sql: str, base: Path | None, location: str | None, form: str | None, as_json: bool, as_csv: bool, wide: bool
) -> None:
    """Query the store in SQL. Its tables are runs, results and metrics (docs/reference/results-store.md)."""
    from milabench.history.results_store import query_store, store_location

    forms = {*([form] if form else []), *(["json"] if as_json else []), *(["csv"] if as_csv else [])}
    if len(forms) > 1:
        raise UsageError(f"{' and '.join(sorted(forms))} are different formats. Choose a single format")
    columns, rows = query_store(store_location(base, location), sql)
    match forms.pop() if forms else "table":
        case "json":
            click.echo(json.dumps([dict(zip(columns, row, strict=True)) for row in rows], indent=1, default=str))
        case "csv":
            text = io.StringIO()
            csv.writer(text).writerows([map(csv_cell, row) for row in (columns, *rows)])
            click.echo(text.getvalue(), nl=False)
        case "markdown":
            from milabench.report.markdown import document_markdown

            click.echo(document_markdown((_table(columns, rows),)), nl=False)
        case _:
            from milabench.report.text_table import table_lines

            lines = table_lines(_table(columns, rows), table_width(wide))
            click.echo("\n".join([*lines, counted(len(rows), "row")]))


def _table(columns: list[str], rows: list[Row]) -> Table:
    """Return the rows as a table. Numbers to the right. A request for columns names the most important first."""
    from milabench.report.document import Table

    values = [[row[at] for row in rows if row[at] is not None] for at in range(len(columns))]
    is_text = tuple(not column or not all(isinstance(value, int | float) for value in column) for column in values)
    cells = tuple(tuple(map(_cell, row)) for row in rows)
    return Table(headings=tuple(columns), is_text=is_text, rows=cells, spare=tuple(reversed(columns)))


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
