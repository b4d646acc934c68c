"""`milabench history`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click

from milabench.analysis.json_codec import to_json_value
from milabench.cli.options import base_option, db_option, json_option, table_width, wide_option
from milabench.history.results_store import COLUMNS, benchmark_trends, store_location
from milabench.history.trend import Trend
from milabench.shown import counted


@click.command("history")
@click.argument("bench")
@base_option
@db_option
@click.option(
    "--metric", type=click.Choice(list(COLUMNS)), default="rate", show_default=True, help="Which of its numbers."
)
@click.option("--last", type=click.IntRange(1), metavar="N", help="Only the last N runs of each system.")
@wide_option
@json_option
def command(
    bench: str, base: Path | None, location: str | None, metric: str, last: int | None, wide: bool, as_json: bool
) -> None:
    """Show a benchmark's runs in the order of time, and where their level changed. Each size by itself."""
    trends = benchmark_trends(store_location(base, location), bench, metric, last=last)
    if as_json:
        click.echo(json.dumps({"schema": 1, "trends": to_json_value(trends)}, indent=1))
    else:
        click.echo("\n\n".join(trend_text(trend, trends, table_width(wide)) for trend in trends))


def trend_text(trend: Trend, beside: Sequence[Trend] = (), width: int | None = None) -> str:
    """Return a system's runs, a line each, with a note where the level changed. Fitted to a terminal's width.

    `beside` are all shown trends: the head of each names its arguments that differ.
    """
    from milabench.analysis.system_diff import own_arguments
    from milabench.history.changepoints import LEAST_HISTORY
    from milabench.report.text_table import text_table

    changes = {change.run: change for change in trend.changes}
    rows = []
    for point in trend.points:
        interval = "" if point.interval is None else f"[{point.interval[0]:.5g}, {point.interval[1]:.5g}]"
        mark, change = "", changes.get(point.run)
        if change is not None:
            perhaps = "perhaps " if change.is_perhaps else ""
            mark = f"{perhaps}{change.ratio - 1:+.1%} ({change.side}): {change.before:.5g} -> {change.after:.5g}"
        rows.append([point.created[:19], point.run, f"{point.value:.5g}", interval, point.validity, mark])
    size = f", size {trend.size}" if trend.size else ""
    asked = own_arguments(trend.asked, [other.asked for other in beside])
    units = f" in {trend.units}" if trend.units else ""
    head = f"{trend.bench}: {trend.metric}{units}, {trend.system}{size}{f', {asked}' if asked else ''}"
    columns = f"created | run | #{trend.metric} | 95 % interval | validity | level changes"
    lines = [head, *text_table(columns, rows, ("95 % interval", "run", "validity"), width)]
    if not trend.is_judged:
        lines.append(f"too few runs to look for changes: {len(trend.points)} of {LEAST_HISTORY}")
    elif not changes:
        lines.append(f"no change in {counted(len(trend.points), 'run')}")
    return "\n".join(lines)
