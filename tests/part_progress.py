"""One part of the tests: pytest with a file in which `tests/run_parts.py` sees how far it is."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

_WIDTH = 64  # bytes of the file, which is written anew for each test


@dataclass
class Progress:
    """How many tests of how many have ended, and how many of these failed."""

    done: int = 0
    total: int = 0
    failed: int = 0
    begun_s: int = 0
    """When the first test ended, by time.monotonic(); 0 before."""

    @classmethod
    def read(cls, path: Path) -> Progress:
        """Return what a part has written; of one that has not begun, zeros."""
        return cls(*map(int, path.read_text().split())) if path.is_file() else cls()


class ProgressFile:
    """A plugin that keeps the file; with xdist, in the process that hands the tests out."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._progress = Progress()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._progress.total = len(session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: object, ids: list[str]) -> None:
        self._progress.total = len(ids)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._progress.failed += report.failed
        self._progress.done += report.when == "teardown"
        numbers = self._progress
        numbers.begun_s = numbers.begun_s or int(time.monotonic())
        text = f"{numbers.done} {numbers.total} {numbers.failed} {numbers.begun_s}"
        os.pwrite(self._descriptor, text.ljust(_WIDTH).encode(), 0)


def main() -> None:
    """Run pytest with the arguments behind the name of the file; exit with its code."""
    sys.exit(pytest.main(sys.argv[2:], plugins=[ProgressFile(sys.argv[1])]))
