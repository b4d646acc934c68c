"""Amounts of bytes, for a person."""

from __future__ import annotations

_WHOLE = ("B", "kB", "MB")


def size_text(size: float) -> str:
    """Return a number of bytes as `500 B`, `12 kB`, `412 MB`, `2.1 GB`, `2.5 TB`."""
    for unit in _WHOLE:
        if size < 999.5:
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:.1f} GB" if size < 999.5 else f"{size / 1000:.1f} TB"
