"""`milabench outliers`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from milabench.cli.options import (
    base_option,
    file_option,
    full_option,
    json_option,
    runs_argument,
    same_command,
    screen_width,
    wide_option,
)
from milabench.errors import DONE, STEPS_FAILED
from milabench.shown import counted, grouped, wrapped

if TYPE_CHECKING:
    from milabench.fleet.baseline import Findings, Outlier


@click.command("outliers")
@runs_argument()
@base_option
@file_option("--baseline", "reference", required=True, help="The file that `milabench baseline` wrote.")
@click.option(
    "--level",
    type=click.FloatRange(0.5, 1, min_open=True, max_open=True),
    default=0.99,
    show_default=True,
    help="Confidence level: the share of good numbers that are not reported.",
)
@click.option(
    "--floor",
    type=click.FloatRange(0, 1),
    default=0.01,
    show_default=True,
    help="Relative difference below which nothing is an outlier.",
)
@full_option
@wide_option
@json_option
def command(
    runs: tuple[str, ...],
    base: Path | None,
    reference: Path,
    level: float,
    floor: float,
    full: bool,
    wide: bool,
    as_json: bool,
) -> int:
    """Find the nodes and devices of runs that differ from a baseline. Default: the latest run."""
    from milabench.fleet.fleet_runs import find_outliers

    findings = find_outliers(runs, base, reference, level=level, floor=floor)
    if as_json:
        click.echo(json.dumps(findings.to_json(), indent=1))
    else:
        click.echo(outlier_text(findings, screen_width(wide, is_full=full), is_full=full))
    if not (as_json or full):
        click.echo(f"\nnext: `{same_command('--full')}`: the rule of each outlier")
    return STEPS_FAILED if findings.outliers else DONE


def outlier_text(findings: Findings, width: int | None = None, *, is_full: bool = False) -> str:
    """Return the number of outliers, their table, fitted to a width, and the warnings. `is_full`: also the rules."""
    from milabench.analysis.summary_model import some_names
    from milabench.report.text_table import text_table

    kind = "device" if all(outlier.location.device for outlier in findings.outliers) else "node"
    places = len({str(outlier.location) for outlier in findings.outliers})
    checked = f"; {counted(findings.judged, 'number')} checked" if findings.judged else "; no number could be checked"
    if findings.judged:
        checked += f", of which about {findings.by_chance:.2g} would be outliers by chance in a good fleet"
    lines = [f"{counted(len(findings.outliers), 'outlier')} on {counted(places, kind)}{checked}"]
    if findings.outliers:
        columns = f"{kind} | finding | benchmark | metric | #value | #expected | #difference | rule"
        rows = [_row(outlier) for outlier in findings.outliers]
        if not is_full:
            columns, rows = columns.removesuffix(" | rule"), [row[:-1] for row in rows]
        lines += ["", *text_table(columns, rows, ("rule", "expected", "value", "finding"), width)]
    left = grouped((why, name) for name, why in findings.unjudged)
    failed = grouped((o.rule, str(o.location)) for o in findings.outliers if o.side == "failed" and not is_full)
    warned = [
        *(f"{', '.join(where)}: {rule}" for rule, where in failed.items()),
        *(f"suspect: {suspect}" for suspect in findings.suspects),
        *(f"not checked ({why}): {', '.join(names) if is_full else some_names(names)}" for why, names in left.items()),
    ]
    lines += ["", "warnings"] if warned else []
    return "\n".join([*lines, *(part for text in warned for part in wrapped(text, "  "))])


def _row(outlier: Outlier) -> list[str]:
    value = "none" if outlier.value is None else f"{outlier.value:.6g} {outlier.units}"
    differs = "" if outlier.deviation is None else f"{outlier.deviation:+.1%}"
    expected = "none" if outlier.expected is None else f"{outlier.expected:.6g} {outlier.units}"
    return [str(outlier.location), outlier.side, outlier.bench, outlier.metric, value, expected, differs, outlier.rule]
