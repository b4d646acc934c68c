"""Did the program or its instruments raise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from milabench.checks.check import Check, StepContext
from milabench.events.model import StepEvent, Verdict, reported_error


class ErrorCheck(Check):
    """Fails on any exception in the benchmark, its instruments or voir's overseer, except SystemExit with success."""

    name = "error"
    doc = "exceptions in the program and in its instruments"
    severities = ("fail",)

    def __init__(self, context: StepContext, settings: Mapping[str, Any] | None = None) -> None:
        super().__init__(context, settings)
        self._count = 0
        self._first = ""

    def observe(self, event: StepEvent) -> None:
        """Count an error."""
        error = reported_error(event)
        if error is not None and error.is_failure:
            self._count += 1
            self._first = self._first or error.headline

    def verdict(self) -> Verdict:
        """Fail when there was an error; the message is the first one's."""
        numbers = {"count": self._count}
        return self.failure(self._first, numbers) if self._count else self.passed(numbers)
