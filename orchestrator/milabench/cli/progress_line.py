"""A line on a terminal that is written over."""

from __future__ import annotations

import contextlib
import shutil
import sys


class ProgressLine:
    """A line on standard error that shows progress. Nothing where that is no terminal."""

    def __init__(self) -> None:
        # It is written over by what a terminal obeys.
        self._stream = getattr(sys.stderr, "unfiltered", sys.stderr)
        self._shown = ""

    def show(self, text: str) -> None:
        """Write it over with another text, or with nothing."""
        if text == self._shown or not self._stream.isatty():
            return
        self._shown = text
        columns = shutil.get_terminal_size((0, 0)).columns
        with contextlib.suppress(OSError, ValueError):  # the terminal may be gone
            # What is wider than the terminal would begin a new line each time.
            print(f"\r\x1b[K{text[: columns - 1] if columns else text}", end="", file=self._stream, flush=True)
