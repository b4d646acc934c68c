"""`milabench import`: results of milabench 1.3 and of nccl-tests, made into runs."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from milabench.errors import NothingSelected, RecordError


@click.command(
    "import",
    help="Make runs of what other programs wrote: run directories of milabench 1.3 (also zipped, also many at once), "
    "and the JSON of nccl-tests.",
)
@click.argument("sources", nargs=-1, required=True, metavar="DIR|ZIP|JSON...")
@click.option("--base", type=click.Path(path_type=Path), envvar="MILABENCH_BASE", help="Default: ./results.")
@click.option("--run-name", "name", help="What the run is called. Default: as the source is.")
@click.option("--json", "as_json", is_flag=True, help="Say what was made as JSON.")
def command(sources: tuple[str, ...], base: Path | None, name: str | None, as_json: bool) -> int:
    """Hand the command line's values on; see the help text above."""
    from dataclasses import replace

    from milabench.history.importer import write_foreign_run
    from milabench.history.registry import read_foreign_runs
    from milabench.plan.environ import SECRET
    from milabench.workflow.context import base_folder

    made, notes = [], []
    for source in sources:
        with opened(Path(source)) as place:
            arrivals, left_out = read_foreign_runs(place, source)
            notes += left_out
            for arrival in arrivals:
                renamed = replace(arrival, name=name) if name else arrival
                made.append(
                    write_foreign_run(renamed, base_folder(base), lambda variable: bool(SECRET.search(variable)))
                )
    for note in notes:
        click.echo(f"left out: {note}", err=True)
    if not made:
        raise NothingSelected(
            f"{', '.join(sources)}: nothing to import: no run of milabench 1.3, no JSON of nccl-tests"
        )
    if as_json:
        listed = [
            {"run": one.path.name, "path": str(one.path), "new": one.is_new, "benchmarks": one.benchmarks, "masked": one.masked}
            for one in made
        ]  # fmt: skip
        click.echo(json.dumps({"schema": 1, "runs": listed, "left_out": notes}, indent=1))
        return 0
    for one in made:
        masked = f"; {one.masked} secrets masked" if one.masked else ""
        was = f"{one.benchmarks} benchmarks{masked}" if one.is_new else "was imported before"
        click.echo(f"{one.path}: {was}")
    return 0


@contextmanager
def opened(source: Path) -> Iterator[Path]:
    """The source itself, or what a zip file holds, unpacked for as long as it is needed. Raises RecordError."""
    import zipfile

    if not source.exists():
        raise RecordError(f"{source}: no such file or folder")
    if source.is_dir() or not zipfile.is_zipfile(source):
        if source.suffix == ".zip":
            raise RecordError(f"{source}: is no zip file")
        yield source
        return
    from milabench.bundle import archive

    with archive.open_checked(source) as file, tempfile.TemporaryDirectory(prefix="milabench-import-") as place:
        folder = Path(place, source.stem)
        folder.mkdir()
        archive.unpack(file, archive.files(file), "", folder)
        yield folder
