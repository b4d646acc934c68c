"""How names become names of files: of a run, and of a step's records."""

from __future__ import annotations

from datetime import datetime

_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.+-")


def encode_name(name: str) -> str:
    """Return the name with every byte percent-encoded outside `A-Za-z0-9_.+-`."""
    return "".join(c if c in _PLAIN else "".join(f"%{byte:02X}" for byte in encode_text(c)) for c in name)


def encode_text(text: str) -> bytes:
    """Return the bytes that the process wrote: surrogates represent bytes that are not UTF-8."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace")


def run_dir_name(name: str, now: datetime) -> str:
    """Return the name of a run that begins now, unless another of that name has begun in the same second."""
    return f"{encode_name(name)}.{now:%Y-%m-%d_%H-%M-%S}"
