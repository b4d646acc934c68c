"""`milabench new`."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from milabench import seams


@click.command("new")
@click.argument("name")
@click.option(
    "--into",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("benchmarks"),
    show_default=True,
    help="Parent of the benchmark's folder.",
)
@click.option(
    "--from",
    "origin",
    metavar="SCRIPT|FOLDER|GIT_URL|'COMMAND'|pypi:PROJECT==VERSION[:FILE]",
    help="Measure this program, unmodified: a script, folder, Git repository or release. Quote a command, such as"
    " `torchrun train.py`. FILE is by default the sdist, else the pure wheel. A benchmark of milabench 1.3 is converted.",
)
@click.option("--script", metavar="PATH", help="With --from: the program, a file of the folder, repository or release.")
@click.option("--module", metavar="NAME", help="With --from: the program, a module started as `python -m` does.")
def command(name: str, into: Path, origin: str | None, script: str | None, module: str | None) -> None:
    """Create a benchmark from a template, which runs as it is, or around a published program, for you to edit."""
    from milabench.errors import UsageError
    from milabench.scaffold.new_benchmark import create_benchmark

    first: tuple[str, ...] = ()
    folder = into / name
    if origin is None:
        if script or module:
            raise UsageError("--script and --module name a program of the source that --from names. Add --from")
        create_benchmark(name, into)
    elif _holds_benchfiles(Path(origin)):
        if script or module:
            raise UsageError("--script and --module name a program of a release. A folder says itself what it starts")
        first = seams.handler("new --from FOLDER")(name, into, Path(origin))
    else:
        for line in seams.handler("new --from PROGRAM")(name, into, origin, script, module):
            click.echo(line)
        return
    click.echo(f"created {folder}. Try it:")
    suite = shlex.quote(str(folder / "suite.yaml"))
    for verb in (*first, "install", "prepare", "run"):
        click.echo(f"  milabench {verb} --config {suite}")
    click.echo("  milabench report")
    click.echo(f"after a change of its requirements.in: milabench pin --config {suite}")


def _holds_benchfiles(folder: Path) -> bool:
    """Return whether a folder is a benchmark, or contains some: benchfiles of milabench 1.3 are turned into ours."""
    return any(next(folder.glob(pattern), None) is not None for pattern in ("benchfile.py", "*/benchfile.py"))
