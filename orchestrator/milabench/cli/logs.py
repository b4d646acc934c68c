"""`milabench logs`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from milabench.cli.options import base_option


@click.command("logs")
@click.argument("step")
@click.option("--run", "run_name", metavar="RUN", help="Default: the latest run.")
@base_option
@click.option("--attempt", type=click.IntRange(1), help="Default: the last one.")
@click.option("-f", "--follow", is_flag=True, help="Continue until the step ends.")
def command(step: str, run_name: str | None, base: Path | None, attempt: int | None, follow: bool) -> None:
    """Show the output of STEP: its id, or its benchmark's name where that has one step."""
    from milabench.workflow.step_output import step_output

    for text in step_output(step, run_name, base, attempt=attempt, follow=follow):
        # Bytes: the output of a step need not be text in any encoding.
        sys.stdout.buffer.write(text)
        sys.stdout.flush()
