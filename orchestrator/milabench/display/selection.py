"""The choice of a display for a stream."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TextIO

from milabench.display.base import Display
from milabench.display.plain import Plain


def choose_display(
    choice: str, stream: TextIO, *, is_verbose: bool = False, clock: Callable[[], float] = time.monotonic
) -> Display:
    """Return the requested display: `live`, `plain`, `none`, or `auto`.

    `auto`, and `live` where the stream is no terminal that can be redrawn, fall back to plain lines; so does
    `is_verbose`, which shows the output of the steps. `clock` is in seconds; a replay brings its own.
    """
    if choice == "none":
        return Display()
    if choice == "plain" or is_verbose or not stream.isatty() or os.environ.get("TERM", "dumb") in ("", "dumb"):
        return Plain(stream, is_verbose=is_verbose, clock=clock)
    from milabench.display.live import Live  # rich takes 50 ms to import, which only a terminal needs

    return Live(stream, clock=clock)
