"""`milabench report`: what runs came to."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.cli.inputs import base_folder
from orchestrator.cli.options import validations_option
from orchestrator.errors import RecordError

if TYPE_CHECKING:
    from orchestrator.analysis.summary import Summary

FORMATS = ("text", "markdown", "json", "csv")


@click.command("report", help="Report on runs: folders, or names below the base. Default: the latest run.")
@click.argument("runs", nargs=-1)
@click.option("--base", type=click.Path(path_type=Path), envvar="MILABENCH_BASE", help="Default: ./results.")
@click.option(
    "-f", "--format", "form", type=click.Choice(FORMATS), default="text", show_default=True, help="What is written."
)
@click.option("--json", "as_json", is_flag=True, help="Short for --format json.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write to a file instead of the terminal."
)
@validations_option
def command(
    runs: tuple[str, ...],
    base: Path | None,
    form: str,
    as_json: bool,
    output: Path | None,
    validations: str | None,
) -> int:
    """Hand the command line's values on; see the help text above."""
    from orchestrator.analysis.summary import summarise
    from orchestrator.cli.validations import checks_of
    from orchestrator.events.rundir import find_run, latest_run

    folder = base_folder(base)
    found = [find_run(folder, name) for name in runs] if runs else [latest_run(folder)]
    render = renderer("json" if as_json else form)
    text = render([summarise(run, checks_of(run, validations)) for run in found])
    if output is None:
        click.echo(text, nl=False)
        return 0
    try:
        output.write_text(text)
    except OSError as error:
        raise RecordError(f"{output}: cannot be written: {error.strerror}") from None
    click.echo(f"written to {output}", err=True)
    return 0


def renderer(form: str) -> Callable[[list[Summary]], str]:
    """The function that turns summaries into the text of a format."""
    module = importlib.import_module(f"orchestrator.report.{form}")

    def render(summaries: list[Summary]) -> str:
        return str(module.render(summaries))

    return render
