"""`milabench config`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from milabench.cli.options import benchmark_names, is_on_command_line, suite_options, terminal_session
from milabench.errors import UsageError
from milabench.suite_check.schemas import SCHEMAS, schema_text
from milabench.workflow.context import read_suite_only
from milabench.workflow.options import SuiteOptions


@click.group("config")
def command() -> None:
    """Show, explain or check the suite's configuration."""


@command.command("show", short_help="Show the suite as YAML in which everything is resolved")
@suite_options()
@click.argument("benches", nargs=-1, shell_complete=benchmark_names)
def show_suite(options: SuiteOptions, benches: tuple[str, ...]) -> None:
    """Show the suite, or some of its benchmarks, as YAML in which everything is resolved.

    BENCHES are names, globs, groups or tags, as in --select.
    """
    from milabench.config.select import select
    from milabench.config.show import to_yaml

    suite = read_suite_only(options)
    if benches and options.select is not None:
        if is_on_command_line("select"):
            raise UsageError("name benchmarks as arguments or with --select, not both ways")
        options = replace(options, select=None)
    if not benches and options.select is None and options.exclude is None:
        click.echo(to_yaml(suite), nl=False)  # with what is disabled
        return
    words = benches or (options.select,)
    names = dict.fromkeys(bench.name for word in words for bench in select(suite, word, options.exclude))
    click.echo(to_yaml(suite, list(names)), nl=False)


@command.command("explain", short_help="Show a value, its source and its effect")
@suite_options(selection=False)
@click.argument("keys", nargs=-1, required=True, metavar="BENCH.KEY...", shell_complete=benchmark_names)
def explain_keys(options: SuiteOptions, keys: tuple[str, ...]) -> None:
    """Show a value, its source, the values it replaced, and its form in a command line."""
    from milabench.suite_check.config_check import explain_key

    session = terminal_session()
    for key in keys:
        for line in explain_key(options, key, session):
            click.echo(line)


@command.command("check", short_help="Report everything that is wrong with suite files")
@suite_options(selection=False)
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
def check_config(options: SuiteOptions, files: tuple[Path, ...]) -> None:
    """Report everything that is wrong with suite and system files, or with those in folders. Default: the suite."""
    from milabench.suite_check.config_check import check_files

    session = terminal_session()
    count = check_files(files, options, session)
    session.info("1 file is valid" if count == 1 else f"{count} files are valid")


@command.command("schema", short_help="Print the JSON Schema of a format, for editors")
@click.argument("name", default="suite", type=click.Choice(list(SCHEMAS)))
@click.option("--markdown", is_flag=True, help="Print the reference page of all suite keys instead.")
def print_schema(name: str, markdown: bool) -> None:
    """Print the JSON Schema (draft 2020-12) of a format, for editors. Default: suite and system files."""
    from milabench.suite_check.schema_docs import reference_page

    if markdown and name != "suite":
        raise UsageError(f"--markdown prints the keys of suites. Leave it out for the schema of a {name}")
    click.echo(reference_page() if markdown else schema_text(name), nl=False)
