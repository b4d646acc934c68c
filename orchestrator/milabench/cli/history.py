"""`milabench history`: how a benchmark's number went on, and where it changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from milabench.cli.db import base_option, db_option, store_place

if TYPE_CHECKING:
    from milabench.history.store import Store
    from milabench.history.trend import Trend

# What of a benchmark's result can be looked at, and its column; every other metric is in the table of metrics.
COLUMNS = {"rate": "perf", "memory_peak": "memory_peak_mib", "first_step": "first_step_s", "score": "score"}
_UNITS = {"memory_peak": "MiB", "first_step": "s"}


@click.command("history", help="Show a benchmark's runs in the order of time, and where their level changed.")
@click.argument("bench")
@base_option
@db_option
@click.option(
    "--metric",
    type=click.Choice(list(COLUMNS)),
    default="rate",
    show_default=True,
    help="Which of its numbers.",
)
@click.option("--last", type=click.IntRange(1), metavar="N", help="Only the last N runs of each system.")
@click.option("--json", "as_json", is_flag=True, help="JSON instead of a table.")
def command(bench: str, base: Path | None, place: str | None, metric: str, last: int | None, as_json: bool) -> int:
    """Hand the command line's values on; see the help text above."""
    from milabench.errors import NothingSelected
    from milabench.history.store import open_store
    from milabench.history.trend import trends

    with open_store(store_place(base, place), is_writing=False) as store:
        rows = history_rows(store, bench, metric)
        if not rows:
            _, names = store.query("SELECT DISTINCT bench FROM results ORDER BY bench LIMIT 20")
            known = ", ".join(str(row[0]) for row in names) or "none"
            raise NothingSelected(f"no run of '{bench}' with a {metric} is in the store; it has {known}")
    found = trends(bench, metric, rows, last=last)
    if as_json:
        click.echo(json.dumps({"schema": 1, "trends": [one.to_json() for one in found]}, indent=1))
    else:
        click.echo("\n\n".join(trend_lines(one) for one in found))
    return 0


def history_rows(store: Store, bench: str, metric: str) -> list[dict[str, Any]]:
    """A row for each run that has this number, as `trends` wants them."""
    is_rate = metric == "rate"
    columns, rows = store.query(
        f"SELECT runs.name AS run, runs.created AS created, runs.host AS host, runs.device AS device, "
        f"results.{COLUMNS[metric]} AS value, results.units AS units, results.direction AS direction, "
        f"results.ci95_low AS low, results.ci95_high AS high, results.validity AS validity, results.outcome AS outcome "
        f"FROM results JOIN runs ON runs.run = results.run "
        f"WHERE results.bench = ? AND results.{COLUMNS[metric]} IS NOT NULL",
        (bench,),
    )
    found = [dict(zip(columns, row, strict=True)) for row in rows]
    own: dict[str, Any] = {"low": None, "high": None, "units": _UNITS.get(metric, "")}
    own["direction"] = "higher" if metric == "score" else "lower"
    return found if is_rate else [{**row, **own} for row in found]


def trend_lines(trend: Trend) -> str:
    """A system's runs, a line each, with a line where the level changed."""
    from milabench.analysis.changepoints import LEAST_HISTORY
    from milabench.report.text import text_table

    changes = {change.point.run: change for change in trend.changes}
    rows = []
    for point in trend.points:
        interval = "" if point.interval is None else f"[{point.interval[0]:.5g}, {point.interval[1]:.5g}]"
        change = changes.get(point.run)
        mark = (
            ""
            if change is None
            else f"{change.ratio - 1:+.1%} ({change.side}): {change.before:.5g} -> {change.after:.5g}"
        )
        rows.append([point.created[:19], point.run, f"{point.value:.5g}", interval, point.validity, mark])
    head = f"{trend.bench}: {trend.metric}{f' in {trend.units}' if trend.units else ''}, {trend.system}"
    headings = ["created", "run", trend.metric, "95 % interval", "validity", "level changes"]
    lines = [head, *text_table(headings, rows, [True, True, False, True, True, True])]
    if not trend.is_judged:
        lines.append(f"too few runs to look for changes: {len(trend.points)} of {LEAST_HISTORY}")
    elif not changes:
        lines.append(f"no change in {len(trend.points)} runs")
    return "\n".join(lines)
