"""The choice of a display for a stream, and of its colours."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TextIO

from milabench.display.base import Display
from milabench.display.plain import Plain


def has_colours(stream: TextIO) -> bool:
    """Return whether colours are written to a stream.

    NO_COLOR (https://no-color.org), which is also --no-color, forbids them, FORCE_COLOR asks for them. Else they are for
    terminals, except dumb ones.
    """
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or _is_terminal(stream)


def _is_terminal(stream: TextIO) -> bool:
    """Return whether a stream is a terminal that obeys control sequences."""
    return stream.isatty() and os.environ.get("TERM", "dumb") not in ("", "dumb")


def choose_display(
    choice: str, stream: TextIO, *, is_verbose: bool = False, clock: Callable[[], float] = time.monotonic
) -> Display:
    """Return the requested display: `live`, `plain`, `none`, or `auto`.

    `auto`, and `live` where the stream is no terminal that can be redrawn, fall back to plain lines, and so does
    `is_verbose`, which shows the output of the steps. `clock` is in seconds. A replay brings its own.
    """
    if choice == "none":
        return Display()
    colours = has_colours(stream)
    if choice == "plain" or is_verbose or not _is_terminal(stream):
        return Plain(stream, is_verbose=is_verbose, colours=colours, clock=clock)
    from milabench.display.live import Live  # rich takes 50 ms to import, which only a terminal needs

    return Live(stream, colours=colours, clock=clock)
