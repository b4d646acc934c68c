"""`milabench new`: a benchmark from a template, which passes as it is."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import click

from milabench.errors import UsageError
from milabench.workflow.context import ROOT

TEMPLATE = ROOT / "benchmarks" / "_template"
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.+-]*")


@click.command("new", help="Make a benchmark from a template; it passes as it is, and is yours to change.")
@click.argument("name")
@click.option(
    "--into",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("benchmarks"),
    show_default=True,
    help="Folder that the benchmark's folder is made in.",
)
def command(name: str, into: Path) -> int:
    """Hand the command line's values on; see the help text above."""
    if not NAME.fullmatch(name):
        raise UsageError(f"'{name}' cannot be a benchmark's name: a letter, then letters, digits, '_', '.', '+' or '-'")
    folder = into / name
    if folder.exists():
        raise UsageError(f"{folder} exists; choose another name, or remove it first")
    try:
        write_benchmark(folder, name)
    except OSError as error:
        raise UsageError(f"{folder}: cannot be made: {error.strerror}") from None
    suite = folder / "suite.yaml"
    click.echo(f"made {folder}; try it:")
    for verb in ("install", "prepare", "run"):
        click.echo(f"  milabench {verb} --config {suite}")
    click.echo("  milabench report")
    return 0


def write_benchmark(folder: Path, name: str) -> None:
    """Copy the template; its files say NAME where the benchmark's name belongs."""
    shutil.copytree(TEMPLATE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    for path in folder.iterdir():
        text = path.read_text()
        if "@NAME@" in text:
            path.write_text(text.replace("@NAME@", name))
