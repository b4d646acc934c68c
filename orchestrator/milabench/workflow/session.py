"""What a use case works with: the reporter of its messages, and the connections to other machines."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from milabench.display.base import Display
    from milabench.execute.remote_host import HostPool

Level = Literal["info", "note", "warning", "error"]


class Reporter(Protocol):
    """Receives the messages of a use case. No method raises, so that a lost terminal does not end a run."""

    def report(self, level: Level, text: str) -> None:
        """Report one message of one or a few lines.

        Of the levels, `info` is progress or a result, `note` needs no action, `warning` may need one, `error` is a failure
        that does not end the use case at once.
        """

    def open_display(self, *, is_verbose: bool = False, clock: Callable[[], float] = time.monotonic) -> Display:
        """Return a new view of a run's progress, which the caller closes; `clock` returns seconds."""


@dataclass(slots=True)
class CollectingReporter:
    """Keeps the messages, for programs and tests; shows no progress."""

    messages: list[tuple[Level, str]] = field(default_factory=list)

    def report(self, level: Level, text: str) -> None:
        """Keep the message."""
        self.messages.append((level, text))

    def open_display(self, *, is_verbose: bool = False, clock: Callable[[], float] = time.monotonic) -> Display:
        """Return a display that shows nothing."""
        from milabench.display.base import Display

        return Display()

    def texts(self, level: Level) -> list[str]:
        """Return the messages of one level, in order."""
        return [text for kept, text in self.messages if kept == level]


class Session:
    """One command, or one program that calls use cases: its reporter, and one connection to each machine until `close`."""

    def __init__(self, reporter: Reporter) -> None:
        self.reporter = reporter
        self._hosts: HostPool | None = None
        self._warnings: set[str] = set()

    @property
    def hosts(self) -> HostPool:
        """The machines that this session reaches."""
        if self._hosts is None:
            from milabench.execute.remote_host import HostPool

            self._hosts = HostPool()
        return self._hosts

    def info(self, text: str) -> None:
        """Report progress or a result."""
        self.reporter.report("info", text)

    def note(self, text: str) -> None:
        """Report something that needs no action."""
        self.reporter.report("note", text)

    def error(self, text: str) -> None:
        """Report a failure that does not end the use case at once."""
        self.reporter.report("error", text)

    def warn(self, text: str) -> None:
        """Report something that the user may want to change, once: a suite is often read more than once."""
        if text not in self._warnings:
            self._warnings.add(text)
            self.reporter.report("warning", text)

    def close(self) -> None:
        """End the connections; a later use of a machine opens a new one."""
        if self._hosts is not None:
            self._hosts.close()
