"""Reads a file of lines that is still being written, each part once."""

from __future__ import annotations

from pathlib import Path

from milabench.devices.regular_file import open_regular
from milabench.errors import RecordError, os_reason
from milabench.events.rundir import CUT_LINE, MAX_LINE


class Appended:
    """The whole lines of a file from the byte `start` on, as they come. Where that is within a line, its rest is the first.

    `offset` is the byte up to which it has been read.
    """

    def __init__(self, path: Path, *, start: int = 0) -> None:
        self._path = path
        self.offset = start
        self._rest = b""

    def lines(self, most: int = MAX_LINE) -> list[bytes]:
        """Return the lines since the last call, at most `most` bytes, without line ends. Empty while there is no file.

        Raises RecordError when it cannot be read.
        """
        try:
            with open_regular(self._path) as file:
                file.seek(self.offset)
                piece = file.read(most)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise RecordError(f"{self._path}: cannot be read: {os_reason(error)}") from None
        self.offset += len(piece)
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if len(self._rest) > MAX_LINE:
            self._rest = CUT_LINE
        return lines
