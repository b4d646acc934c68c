"""Amounts of bytes, for a person."""

from __future__ import annotations

_DECIMALS = {"B": 0, "kB": 0, "MB": 0, "GB": 1, "TB": 1, "PB": 1}


def size_text(size: float) -> str:
    """Return a number of bytes as `500 B`, `12 kB`, `412 MB`, `2.1 GB`, `2.5 TB`, `1.2 EB`."""
    for unit, decimals in _DECIMALS.items():
        if size < 999.5:
            return f"{size:.{decimals}f} {unit}"
        size /= 1000
    return f"{size:,.1f} EB"


def disk_text(disk: float, download: float) -> str:
    """Return disk and network needs, in bytes: `3.2 GB on disk, 400 MB to download`; zero is left out.

    More may be downloaded than stays on the disk: an archive, or a source that is built.
    """
    amounts = ((disk, "on disk"), (download, "to download"))
    return ", ".join(f"{size_text(amount)} {what}" for amount, what in amounts if amount) or "0 B on disk"
