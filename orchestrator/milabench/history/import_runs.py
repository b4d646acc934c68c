"""Converts results of milabench 1.3 and of nccl-tests into runs."""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from milabench.archives import archive
from milabench.errors import RecordError
from milabench.history.importer import Imported, write_foreign_run
from milabench.history.registry import read_foreign_runs
from milabench.workflow.files import base_folder, require_file


def import_runs(
    sources: Sequence[str], base: Path | None, *, run_name: str | None = None
) -> tuple[list[Imported], list[str]]:
    """Convert folders, with the zip files in them, zip files and JSON files: return the runs, and a note for each
    part left out.

    Raises RecordError for a file that cannot be read.
    """
    imported: list[Imported] = []
    notes: list[str] = []

    def import_source(source: str) -> bool:
        with unpacked(Path(source)) as path:
            runs, left_out = read_foreign_runs(path, source)
            notes.extend(left_out)
            for run in runs:
                renamed = replace(run, name=run_name) if run_name else run
                imported.append(write_foreign_run(renamed, base_folder(base)))
        return bool(runs or left_out)

    for source in sources:
        import_source(source)
        for file in _zip_files_in(Path(source)):
            try:
                is_known = import_source(file)
            except RecordError as error:  # nobody named this file
                notes.append(str(error))
            else:
                notes += [] if is_known else [f"{file}: no run of milabench 1.3 in it"]
    return imported, notes


def _zip_files_in(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.rglob("*.zip") if path.is_file()) if folder.is_dir() else []


@contextmanager
def unpacked(source: Path) -> Iterator[Path]:
    """Yield the source itself, or a temporary folder with the contents of a zip file. Raises RecordError."""
    if not source.exists():
        raise RecordError(f"{source}: no such file or folder")
    if not source.is_dir():
        require_file(source, RecordError)
    if source.is_dir() or not zipfile.is_zipfile(source):
        if source.suffix == ".zip":
            raise RecordError(f"{source}: is not a zip file")
        yield source
        return

    with archive.open_checked(source) as file, tempfile.TemporaryDirectory(prefix="milabench-import-") as scratch:
        folder = Path(scratch, source.stem)
        folder.mkdir()
        archive.unpack_archive(file, "", folder)
        yield folder
