"""Writes the messages and the progress of use cases to standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from milabench.workflow.session import Level, Session

if TYPE_CHECKING:
    from milabench.display.base import Display


class TerminalReporter:
    """Writes `warning: ...` and so on to standard error; `display` is `auto`, `live`, `plain` or `none`."""

    def __init__(self, display: str = "auto") -> None:
        self._display = display

    def report(self, level: Level, text: str) -> None:
        """Write one message."""
        print(text if level == "info" else f"{level}: {text}", file=sys.stderr)

    def open_display(self, *, is_verbose: bool = False, clock: Callable[[], float] = time.monotonic) -> Display:
        """Return a new view of a run's progress."""
        from milabench.display.selection import choose_display

        return choose_display(self._display, sys.stderr, is_verbose=is_verbose, clock=clock)


def terminal_session(display: str = "auto") -> Session:
    """Return a session that reports to the terminal and is closed when the command ends."""
    session = Session(TerminalReporter(display))
    click.get_current_context().call_on_close(session.close)
    return session
