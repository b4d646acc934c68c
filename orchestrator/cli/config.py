"""`milabench config`: what the suite means, where each value comes from, what is wrong with files."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import click

from orchestrator.cli.inputs import declared_options, overrides, read_inputs, read_suite_only
from orchestrator.cli.options import SuiteOptions, suite_options
from orchestrator.config.select import select
from orchestrator.config.show import explain, json_schema, to_yaml
from orchestrator.errors import ConfigError, MilabenchError


@click.group("config", help="Show, explain or check what the suite means.")
def command() -> None:
    """Group the four verbs."""


@command.command("show", help="The suite, or some of its benchmarks, as YAML in which everything is resolved.")
@suite_options(selection=False)
@click.argument("benches", nargs=-1)
def show(options: SuiteOptions, benches: tuple[str, ...]) -> int:
    """Hand the command line's values on; see the help text above."""
    suite, _ = read_suite_only(options)
    names = [bench.name for word in benches for bench in select(suite, word)]
    click.echo(to_yaml(suite, names or None), nl=False)
    return 0


@command.command(
    "explain", help="A value, the place it comes from, what it replaced, and what it becomes in a command line."
)
@suite_options(selection=False)
@click.argument("keys", nargs=-1, required=True, metavar="BENCH.KEY...")
def explain_keys(options: SuiteOptions, keys: tuple[str, ...]) -> int:
    """Hand the command line's values on; see the help text above."""
    suite, _ = read_suite_only(options)
    for key in keys:
        for line in explain(suite, key):
            click.echo(line)
        for line in rendered(options, key):
            click.echo(line)
    return 0


def rendered(options: SuiteOptions, key: str) -> list[str]:
    """What the placeholders in a value become on this machine; nothing where there are none."""
    from orchestrator.plan.argv import placeholders, render_text
    from orchestrator.plan.run import names_for

    suite, _ = read_suite_only(options)
    name = max((bench for bench in suite.benchmarks if key.startswith(bench + ".")), key=len, default=None)
    if name is None:
        return []
    found = placeholders(suite.benchmarks[name], key[len(name) + 1 :])
    if not found:
        return []
    inputs = read_inputs(replace(options, select=name))
    (bench,) = inputs.benches
    names = names_for(bench.config, bench.folder, inputs.where, inputs.where.facts.main)
    return [f"  {text} is {render_text(text, names)}" for text in found if text.startswith("{")]


@command.command(
    "check", help="Everything that is wrong with these suite and system files (or with those in these folders)."
)
@suite_options(selection=False)
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
def check(options: SuiteOptions, files: tuple[Path, ...]) -> int:
    """Hand the command line's values on; see the help text above."""
    from orchestrator.cli.inputs import suite_file
    from orchestrator.config.read import read_suite

    wanted = [each for file in files or (suite_file(options.config_file),) for each in yaml_files(file)]
    broken = 0
    for file in wanted:
        try:
            suite = read_suite(
                [file], system=options.system_file, overrides=overrides(options), declared=declared_options
            )
        except MilabenchError as error:
            broken += 1
            click.echo(f"error: {error}", err=True)
            continue
        for warning in suite.warnings:
            click.echo(f"warning: {warning}", err=True)
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


@command.command("schema", help="The JSON Schema (draft 2020-12) of suite and system files, for editors.")
def schema() -> int:
    """Print it."""
    click.echo(json.dumps(json_schema(), indent=1))
    return 0
