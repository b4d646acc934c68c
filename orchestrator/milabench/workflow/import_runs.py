"""Converts results of milabench 1.3 and of nccl-tests into runs."""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from milabench.bundle import archive
from milabench.errors import RecordError
from milabench.history.importer import Imported, write_foreign_run
from milabench.history.registry import read_foreign_runs
from milabench.workflow.files import base_folder, require_file


def import_runs(
    sources: Sequence[str], base: Path | None, *, run_name: str | None = None
) -> tuple[list[Imported], list[str]]:
    """Convert what folders, zip files and JSON files hold: return the runs, and a note for each part left out.

    Raises RecordError for a file that cannot be read.
    """
    imported, notes = [], []
    for source in sources:
        with unpacked(Path(source)) as path:
            runs, left_out = read_foreign_runs(path, source)
            notes += left_out
            for run in runs:
                renamed = replace(run, name=run_name) if run_name else run
                imported.append(write_foreign_run(renamed, base_folder(base)))
    return imported, notes


@contextmanager
def unpacked(source: Path) -> Iterator[Path]:
    """Yield the source itself, or a temporary folder with what a zip file holds. Raises RecordError."""
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
        archive.unpack_archive(file, archive.files(file), "", folder)
        yield folder
