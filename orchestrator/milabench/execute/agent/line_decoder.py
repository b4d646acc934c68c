"""Decode the bytes of an output pipe into `line` records."""

from __future__ import annotations

import re
from json.encoder import encode_basestring_ascii as quoted
from typing import List, Tuple

from .protocol import TAIL_CHARACTERS

LINE_BYTES = 1 << 20  # longer lines are cut
WORD = re.compile(r"\w")


class LineDecoder:
    """Turns the bytes of one output pipe into `line` records.

    Updates that overwrite each other with a carriage return are one line, the last of them.
    """

    def __init__(self, pipe: str) -> None:
        self._pipe = pipe
        self._pending = b""
        self._updating = False
        self.count = 0
        self.last = ""

    @property
    def has_partial(self) -> bool:
        """Whether text without an end is waiting."""
        return bool(self._pending)

    def feed(self, data: bytes, now: float) -> bytes:
        """Return the records of the lines that `data` completes."""
        parts = (self._pending + data).split(b"\n")
        pending = parts.pop()
        out = []
        for part in parts:
            text = _last_update(part) if b"\r" in part else part
            out.append(self._records(text + b"\n", now))
            self._updating = False
        if b"\r" in pending:
            self._updating = True
            pending = _last_update(pending) + (b"\r" if pending.endswith(b"\r") else b"")
        if len(pending) > LINE_BYTES:
            *whole, pending = _pieces(pending)
            out += [self._records(piece, now) for piece in whole]
        self._pending = pending
        return b"".join(out)

    def partial(self, now: float, last: bool = False) -> bytes:
        """Return the record of the text that has no end yet; `last` when nothing will follow."""
        text, self._pending = (self._pending, b"") if last else _complete_characters(self._pending)
        if self._updating and not last:
            text = text.rstrip(b"\r") + b"\r"
        return self._records(text, now) if text.strip(b"\r") else b""

    def _records(self, data: bytes, now: float) -> bytes:
        out = []
        for piece in _pieces(data):
            text = piece.decode("utf-8", "backslashreplace")
            out.append('{"event":"line","data":%s,"pipe":"%s","t":%.6f}\n' % (quoted(text), self._pipe, now))
            if WORD.search(text):  # a line of dashes carries no information
                self.last = text.strip()[-TAIL_CHARACTERS:] if len(text) > TAIL_CHARACTERS else text.strip()
        self.count += 1
        return "".join(out).encode()


def _last_update(text: bytes) -> bytes:
    return text.rstrip(b"\r").rpartition(b"\r")[2]


def _pieces(data: bytes) -> List[bytes]:
    """Return the bytes in pieces of bounded size, cut between characters."""
    pieces = []
    while len(data) > LINE_BYTES:
        piece = _complete_characters(data[:LINE_BYTES])[0]
        pieces.append(piece)
        data = data[len(piece) :]
    return [*pieces, data]


def _complete_characters(data: bytes) -> Tuple[bytes, bytes]:
    """Split before a UTF-8 character that has only partly arrived."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        length = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return (data[:-back], data[-back:]) if length > back else (data, b"")
    return data, b""
