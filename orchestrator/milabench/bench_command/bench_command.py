"""`milabench bench`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from milabench.bench_command.measure_commands import RUNS, CommandOptions, measure_commands
from milabench.cli.options import (
    Verb,
    base_option,
    collected_as,
    display_option,
    rare_option,
    seconds_of,
    table_width,
    terminal_session,
    wait_option,
)
from milabench.config.schema import REDUCTIONS
from milabench.errors import INTERRUPTED


class _CommandLine(click.Command):
    """A command that takes everything after `--` as it is, the words of a single command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words before the first `--`, and keep the others."""
        if "--" in args:
            at = args.index("--")
            ctx.meta["argv"] = tuple(args[at + 1 :])
            args = args[:at]
        return super().parse_args(ctx, args)


def _of_command(*names: str, help: str, **settings: Any) -> Callable[[Verb], Verb]:  # noqa: A002
    """Return an option about a single command, which no variable of a shell sets (a step has MILABENCH_NAME)."""
    return click.option(*names, help=help, envvar=(), **settings)


@click.command("bench", cls=_CommandLine)
@click.argument("commands", nargs=-1, metavar="COMMAND... | -- COMMAND ARGUMENT...")
@click.option(
    "--runs",
    "launches",
    type=click.IntRange(1),
    help=f"Repeats of each command. Default: {RUNS} of several, a single command until it is precise.",
)
@click.option(
    "--warmup", type=click.IntRange(0), default=0, metavar="N", help="Runs of each command before that are not counted."
)
@_of_command("--prepare", "prerun", default="", metavar="LINE", help="Shell line before each repeat, not timed.")
@_of_command(
    "--metric",
    "metrics",
    multiple=True,
    metavar="[NAME=]REGEX",
    help="Measure a number in the output: the group of this regular expression. Default: the seconds of the command.",
)
@_of_command("--units", multiple=True, metavar="[NAME=]TEXT", help="Units of the metric.")
@_of_command(
    "--direction",
    "directions",
    multiple=True,
    metavar="[NAME=]higher|lower|none",
    help="Which direction of the metric is better. Default: higher.",
)
@_of_command(
    "--reduce",
    "reductions",
    multiple=True,
    metavar="[NAME=]METHOD",
    help=f"How to combine several matches ({', '.join(REDUCTIONS)}). Default: last.",
)
@_of_command("--name", "names", multiple=True, metavar="NAME", help="Name of a command, in their order.")
@_of_command(
    "--env", multiple=True, metavar="NAME[=VALUE]", help="Set a variable, or pass on a variable of this shell."
)
@_of_command("--cwd", type=click.Path(path_type=Path), help="Folder to start in. Default: the current folder.")
@click.option(
    "--timeout", "timeout_s", callback=seconds_of, metavar="DURATION", help="Time limit of a repeat (90s, 30m)."
)
@_of_command("--shell", is_flag=True, help="Run each command by /bin/sh, as a single line.")
@rare_option("--no-gate", is_flag=True, help="Exit with 0 also where a comparison is SLOWER.")
@base_option
@wait_option
@display_option
@collected_as("options", CommandOptions)
@click.pass_context
def command(
    ctx: click.Context, options: CommandOptions, base: Path | None, wait: bool, no_gate: bool, display: str
) -> int:
    """Measure the time of commands, or a number that they print, and compare them with the first."""
    from dataclasses import replace

    from milabench.workflow.options import ReportRequest
    from milabench.workflow.report_runs import render_report

    session = terminal_session(display)
    options = replace(options, argv=ctx.meta.get("argv", ()))
    path, code = measure_commands(options, base, session, wait=wait, no_gate=no_gate)
    if code != INTERRUPTED and path is not None:
        click.echo(render_report(ReportRequest(runs=(str(path),)), "brief", session, table_width(wide=False)), nl=False)
    return code
