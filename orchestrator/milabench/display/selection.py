"""The interface of a display, and the choice of one for a stream."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TextIO

from milabench.display.plain import Plain
from milabench.plan.model import Plan


class Display(Protocol):
    """Shows progress. Benchmarks run meanwhile, so it does little, and never polls.

    Called from one thread; all but `close` may raise when the terminal is gone, and are then not called again.
    """

    def on_plan(self, plan: Plan) -> None:
        """Show the plan that is about to run."""

    def on_start(self, step: str) -> None:
        """Show that a step's process was started."""

    def on_progress(self, step: str, last: Mapping[str, Any]) -> None:
        """Show the latest observation of a step: `{"task", "rate", "units", "progress": [made, wanted]}`, each optional."""

    def on_line(self, step: str, payload: bytes) -> None:
        """Show output of a step, `line` records that are not decoded yet."""

    def on_end(self, step: str, outcome: str, reason: str) -> None:
        """Show that a step has ended, started or not; `reason` is empty when it passed."""

    def on_message(self, text: str) -> None:
        """Show a message between the steps."""

    def tick(self) -> None:
        """Redraw what came too soon to be shown; called when nothing has happened for a while."""

    def close(self) -> None:
        """End the display."""


class Silent:
    """Shows nothing."""

    def on_plan(self, plan: Plan) -> None:
        """Do nothing."""

    def on_start(self, step: str) -> None:
        """Do nothing."""

    def on_progress(self, step: str, last: Mapping[str, Any]) -> None:
        """Do nothing."""

    def on_line(self, step: str, payload: bytes) -> None:
        """Do nothing."""

    def on_end(self, step: str, outcome: str, reason: str) -> None:
        """Do nothing."""

    def on_message(self, text: str) -> None:
        """Do nothing."""

    def tick(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def choose_display(
    choice: str, stream: TextIO, *, is_verbose: bool = False, clock: Callable[[], float] = time.monotonic
) -> Display:
    """Return the requested display: `live`, `plain`, `none`, or `auto`.

    `auto`, and `live` where the stream is no terminal that can be redrawn, fall back to plain lines; so does
    `is_verbose`, which shows the output of the steps. `clock` is in seconds; a replay brings its own.
    """
    if choice == "none":
        return Silent()
    if choice == "plain" or is_verbose or not stream.isatty() or os.environ.get("TERM", "dumb") in ("", "dumb"):
        return Plain(stream, is_verbose=is_verbose, clock=clock)
    from milabench.display.live import Live  # rich takes 50 ms to import, which only a terminal needs

    return Live(stream, clock=clock)
