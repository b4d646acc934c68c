"""The options that say in which format and where a report is written, and its writing."""

from __future__ import annotations

from pathlib import Path

import click

from milabench.cli.options import Verb, file_option, with_options
from milabench.errors import RecordError, UsageError
from milabench.report.registry import FORMATS, format_of_file


def format_options(function: Verb) -> Verb:
    """Give a verb the options on format and destination: `form`, `as_json`, `output`."""
    options = (
        click.option(
            "-f",
            "--format",
            "form",
            type=click.Choice(tuple(FORMATS)),
            help="Format. Default: from the output file's ending, else text.",
        ),
        click.option("--json", "as_json", is_flag=True, help="Short for --format json."),
        file_option("-o", "--output", help="Write to a file instead of the terminal."),
    )
    return with_options(function, options)


def pick_format(form: str | None, as_json: bool, output: Path | None) -> str:
    """Return the requested format, else that of the file's ending, else text. Raises UsageError for two or none."""
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


def write_output(text: str, output: Path | None) -> None:
    """Write to a file and report it, or to the terminal. Raises RecordError."""
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RecordError(f"{output}: cannot be written: {(error.strerror or str(error)).lower()}") from None
    click.echo(f"written to {output}", err=True)
