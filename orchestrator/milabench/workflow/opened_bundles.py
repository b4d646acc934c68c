"""Runs that lie in archives: their records, unpacked for as long as they are read."""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from milabench.bundle import archive
from milabench.bundle.create import RECORDS
from milabench.bundle.verify import bundled_run
from milabench.events.rundir import Run, open_run


def records_of(file: zipfile.ZipFile, name: str) -> list[str]:
    """Return the files of an archive that are the records of a run."""
    return [each for each in archive.files(file) if each.startswith(f"{RECORDS}/{name}/")]


def unpacked_run(file: zipfile.ZipFile, name: str, folder: Path) -> Run:
    """Write the records of a run to a folder, and return it. Raises RecordError."""
    archive.unpack_archive(file, records_of(file, name), f"{RECORDS}/{name}", folder)
    return open_run(folder)


@contextmanager
def opened_bundle(path: Path) -> Iterator[Run]:
    """Yield the one run of a bundle whose files match their hashes. Raises RecordError."""
    name, _, _ = bundled_run(path)
    with archive.open_checked(path) as file, tempfile.TemporaryDirectory(prefix="milabench-bundle-") as scratch:
        yield unpacked_run(file, name, Path(scratch, name))
