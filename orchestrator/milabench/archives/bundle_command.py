"""`milabench bundle`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from milabench.analysis.json_codec import picked
from milabench.cli.options import base_option, file_option, json_option, runs_argument
from milabench.shown import counted


@click.command("bundle")
@runs_argument()
@base_option
@file_option("-o", "--output", required=True, help="The zip file to write.")
@file_option("--sign", "key", metavar="KEY", help="Sign with this SSH key.")
@click.option("--step-dirs", "with_step_dirs", is_flag=True, help="Add the folders of repeats: {step_dir}.")
@json_option
def command(
    runs: tuple[str, ...], base: Path | None, output: Path, key: Path | None, with_step_dirs: bool, as_json: bool
) -> None:
    """Create a tamper-evident archive of runs, which `milabench verify` can check. Default: the latest run."""
    from milabench.archives.bundle_runs import bundle_runs

    manifest = bundle_runs(output, base, runs, key=key, with_step_dirs=with_step_dirs)
    if as_json:
        value = {
            "schema": 1,
            "bundle": str(output),
            **picked(manifest, "chain", "runs"),
            "files": len(manifest.files),
            "notes": list(manifest.notes),
            "signed": key is not None,
        }
        click.echo(json.dumps(value))
        return
    for note in manifest.notes:
        click.echo(f"note: {note}", err=True)
    held = f"{counted(len(manifest.runs), 'run')}, {counted(len(manifest.files), 'file')}"
    click.echo(f"written to {output}: {held}, chain {manifest.chain}")
