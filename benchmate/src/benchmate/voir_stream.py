"""The data of programs that speak voir's own protocol: lines of JSON on a pipe, or hidden in escape sequences on stdout."""

from __future__ import annotations

import json
import re
from binascii import unhexlify
from collections.abc import Iterator
from typing import Any

Record = tuple[str, dict[str, Any]]
"""Event and data."""

MAX_SEQUENCE = 64 << 20
"""Bytes after which an escape sequence without an end is output like any other."""
_DIGITS = b"0123456789:;<=>?"
_HEX = bytes.maketrans(_DIGITS, b"0123456789abcdef")
# A colour is such a sequence too, but with another final byte; what holds no even number of digits is none of voir's.
_HIDDEN = re.compile(rb"\x1b\[([0-9:;<=>?]+)z")
_BEGUN = re.compile(rb"\x1b(?:\[[0-9:;<=>?]*)?")
_NO_DIGIT = re.compile(rb"[^0-9:;<=>?]")
# Records of the supervisor alone: a second `end`, say, would make two attempts out of one.
_RESERVED = {"config", "meta", "start", "end", "line", "verdict"}


class HiddenDataDecoder:
    """Takes the hidden data out of a stream of output, wherever the stream is split."""

    def __init__(self) -> None:
        self._begun = bytearray()
        """An escape sequence that is not complete yet."""

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """Return the output in `data`, unchanged, and the data that was hidden in it."""
        hidden: list[bytes] = []
        if self._begun:
            # A long one is searched only where it is new.
            if len(self._begun) > 1 and len(self._begun) < MAX_SEQUENCE and not _NO_DIGIT.search(data):
                self._begun += data
                return b"", b""
            data = bytes(self._begun) + data
            self._begun.clear()
        if b"\x1b" not in data:
            return data, b""

        def take(sequence: re.Match[bytes]) -> bytes:
            digits = sequence[1]
            if len(digits) % 2:
                return sequence[0]
            hidden.append(unhexlify(digits.translate(_HEX)))
            return b""

        last = data.rfind(b"\x1b")
        if len(data) - last < MAX_SEQUENCE and _BEGUN.fullmatch(data, last):
            self._begun += data[last:]
            data = data[:last]
        return _HIDDEN.sub(take, data), b"".join(hidden)

    def rest(self) -> bytes:
        """Return, at the end of the stream, the held-back text: it is output."""
        rest = bytes(self._begun)
        self._begun.clear()
        return rest


class RecordDecoder:
    """Turns a stream of lines into records, wherever the stream is split."""

    def __init__(self) -> None:
        self._line = bytearray()
        """The received part of the incomplete line."""

    def feed(self, data: bytes) -> Iterator[Record]:
        """Yield the records of the lines that `data` completes."""
        head, newline, rest = data.rpartition(b"\n")
        if not newline:
            self._line += data
            return
        lines = bytes(self._line) + head
        self._line[:] = rest
        for line in lines.split(b"\n"):
            yield from parse_line(line)

    def rest(self) -> Iterator[Record]:
        """Yield, at the end of the stream, the content of a last line without its end."""
        line = bytes(self._line)
        self._line.clear()
        yield from parse_line(line)


def parse_line(line: bytes) -> Iterator[Record]:
    """Yield the records of a line: usually one. Several when processes that share a pipe wrote at the same time.

    An unreadable line becomes a record, too: `binary` when it is not UTF-8, else `format_error`.
    """
    try:
        text = line.decode().strip()
    except UnicodeDecodeError:
        yield "binary", {"line": line.decode("utf-8", "backslashreplace")}
        return
    position = 0
    while position < len(text):
        try:
            value, position = _DECODER.raw_decode(text, position)
        except (ValueError, RecursionError) as error:
            yield _format_error(text[position:], error)
            return
        yield _record(value) if isinstance(value, dict) else _format_error(text, TypeError("expected a JSON object"))
        while text[position : position + 1].isspace():
            position += 1


_DECODER = json.JSONDecoder()


def _record(value: dict[str, Any]) -> Record:
    if "$event" not in value:
        return "data", value
    event, data = str(value["$event"]), value.get("$data")
    if event in _RESERVED or not event.isidentifier():
        return _format_error(json.dumps(value), ValueError(f"a program cannot record the event {event!r}"))
    if event == "stop":
        return event, {"reason": str(data) if data else "the program has all the observations that it wanted"}
    return event, data if isinstance(data, dict) else {} if data is None else {"message": str(data)}


def _format_error(line: str, error: Exception) -> Record:
    return "format_error", {"line": line, "type": type(error).__name__, "message": str(error)}
