"""`milabench dev`."""

from __future__ import annotations

import click

from milabench.cli.options import benchmark_names, suite_options, terminal_session, wait_option
from milabench.workflow.options import SuiteOptions


@click.command("dev", context_settings={"ignore_unknown_options": True})
@suite_options(selection=False, environment=True)
@click.option("--audit", is_flag=True, help="Run once with a second count of its loop, and print both.")
@click.option(
    "--run", "is_run", is_flag=True, help="Run the benchmark's own command once, as `milabench run` starts it."
)
@wait_option
@click.argument("bench", shell_complete=benchmark_names)
@click.argument("argv", nargs=-1, type=click.UNPROCESSED)
def command(options: SuiteOptions, audit: bool, is_run: bool, wait: bool, bench: str, argv: tuple[str, ...]) -> int:
    """Open a shell in a benchmark's environment, or run a command there and return its exit code.

    A command is started in the current folder, so that relative paths are those that you typed.
    """
    from milabench.dev.dev_shell import open_shell

    option, equals, value = bench.partition("=")
    if option == "--select":  # as other verbs, and milabench 1.3, name what is meant
        bench, *rest = [value, *argv] if equals else argv or ("",)
        argv = tuple(rest)
        if not bench:
            raise click.UsageError("--select needs a value")
    if argv and (audit or is_run):
        option = "--audit" if audit else "--run"
        raise click.UsageError(f"{option} runs the benchmark's own command. Leave out the other")
    return open_shell(options, bench, argv, terminal_session(), audit=audit, is_run=is_run, wait=wait)
