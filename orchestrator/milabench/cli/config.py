"""`milabench config`: what the suite means, where each value comes from, what is wrong with files."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from milabench.cli.completion_hooks import benchmark_names
from milabench.cli.options import SuiteOptions, suite_options
from milabench.errors import ConfigError, MilabenchError
from milabench.workflow.context import declared_options, max_jobs, overrides, read_context, read_suite_only, suite_dirs

if TYPE_CHECKING:
    pass


@click.group("config", help="Show, explain or check what the suite means.")
def command() -> None:
    """Group the four verbs."""


@command.command("show", help="The suite, or some of its benchmarks, as YAML in which everything is resolved.")
@suite_options(selection=False)
@click.argument("benches", nargs=-1, shell_complete=benchmark_names)
def show_suite(options: SuiteOptions, benches: tuple[str, ...]) -> int:
    """Hand the command line's values on; see the help text above."""
    from milabench.config.select import select
    from milabench.config.show import to_yaml

    suite, _ = read_suite_only(options)
    names = [bench.name for word in benches for bench in select(suite, word)]
    click.echo(to_yaml(suite, names or None), nl=False)
    return 0


@command.command(
    "explain", help="A value, the place it comes from, what it replaced, and what it becomes in a command line."
)
@suite_options(selection=False)
@click.argument("keys", nargs=-1, required=True, metavar="BENCH.KEY...", shell_complete=benchmark_names)
def explain_keys(options: SuiteOptions, keys: tuple[str, ...]) -> int:
    """Hand the command line's values on; see the help text above."""
    from milabench.config.show import explain

    suite, _ = read_suite_only(options)
    for key in keys:
        for line in explain(suite, key):
            click.echo(line)
        for line in rendered(options, key):
            click.echo(line)
    return 0


def rendered(options: SuiteOptions, key: str) -> list[str]:
    """What the placeholders in a value become on this machine; nothing where there are none."""
    from milabench.plan.context import benchmark_on
    from milabench.plan.placeholders import names_for
    from milabench.plan.render import placeholders, render_text, texts

    suite, _ = read_suite_only(options)
    name = max((bench for bench in suite.benchmarks if key.startswith(bench + ".")), key=len, default=None)
    if name is None:
        return []
    found = placeholders(suite.benchmarks[name], key[len(name) + 1 :])
    if not found:
        return []
    quote = '"' if "'" in name else "'"
    inputs = read_context(replace(options, select=f"{quote}{name}{quote}"))
    (bench,) = inputs.benches
    names = names_for(benchmark_on(inputs.where.facts.main, bench, inputs.where))
    wanted = [text for text in found if text.startswith("{")]
    if len(wanted) < len(found):
        # Functions are worked out in the whole value that they stand in.
        wanted += [text for text in texts(bench.config, key[len(name) + 1 :]) if text not in wanted]
    return [f"  {text} is {render_text(text, names)}" for text in wanted]


@command.command(
    "check", help="Everything that is wrong with these suite and system files (or with those in these folders)."
)
@suite_options(selection=False)
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
def check_files(options: SuiteOptions, files: tuple[Path, ...]) -> int:
    """Hand the command line's values on; see the help text above."""
    from milabench.config.read import read_suite
    from milabench.plan.check import planning_problems
    from milabench.workflow.context import suite_file

    wanted = [each for file in files or (suite_file(options.config_file),) for each in yaml_files(file)]
    broken = 0
    for file in wanted:
        try:
            suite = read_suite(
                [file],
                system=options.system_file,
                overrides=overrides(options),
                env=os.environ,
                declared=declared_options,
                max_jobs=max_jobs(options),
            )
        except MilabenchError as error:
            broken += 1
            click.echo(f"error: {error}", err=True)
            continue
        for warning in suite.warnings:
            click.echo(f"warning: {warning}", err=True)
        if problems := planning_problems(suite, suite_dirs(options, suite)):
            broken += 1
            click.echo(f"error: {ConfigError(problems)}", err=True)
    if broken:
        raise ConfigError(f"{broken} of {len(wanted)} files cannot be used")
    print(f"{len(wanted)} files are in order", file=sys.stderr)
    return 0


def yaml_files(path: Path) -> list[Path]:
    """The file itself, or the YAML files of a folder. Raises ConfigError for a folder without any."""
    if not path.is_dir():
        return [path]
    found = sorted([*path.rglob("*.yaml"), *path.rglob("*.yml")])
    if not found:
        raise ConfigError(f"{path}: no .yaml file in this folder")
    return found


@command.command("schema", help="Print the JSON Schema (draft 2020-12) of suite and system files, for editors.")
@click.option("--markdown", is_flag=True, help="Print the reference page of all keys instead.")
def print_schema(markdown: bool) -> int:
    """Hand the command line's values on; see the help text above."""
    from milabench.config.schema_docs import json_schema, reference_page

    click.echo(reference_page() if markdown else json.dumps(json_schema(), indent=1) + "\n", nl=False)
    return 0
