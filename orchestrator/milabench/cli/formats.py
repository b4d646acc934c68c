"""The forms in which runs and comparisons are told, chosen by option or by the ending of a file, and where they go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from milabench.errors import RecordError, UsageError
from milabench.report.registry import FORMATS, format_of_file

if TYPE_CHECKING:
    from milabench.analysis.compare import Comparison
    from milabench.analysis.summary_model import Summary
    from milabench.analysis.system_diff import Difference
    from milabench.analysis.traces import Tracing
    from milabench.events.rundir import Run


def format_options(function: Callable[..., int]) -> Callable[..., int]:
    """Give a verb the options that say how and where it tells: `form`, `as_json`, `output`."""
    decorate = (
        click.option(
            "-f",
            "--format",
            "form",
            type=click.Choice(tuple(FORMATS)),
            help="What is written. Default: what the output file ends in, else text.",
        ),
        click.option("--json", "as_json", is_flag=True, help="Short for --format json."),
        click.option(
            "-o",
            "--output",
            type=click.Path(path_type=Path, dir_okay=False),
            help="Write to a file instead of the terminal.",
        ),
    )
    for option in reversed(decorate):
        function = option(function)
    return function


def pick_format(form: str | None, as_json: bool, output: Path | None) -> str:
    """The format: what was asked for, else what the file ends in, else text. Raises UsageError for two answers or none."""
    if as_json and form not in (None, "json"):
        raise UsageError(f"--json and --format {form} are two formats; leave one out")
    if as_json or form is not None:
        return "json" if as_json else str(form)
    if output is None:
        return "text"
    by_ending = format_of_file(output.suffix)
    if by_ending is None:
        raise UsageError(
            f"-o {output}: no format ends in '{output.suffix}'; give one with --format {'|'.join(FORMATS)}"
        )
    return by_ending.name


def tracing_for(form: str) -> Tracing | None:
    """Who draws the runs' series where the format shows them: it is to see their records when they are read."""
    if not FORMATS[form].draws:
        return None
    from milabench.analysis.traces import Tracing

    return Tracing()


def tracing_of_systems(form: str, count: int) -> Tracing | None:
    """As `tracing_for`, of so many systems that are compared: only a few of them are drawn."""
    return tracing_for(form) if count <= FORMATS[form].most_drawn else None


def render_report(form: str, summaries: Sequence[Summary], runs: Sequence[Run], tracing: Tracing | None) -> str:
    """The report on runs in a format; `tracing` has their series for a page in HTML."""
    traces = None if tracing is None else [tracing.of(run) for run in runs]
    return FORMATS[form].renderer.render(summaries, traces)


def render_comparison_as(
    form: str,
    comparison: Comparison,
    differences: Sequence[Difference] | None,
    runs: Sequence[Run | None],
    tracing: Tracing | None,
) -> str:
    """A comparison in a format; `runs` are those of its systems in order, None for one that is known by its report alone."""
    traces = None if tracing is None else [None if run is None else tracing.of(run) for run in runs]
    return FORMATS[form].renderer.render_comparison(comparison, differences, traces)


def write_output(text: str, output: Path | None) -> None:
    """Write to a file and say so, or to the terminal. Raises RecordError where that cannot be."""
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RecordError(f"{output}: cannot be written: {(error.strerror or str(error)).lower()}") from None
    click.echo(f"written to {output}", err=True)
