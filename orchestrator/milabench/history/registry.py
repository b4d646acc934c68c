"""The formats that `milabench import` reads. A format is a module of this package and an entry in `IMPORTERS`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from milabench.history.importer import ForeignRun, Importer
from milabench.history.milabench13 import MILABENCH13_RUNS
from milabench.history.nccl import NCCL_TESTS

# The first that can read a source reads it: nccl-tests, which would try any file, is last.
IMPORTERS: Sequence[Importer] = (MILABENCH13_RUNS, NCCL_TESTS)


def read_foreign_runs(source: Path, origin: str) -> tuple[list[ForeignRun], list[str]]:
    """Return the runs in a file or folder of any known format, and the skipped parts. Empty for an unknown format."""
    importer = next((importer for importer in IMPORTERS if importer.can_read(source)), None)
    return ([], []) if importer is None else importer.read_runs(source, origin)
