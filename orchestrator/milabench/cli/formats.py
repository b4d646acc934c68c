"""The options that say in which format and where a report is written, and its writing."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import click

from milabench.cli.options import Decorator, Verb, file_option, full_option, gathered, screen_width, wide_option
from milabench.errors import UsageError
from milabench.report.registry import FORMATS, WORKBOOK, format_of_file
from milabench.workflow.files import write_file


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """The format of a report, and its file. `output` None: the terminal. `has_workbook`: it may be a workbook.

    `is_screen`: a terminal gets a short report, unless `full`.
    """

    form: str | None
    as_json: bool
    output: Path | None
    has_workbook: bool = False
    is_screen: bool = False
    full: bool = False
    wide: bool = False

    @property
    def is_default(self) -> bool:
        """Whether neither a format nor a file was asked for."""
        return self.form is None and not self.as_json and self.output is None

    @property
    def is_workbook(self) -> bool:
        """Whether a workbook was asked for. Raises UsageError for a workbook without a file."""
        if self.format != WORKBOOK.name:
            return False
        if self.output is None:
            raise UsageError("a workbook is no text: name the file with --output NAME.xlsx")
        return True

    @property
    def format(self) -> str:
        """The requested format, else the format of the file's ending, else text. Raises UsageError for two formats or none."""
        if self.as_json and self.form not in (None, "json"):
            raise UsageError(f"--json and --format {self.form} are two formats. Give only the first or only the second")
        if self.as_json or self.form is not None:
            return "json" if self.as_json else str(self.form)
        if self.output is None:
            return "text"
        if self.has_workbook and self.output.suffix.lower() in WORKBOOK.endings:
            return WORKBOOK.name
        by_ending = format_of_file(self.output.suffix)
        if by_ending is None:
            known = "|".join(_choices(has_workbook=self.has_workbook))
            raise UsageError(
                f"-o {self.output}: no format ends in '{self.output.suffix}'. Choose with --format {known}"
            )
        return by_ending.name

    @property
    def is_brief(self) -> bool:
        """Whether the short report is written: on a terminal without --full, or where it was asked for."""
        return self.is_screen and ((self.is_default and not self.full) or self.form == "brief")

    @property
    def shown(self) -> str:
        """The format, brief where `is_brief`. Raises UsageError."""
        return "brief" if self.is_brief else self.format

    @property
    def width(self) -> int | None:
        """Maximum width of its tables in characters. None: no limit."""
        return screen_width(self.wide, is_full=not self.is_brief) if self.output is None else None

    def write(self, text: str | bytes) -> None:
        """Write to the file and report it, or to the terminal. Raises RecordError."""
        if self.output is None:
            click.echo(text, nl=False)
            return
        write_file(self.output, text, is_folder_made=False)
        click.echo(f"written to {self.output}", err=True)

    def write_pieces(self, pieces: Iterable[str]) -> None:
        """Write a text as `write`, to the terminal while it is made. Raises RecordError."""
        if self.output is not None:
            self.write("".join(pieces))
            return
        for piece in pieces:
            click.echo(piece, nl=False)


class _FormatName(click.Choice[str]):
    """The name of a format."""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value == "latex":
            raise UsageError(
                "--format latex was removed. Write Markdown (--format markdown), of which pandoc makes LaTeX"
            )
        return super().convert(value, param, ctx)


def _choices(*, has_workbook: bool) -> tuple[str, ...]:
    return (*FORMATS, WORKBOOK.name) if has_workbook else tuple(FORMATS)


def format_options(
    function: Verb, default: str = "text", *, has_workbook: bool = False, is_screen: bool = False, is_wide: bool = False
) -> Verb:
    """Give a verb the options on format and file. Its function receives them as `destination: Destination`.

    `default` is the format that its help names where none is given. `has_workbook`: it can also write a workbook.
    `is_screen`: its function shows a short report without --full. `is_wide`: its tables are fitted to the terminal.
    """
    options: list[Decorator] = [
        click.option(
            "-f",
            "--format",
            "form",
            type=_FormatName(_choices(has_workbook=has_workbook)),
            help=f"Format. Default: from the output file's ending, else {default}.",
        ),
        click.option("--json", "as_json", is_flag=True, help="Short for --format json."),
        file_option("-o", "--output", help="Write to a file instead of the terminal."),
        *([full_option] if is_screen else []),
        *([wide_option] if is_wide else []),
    ]
    return gathered(function, "destination", Destination, options, has_workbook=has_workbook, is_screen=is_screen)


screen_options = functools.partial(format_options, default="brief", is_screen=True, is_wide=True)
"""The same options with --full and --wide, for a verb that shows a short report on a terminal."""
