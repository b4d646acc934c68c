"""`milabench outliers`: the nodes and devices that do not do what is expected of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from milabench.analysis.baseline import Baseline, Findings, Outlier


@click.command(
    "outliers", help="Name the nodes and devices of runs that fall out of a baseline. Default: the latest run."
)
@click.argument("runs", nargs=-1)
@click.option("--base", type=click.Path(path_type=Path), envvar="MILABENCH_BASE", help="Default: ./results.")
@click.option(
    "--baseline",
    "reference",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="What `milabench baseline` wrote.",
)
@click.option(
    "--level",
    type=click.FloatRange(0.5, 1, min_open=True, max_open=True),
    default=0.99,
    show_default=True,
    help="Share of good places that do not fall out.",
)
@click.option(
    "--floor",
    type=click.FloatRange(0, 1),
    default=0.01,
    show_default=True,
    help="Relative difference for which nothing falls out.",
)
@click.option("--json", "as_json", is_flag=True, help="JSON instead of a table.")
def command(
    runs: tuple[str, ...], base: Path | None, reference: Path, level: float, floor: float, as_json: bool
) -> int:
    """Hand the command line's values on; see the help text above."""
    from milabench.analysis.baseline import outliers
    from milabench.workflow.results import resolve_runs
    from milabench.workflow.summaries import summary_of

    expected = read_baseline(reference)
    found = outliers([summary_of(run) for run in resolve_runs(base, runs)], expected, level=level, floor=floor)
    if as_json:
        click.echo(json.dumps(found.to_json(), indent=1))
    else:
        click.echo(outlier_lines(found))
    return 1 if found.outliers else 0


def read_baseline(path: Path) -> Baseline:
    """The baseline in a file. Raises RecordError."""
    from milabench.analysis.baseline import baseline_from_json
    from milabench.errors import RecordError
    from milabench.events.wire import parse_object

    try:
        return baseline_from_json(parse_object(path.read_bytes()), str(path))
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {(error.strerror or str(error)).lower()}") from None
    except ValueError as error:
        raise RecordError(f"{path}: is no baseline: {error}") from None


def outlier_lines(found: Findings) -> str:
    """The table of what falls out, and in a sentence what was looked at."""
    from milabench.report.text import text_table

    lines: list[str] = []
    if found.outliers:
        headings = ["place", "side", "benchmark", "metric", "value", "expected", "differs", "rule"]
        rows = [_row(one) for one in found.outliers]
        lines = [*text_table(headings, rows, [True, True, True, True, False, False, False, True]), ""]
    places = len({str(one.location) for one in found.outliers})
    lines.append(
        f"numbers that fall out: {len(found.outliers)} of {found.judged}, places: {places}; "
        f"of a good fleet's numbers about {found.by_chance:.2g} would by chance"
    )
    lines += [f"suspect, and judged all the same: {what}" for what in found.suspects]
    lines += [f"not judged: {what}" for what in found.unjudged]
    return "\n".join(lines)


def _row(one: Outlier) -> list[str]:
    value = "none" if one.value is None else f"{one.value:.6g} {one.units}"
    differs = "" if one.deviation is None else f"{one.deviation:+.1%}"
    return [
        str(one.location),
        one.side,
        one.bench,
        one.metric,
        value,
        f"{one.expected:.6g} {one.units}",
        differs,
        one.rule,
    ]
