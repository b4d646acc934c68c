"""Converts results of milabench 1.3 and of nccl-tests into runs."""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from milabench.errors import RecordError
from milabench.workflow.context import base_folder

if TYPE_CHECKING:
    from milabench.history.importer import ForeignRun, Imported


def import_runs(
    sources: Sequence[str], base: Path | None, *, run_name: str | None = None
) -> tuple[list[Imported], list[str]]:
    """Convert what folders, zip files and JSON files hold: return the runs, and a note for each part left out.

    Raises RecordError for a file that cannot be read.
    """
    from milabench.history.importer import write_foreign_run
    from milabench.plan.environ import SECRET

    imported, notes = [], []
    for source in sources:
        with unpacked(Path(source)) as path:
            runs, left_out = foreign_runs_in(path, source)
            notes += left_out
            for run in runs:
                renamed = replace(run, name=run_name) if run_name else run
                imported.append(write_foreign_run(renamed, base_folder(base), lambda name: bool(SECRET.search(name))))
    return imported, notes


@contextmanager
def unpacked(source: Path) -> Iterator[Path]:
    """Give the source itself, or a temporary folder with what a zip file holds. Raises RecordError."""
    if not source.exists():
        raise RecordError(f"{source}: no such file or folder")
    if source.is_dir() or not zipfile.is_zipfile(source):
        if source.suffix == ".zip":
            raise RecordError(f"{source}: is not a zip file")
        yield source
        return
    from milabench.bundle import archive

    with archive.open_checked(source) as file, tempfile.TemporaryDirectory(prefix="milabench-import-") as scratch:
        folder = Path(scratch, source.stem)
        folder.mkdir()
        archive.unpack(file, archive.files(file), "", folder)
        yield folder


def foreign_runs_in(path: Path, origin: str) -> tuple[list[ForeignRun], list[str]]:
    """Return the runs in a folder or file, and a note for each part left out."""
    from milabench.history import milabench13, nccl

    if path.is_file():
        return [nccl.read_nccl_run([(path.name, nccl.read_nccl_json(path))], path.stem, origin)], []
    runs, notes = [], []
    for folder in milabench13.run_folders(path):
        run, left_out = milabench13.read_milabench13_run(folder, origin)
        notes += left_out
        runs += [run] if run is not None else []
    if not runs and not notes:
        results = [(file.name, nccl.read_nccl_json(file)) for file in sorted(path.rglob("*.json"))]
        runs += [nccl.read_nccl_run(results, path.name, origin)] if results else []
    return runs, notes
