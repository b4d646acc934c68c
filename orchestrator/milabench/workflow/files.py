"""Reads and writes the files that users name, with errors that say which file and why."""

from __future__ import annotations

from pathlib import Path

from milabench.errors import ConfigError, MilabenchError, RecordError


def read_file(path: Path, error: type[MilabenchError] = ConfigError, hint: str = "") -> bytes:
    """Return the content of a file. Raises `error`, with the hint, when it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as why:
        end = f"; {hint}" if hint else ""
        raise error(f"{path}: cannot be read: {(why.strerror or str(why)).lower()}{end}") from None


def write_file(path: Path, text: str) -> None:
    """Write a file, and make its folder. Raises RecordError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as why:
        raise RecordError(f"{path}: cannot be written: {(why.strerror or str(why)).lower()}") from None
