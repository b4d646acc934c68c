"""Runs that lie in archives: their records, unpacked for as long as they are read."""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from milabench import seams
from milabench.archives import archive
from milabench.archives.bundle import RECORDS
from milabench.archives.verification import bundled_run
from milabench.events.rundir import Run, open_run
from milabench.workflow.measured_runs import METERS


def unpacked_run(file: zipfile.ZipFile, name: str, folder: Path) -> Run:
    """Write the records of a run to a folder, and return it. Raises RecordError."""
    archive.unpack_archive(file, f"{RECORDS}/{name}", folder)
    return open_run(folder)


def archived_locks(file: zipfile.ZipFile, name: str) -> dict[str, bytes]:
    """Return the lock files of a run in an archive, as `locks_of` those of a run."""
    folder = f"locks/{name}"
    return {each.removeprefix(f"{folder}/"): archive.read_member(file, each) for each in archive.files(file, folder)}


@contextmanager
def opened_bundle(path: Path) -> Iterator[Run]:
    """Yield the only run of a bundle whose files match their hashes. Raises RecordError."""
    name, _, _ = bundled_run(path)
    with archive.open_checked(path) as file, tempfile.TemporaryDirectory(prefix="milabench-bundle-") as scratch:
        yield unpacked_run(file, name, Path(scratch, name))


def bundled_report(path: Path) -> tuple[str, Mapping[str, object], Mapping[str, object], Mapping[str, object]]:
    """Return the name of the only run of a bundle, its summary and manifest, and the meters' measurements. Raises RecordError."""
    name, summary, manifest = bundled_run(path)
    with archive.open_checked(path) as file:
        has_meters = bool(archive.files(file, f"{RECORDS}/{name}/{METERS}"))
    if not has_meters or not seams.takes_part("meters"):
        return name, summary, manifest, {}
    with opened_bundle(path) as run:
        return name, summary, manifest, seams.handler("meters").metered_benches(run)
