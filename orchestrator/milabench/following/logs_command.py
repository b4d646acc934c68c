"""`milabench logs`."""

from __future__ import annotations

import codecs
import sys
from pathlib import Path

import click

from milabench.cli.options import base_option, run_argument
from milabench.shown import visible_output


@click.command("logs")
@click.argument("step")
@run_argument
@base_option
@click.option("--attempt", type=click.IntRange(1), help="Default: the last attempt.")
@click.option("-f", "--follow", is_flag=True, help="Continue until the step ends.")
@click.option(
    "--raw", is_flag=True, help="On a terminal too, every byte as it was written. Default there: text and colours."
)
def command(step: str, run: str | None, base: Path | None, attempt: int | None, follow: bool, raw: bool) -> None:
    """Show the output of STEP: its id, or its benchmark's name for the last step of that. Default: of the latest run."""
    from milabench.display.selection import has_colours
    from milabench.following.step_output import step_output

    # Bytes: the output of a step need not be text in any encoding.
    decoder = None if raw or not sys.stdout.isatty() else codecs.getincrementaldecoder("utf-8")("replace")
    colours = has_colours(sys.stdout)
    is_empty = True
    for output in step_output(
        step, run, base, attempt=attempt, follow=follow, say=lambda text: click.echo(text, err=True)
    ):
        is_empty = is_empty and not output
        sys.stdout.buffer.write(
            output if decoder is None else visible_output(decoder.decode(output), colours=colours).encode()
        )
        sys.stdout.flush()
    if is_empty:
        click.echo(f"{step}: no output was recorded", err=True)
