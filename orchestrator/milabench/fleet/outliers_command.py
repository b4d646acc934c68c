"""`milabench outliers`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from milabench.cli.options import base_option, file_option, json_option, runs_argument, table_width, wide_option
from milabench.errors import DONE, STEPS_FAILED

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
@wide_option
@json_option
def command(
    runs: tuple[str, ...], base: Path | None, reference: Path, level: float, floor: float, wide: bool, as_json: bool
) -> int:
    """Find the nodes and devices of runs that differ from a baseline. Default: the latest run."""
    from milabench.fleet.fleet_runs import find_outliers

    findings = find_outliers(runs, base, reference, level=level, floor=floor)
    click.echo(json.dumps(findings.to_json(), indent=1) if as_json else outlier_text(findings, table_width(wide)))
    return STEPS_FAILED if findings.outliers else DONE


def outlier_text(findings: Findings, width: int | None = None) -> str:
    """Return the table of outliers, fitted to a terminal's width, and in a sentence what was checked."""
    from milabench.report.text_table import text_table

    lines: list[str] = []
    if findings.outliers:
        headings = ["place", "side", "benchmark", "metric", "value", "expected", "differs", "rule"]
        rows = [_row(outlier) for outlier in findings.outliers]
        is_text, spare = [True, True, True, True, False, False, False, True], ("rule", "expected", "value", "side")
        lines = [*text_table(headings, rows, is_text, spare=spare, width=width), ""]
    places = len({str(outlier.location) for outlier in findings.outliers})
    lines.append(
        f"outliers: {len(findings.outliers)} of {findings.judged} numbers, places: {places}; "
        f"of a good fleet's numbers about {findings.by_chance:.2g} would be reported by chance"
    )
    lines += [f"suspect, and checked all the same: {suspect}" for suspect in findings.suspects]
    lines += [f"not checked: {unjudged}" for unjudged in findings.unjudged]
    return "\n".join(lines)


def _row(outlier: Outlier) -> list[str]:
    value = "none" if outlier.value is None else f"{outlier.value:.6g} {outlier.units}"
    differs = "" if outlier.deviation is None else f"{outlier.deviation:+.1%}"
    expected = "none" if outlier.expected is None else f"{outlier.expected:.6g} {outlier.units}"
    return [str(outlier.location), outlier.side, outlier.bench, outlier.metric, value, expected, differs, outlier.rule]
