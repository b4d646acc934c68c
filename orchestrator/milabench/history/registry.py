"""The formats that `milabench import` reads; a format is a module of this package and an entry in `IMPORTERS`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from milabench.history import milabench13, nccl
from milabench.history.importer import ForeignRun


class Importer(Protocol):
    """What the module of a format offers."""

    FORMAT: str

    def can_read(self, source: Path) -> bool:
        """Return whether a file or folder may be of this format; looks at names, not into files."""

    def read_runs(self, source: Path, origin: str) -> tuple[list[ForeignRun], list[str]]:
        """Return the runs in a file or folder, and what was left out and why.

        `origin` is what the user called the source. Raises RecordError for a source that is not of this format.
        """


# The first that can read a source reads it: nccl-tests, which would try any file, is last.
IMPORTERS: Sequence[Importer] = (milabench13, nccl)


def read_foreign_runs(source: Path, origin: str) -> tuple[list[ForeignRun], list[str]]:
    """Return the runs in a file or folder of any known format, and what was left out; nothing for an unknown one."""
    for importer in IMPORTERS:
        if importer.can_read(source):
            return importer.read_runs(source, origin)
    return [], []
