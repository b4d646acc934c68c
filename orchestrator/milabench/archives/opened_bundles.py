"""Runs that lie in archives: their records, unpacked for as long as they are read."""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from milabench import seams
from milabench.archives import archive
from milabench.archives.bundle import RECORDS
from milabench.archives.verification import bundled_run
from milabench.events.rundir import Run, open_run
from milabench.workflow.measured_runs import METERS


def records_of(file: zipfile.ZipFile, name: str) -> list[str]:
    """Return the files of an archive that are the records of a run."""
    return [each for each in archive.files(file) if each.startswith(f"{RECORDS}/{name}/")]


def unpacked_run(file: zipfile.ZipFile, name: str, folder: Path) -> Run:
    """Write the records of a run to a folder, and return it. Raises RecordError."""
    archive.unpack_archive(file, records_of(file, name), f"{RECORDS}/{name}", folder)
    return open_run(folder)


def archived_locks(file: zipfile.ZipFile, name: str) -> dict[str, bytes]:
    """Return the lock files of a run in an archive, as `locks_of` those of a run."""
    folder = f"locks/{name}/"
    return {
        each.removeprefix(folder): archive.read_member(file, each)
        for each in archive.files(file)
        if each.startswith(folder)
    }


@contextmanager
def opened_bundle(path: Path) -> Iterator[Run]:
    """Yield the only run of a bundle whose files match their hashes. Raises RecordError."""
    name, _, _ = bundled_run(path)
    with archive.open_checked(path) as file, tempfile.TemporaryDirectory(prefix="milabench-bundle-") as scratch:
        yield unpacked_run(file, name, Path(scratch, name))


def bundled_report(path: Path) -> tuple[str, Mapping[str, object], Mapping[str, object], Mapping[str, object]]:
    """Return the name of the only run of a bundle, its summary and manifest, and the meters' measurements. Raises RecordError."""
    name, summary, manifest = bundled_run(path)
    return name, summary, manifest, _bundled_meters(path, name)


def _bundled_meters(path: Path, name: str) -> Mapping[str, object]:
    """Return the meters' measurements of a bundle's run. Its records are unpacked only where there are any."""
    with archive.open_checked(path) as file:
        if not any(f"/{METERS}/" in each for each in records_of(file, name)):
            return {}
    if not seams.takes_part("meters"):
        return {}
    with opened_bundle(path) as run:
        metered: Mapping[str, Any] = seams.handler("meters").metered_benches(run)
        return metered
