"""Progress of a long replay, on stderr: on a terminal a line that changes, in a log a line now and then."""

from __future__ import annotations

import threading
import time
from typing import TextIO

TERMINAL_S = 2.0
LOG_S = 10.0
_CLEAR = "\r\x1b[K"


class Progress:
    """While inside, writes the last text of `say`, every couple of seconds on a terminal, every ten in a log.

    A thread writes: a step may take minutes, and whoever makes it looks at no clock meanwhile.
    """

    def __init__(self, stream: TextIO, title: str) -> None:
        self._stream, self._title = stream, title
        self._is_terminal = stream.isatty()
        self._interval_s = TERMINAL_S if self._is_terminal else LOG_S
        self._text = ""
        self._began = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write, name="progress", daemon=True)

    def __enter__(self) -> Progress:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def say(self, text: str) -> None:
        """Set the current activity."""
        self._text = text

    def _write(self) -> None:
        is_shown = False
        while not self._ended.wait(self._interval_s):
            line = f"{self._title}: {self._text} ({time.monotonic() - self._began:.0f} s)"
            self._stream.write(f"{_CLEAR}{line}" if self._is_terminal else f"{line}\n")
            self._stream.flush()
            is_shown = self._is_terminal
        if is_shown:
            self._stream.write(_CLEAR)
            self._stream.flush()
