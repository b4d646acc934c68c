"""The options that say in which format and where a report is written, and its writing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from milabench.cli.options import Verb, file_option, gathered
from milabench.errors import UsageError
from milabench.report.registry import FORMATS, format_of_file
from milabench.workflow.files import write_file


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """What a report is written in, and to; `output` None: the terminal."""

    form: str | None
    as_json: bool
    output: Path | None

    @property
    def is_default(self) -> bool:
        """Whether neither a format nor a file was asked for."""
        return self.form is None and not self.as_json and self.output is None

    @property
    def format(self) -> str:
        """The requested format, else that of the file's ending, else text. Raises UsageError for two or none."""
        if self.as_json and self.form not in (None, "json"):
            raise UsageError(f"--json and --format {self.form} are two formats; leave one out")
        if self.as_json or self.form is not None:
            return "json" if self.as_json else str(self.form)
        if self.output is None:
            return "text"
        by_ending = format_of_file(self.output.suffix)
        if by_ending is None:
            raise UsageError(
                f"-o {self.output}: no format ends in '{self.output.suffix}'; give one with --format {'|'.join(FORMATS)}"
            )
        return by_ending.name

    def write(self, text: str) -> None:
        """Write to the file and report it, or to the terminal. Raises RecordError."""
        if self.output is None:
            click.echo(text, nl=False)
            return
        write_file(self.output, text, is_folder_made=False)
        click.echo(f"written to {self.output}", err=True)


def format_options(function: Verb, default: str = "text") -> Verb:
    """Give a verb the options on format and file; its function receives them as one `destination: Destination`.

    `default` is what its help says that it prints where none is given.
    """
    options = (
        click.option(
            "-f",
            "--format",
            "form",
            type=click.Choice(tuple(FORMATS)),
            help=f"Format. Default: from the output file's ending, else {default}.",
        ),
        click.option("--json", "as_json", is_flag=True, help="Short for --format json."),
        file_option("-o", "--output", help="Write to a file instead of the terminal."),
    )
    return gathered(function, "destination", Destination, options)
