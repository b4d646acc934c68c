"""Ask a vendor's tool."""

from __future__ import annotations

import math
from typing import List, Optional

READING_TIMEOUT_S = 10.0


def command_output(*argv: str, timeout_s: float = 20.0) -> str:
    """Return the output of a command. Raise OSError when it is missing, SubprocessError when it fails or hangs."""
    import subprocess

    done = subprocess.run(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=timeout_s, check=True
    )
    return done.stdout.decode("utf-8", "replace")


def table_rows(*argv: str, timeout_s: float = 20.0) -> List[List[str]]:
    """Return the rows of a table without a heading that a command prints, its cells separated by commas."""
    text = command_output(*argv, timeout_s=timeout_s)
    return [[cell.strip() for cell in line.split(",")] for line in text.strip().splitlines()]


def number(text: object) -> Optional[float]:
    """Return the number at the head of a cell (`35.0 W`). None for the many ways in which tools say that there is none."""
    try:
        value = float(str(text).split()[0].rstrip("%"))
    except (ValueError, IndexError):
        return None
    return value if math.isfinite(value) else None


def whole(cell: object) -> Optional[int]:
    """Return the number at the head of a cell, rounded."""
    value = number(cell)
    return None if value is None else round(value)


def ratio(cell: object, divisor: int) -> Optional[float]:
    """Return the number at the head of a cell by a divisor: 100 makes a share of per cent, 1 << 20 MiB of bytes."""
    value = number(cell)
    return None if value is None else value / divisor
