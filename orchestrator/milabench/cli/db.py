"""`milabench db`: the results of many runs in one store."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from milabench.analysis.summary_model import Summary
    from milabench.history.rows import Row

STORE = "history.sqlite"

base_option = click.option(
    "--base", type=click.Path(path_type=Path), envvar="MILABENCH_BASE", help="Default: ./results."
)
db_option = click.option(
    "--db",
    "place",
    metavar="PATH|postgresql://...",
    envvar="MILABENCH_DB",
    help=f"The results store. Default: {STORE} in the base.",
)


@click.group("db", help="Keep and query the results of many runs.")
def command() -> None:
    """Hold the commands below."""


@command.command(
    "add", help="Put runs into the store; a run that is there is not put in again. Default: the latest run."
)
@click.argument("runs", nargs=-1)
@base_option
@db_option
@click.option("--json", "as_json", is_flag=True, help="Say what was done as JSON.")
def add_runs(runs: tuple[str, ...], base: Path | None, place: str | None, as_json: bool) -> int:
    """Hand the command line's values on; see the help text above."""
    from milabench.history.store import open_store
    from milabench.workflow.results import resolve_runs, run_rows

    found = resolve_runs(base, runs)
    done = []
    with open_store(store_place(base, place), is_writing=True) as store:
        for run in found:
            done.append((run.name, store.add(run_rows(run))))
        count = store.count()
    if as_json:
        click.echo(
            json.dumps({"schema": 1, "runs": [{"run": run, "what": what} for run, what in done], "count": count})
        )
        return 0
    words = {"added": "added", "updated": "has changed: put in anew", "known": "was there already"}
    for run_name, what in done:
        click.echo(f"{run_name}: {words[what]}")
    click.echo(f"{count} runs in the store", err=True)
    return 0


@command.command("query", help="Ask the store in SQL; its tables are runs, results and metrics (docs/history.md).")
@click.argument("sql")
@base_option
@db_option
@click.option("--json", "as_json", is_flag=True, help="JSON instead of a table.")
@click.option("--csv", "as_csv", is_flag=True, help="CSV instead of a table.")
def query(sql: str, base: Path | None, place: str | None, as_json: bool, as_csv: bool) -> int:
    """Hand the command line's values on; see the help text above."""
    from milabench.history.store import open_store

    with open_store(store_place(base, place), is_writing=False) as store:
        columns, rows = store.query(sql)
    if as_json:
        click.echo(json.dumps([dict(zip(columns, row, strict=True)) for row in rows], indent=1, default=str))
    elif as_csv:
        click.echo(as_csv_text(columns, rows), nl=False)
    else:
        click.echo(as_table(columns, rows))
    return 0


def store_place(base: Path | None, place: str | None) -> str:
    """Where the store is: what was asked for, else in the base."""
    from milabench.workflow.context import base_folder

    return place or str(base_folder(base) / STORE)


def as_csv_text(columns: list[str], rows: list[Row]) -> str:
    """RFC 4180, with a line for the columns' names."""
    import csv
    import io

    text = io.StringIO()
    csv.writer(text).writerows([columns, *rows])
    return text.getvalue()


def as_table(columns: list[str], rows: list[Row]) -> str:
    """The rows below their columns' names; numbers to the right."""
    from milabench.report.text import text_table

    is_text = [not all(isinstance(row[at], int | float) for row in rows) for at in range(len(columns))]
    lines = text_table(columns, [[_shown(value) for value in row] for row in rows], is_text)
    return "\n".join([*lines, f"{len(rows)} rows"])


def _shown(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def stored_summaries(base: Path | None, place: str | None, names: Sequence[str]) -> list[Summary]:
    """The summaries that the store holds of runs of these names, the newest of each; without names of the newest run.

    Raises NothingSelected when it has none.
    """
    from milabench.analysis.summary_io import summary_from_json
    from milabench.errors import NothingSelected
    from milabench.events.wire import parse_object
    from milabench.history.store import open_store

    where = store_place(base, place)
    found = []
    with open_store(where, is_writing=False) as store:
        _, rows = store.query("SELECT name, summary FROM runs ORDER BY created DESC, name DESC")
    for wanted in names or (None,):
        chosen = next((text for name, text in rows if wanted is None or _is_called(name, wanted)), None)
        if chosen is None:
            known = ", ".join(name for name, _ in rows[:3])
            told = f"; the newest are {known}" if known else ""
            raise NothingSelected(f"no run is called '{wanted}' in the results store{told}")
        found.append(summary_from_json(parse_object(chosen.encode())))
    return found


def _is_called(name: str, wanted: str) -> bool:
    """`night` is what the run `night.2026-03-01_12-00-00` is called, too."""
    return name == wanted or name.rpartition(".")[0] == wanted
