"""`milabench capsule`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from milabench.cli.options import file_option, json_option, suite_options, terminal_session
from milabench.shown import counted
from milabench.workflow.options import SuiteOptions


@click.group("capsule")
def command() -> None:
    """Pack a suite with all that it needs, for machines without a network."""


@command.command("create", short_help="Write a capsule of the selected benchmarks")
@suite_options()
@file_option("-o", "--output", required=True, help="The tar file to write.")
@click.option("--no-data", is_flag=True, help="Leave out prepared data. `prepare` makes it on the machine.")
@click.option("--jobs", type=click.IntRange(1), default=min(4, os.cpu_count() or 1), help="Downloads at a time.")
def create(options: SuiteOptions, output: Path, no_data: bool, jobs: int) -> None:
    """Write a capsule of the selected benchmarks, which are installed and prepared here."""
    from milabench.capsule.create import create_capsule
    from milabench.execute.sizes import size_text

    session = terminal_session()
    manifest = create_capsule(output, options, session, jobs=jobs, has_data=not no_data)
    for note in manifest.notes:
        session.note(note)
    click.echo(f"written to {output}: {size_text(manifest.size)}, {counted(len(manifest.files), 'file')}")
    click.echo(f"capsule sha256:{manifest.digest}")


@command.command("show")
@click.argument("capsule", type=click.Path(path_type=Path))
@json_option
def show(capsule: Path, as_json: bool) -> None:
    """Show a capsule's contents and the machine that it fits."""
    from milabench.capsule.contents import open_capsule
    from milabench.capsule.install import capsule_json, capsule_text

    with open_capsule(capsule) as opened:
        manifest = opened.manifest
        click.echo(
            json.dumps(capsule_json(capsule, manifest), indent=1) if as_json else capsule_text(capsule, manifest)
        )


@command.command("verify")
@click.argument("capsule", type=click.Path(path_type=Path))
def verify(capsule: Path) -> None:
    """Compare every byte of a capsule with its manifest. Exit codes: 0 unaltered, 6 altered."""
    from milabench.capsule.install import verify_capsule

    manifest = verify_capsule(capsule)
    click.echo(f"{capsule}: unaltered, {counted(len(manifest.files), 'file')}")
    click.echo(f"capsule sha256:{manifest.digest}")
