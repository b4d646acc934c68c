"""`milabench driver`."""

from __future__ import annotations

from pathlib import Path

import click

from milabench.cli.options import (
    base_option,
    collected_as,
    display_option,
    rare_option,
    seconds_of,
    terminal_session,
    wait_option,
)
from milabench.driver.task_driver import CONFIG, RESULT, TaskOptions, run_task
from milabench.errors import DONE


@click.command("driver")
@click.option("--task-name", metavar="T", help="Section of the file, and prefix of the metrics' names.")
@click.option("--num-gpus", type=click.IntRange(0), metavar="N", help="Accelerators. Default: from the section.")
@rare_option("--framework", metavar="F", help="Prefix before the task in the metrics' names.")
@rare_option("--metrics-suffix", metavar="S", help="Suffix of the metrics' names.")
@rare_option("--epochs", type=click.IntRange(1), help="Replaces --epochs of the command.")
@rare_option("--kvstore", help="Replaces --kvstore of the command.")
@rare_option("--dtype", help="Replaces --dtype of the command.")
@rare_option("--metrics-policy", metavar="SECTION", help="Take the metrics of this section, for --command-to-execute.")
@click.option(
    "--command-to-execute", "command_line", metavar="CMD", help="A shell command line, instead of the section's."
)
@rare_option("--data-set", metavar="NAME", help="Accepted, with a warning: nothing is downloaded here.")
@click.option(
    "--config",
    "--metrics-template",
    "config_file",
    type=click.Path(path_type=Path),
    envvar="MILABENCH_DRIVER_CONFIG",
    help=f"The file. Default: {CONFIG}.",
)
@click.option("--result", type=click.Path(path_type=Path, dir_okay=False), default=RESULT, show_default=True)
@click.option(
    "--timeout",
    "timeout_s",
    callback=seconds_of,
    metavar="DURATION",
    help="End the command after this time (90s, 30m, 4h).",
)
@base_option
@wait_option
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON too.")
@display_option
@collected_as("options", TaskOptions)
def command(
    options: TaskOptions, data_set: str | None, result: Path, base: Path | None, wait: bool, as_json: bool, display: str
) -> int:
    """Run a task of a .cfg file and write the metrics found in its log to a JSON file."""
    session = terminal_session(display)
    if data_set is not None:
        session.warn(f"--data-set {data_set}: nothing is downloaded. The command finds its data itself")
    finished = run_task(options, result, base, session, wait=wait)
    if finished.exit_code != DONE:
        return finished.exit_code
    width = max(map(len, finished.metrics))
    table = "".join(f"{name:<{width}}  {value:.10g}\n" for name, value in finished.metrics.items())
    click.echo(finished.to_json() if as_json else table, nl=False)
    session.info(f"driver: {result}, and the log, in {finished.path}")
    return DONE
