"""Searches a log in a process of its own: the answer for threads other than the main one, where no match can be ended."""

from __future__ import annotations

import contextlib
import marshal
import pickle
import subprocess
import sys
import threading
from array import array
from collections.abc import Iterable
from pathlib import Path
from typing import IO, cast

from milabench.analysis.log_metrics import LogFold, LogMetric, LogSeries

_PACKAGES = Path(__file__).parents[2]
_PROGRAM = "import sys; sys.path.insert(0, sys.argv[1]); from milabench.analysis.log_child import search; search()"


def log_fold(metrics: Iterable[LogMetric]) -> LogFold | LogChild:
    """Return a new reader of a log, for the thread that calls this."""
    is_main = threading.current_thread() is threading.main_thread()
    return LogFold(metrics) if is_main else LogChild(metrics)


class LogChild:
    """Does what LogFold does, in the main thread of a child."""

    def __init__(self, metrics: Iterable[LogMetric]) -> None:
        self._metrics = tuple(metrics)
        self._process: subprocess.Popen[bytes] | None = None  # from the first text on
        self._input: IO[bytes] | None = None

    def observe(self, text: str, pipe: str | None = None) -> None:
        """Take the data of a pipe; see LogFold."""
        with contextlib.suppress(BrokenPipeError):  # `series` says that it has ended
            marshal.dump((text, pipe), self._input or self._started())

    def series(self) -> tuple[LogSeries, ...]:
        """Return the numbers, a series for each metric, in their order; nothing may be observed after it."""
        if self._process is None:
            return tuple(LogSeries(metric=metric, values=array("d")) for metric in self._metrics)
        found, _ = self._process.communicate()
        if self._process.returncode == 0:
            return cast("tuple[LogSeries, ...]", pickle.loads(found))
        failure = f"was not searched for: the process that does this ended with code {self._process.returncode}"
        return tuple(LogSeries(metric=metric, values=(), failure=failure) for metric in self._metrics)

    def _started(self) -> IO[bytes]:
        """Start the child, and return its standard input, to write the texts to."""
        # A session of its own: a key that interrupts is for us. It ends with its input, even when we are killed.
        command = [sys.executable, "-P", "-c", _PROGRAM, str(_PACKAGES)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        self._input = self._process.stdin
        assert self._input is not None
        pickle.dump(self._metrics, self._input)
        return self._input


def search() -> None:
    """Be the child: read metrics and text from standard input, write the series to standard output."""
    fold = LogFold(pickle.load(sys.stdin.buffer))
    with contextlib.suppress(EOFError):
        while True:
            text, pipe = marshal.load(sys.stdin.buffer)
            fold.observe(text, pipe)
    pickle.dump(fold.series(), sys.stdout.buffer)
    sys.stdout.flush()
