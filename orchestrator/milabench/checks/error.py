"""Did the program or its instruments raise."""

from __future__ import annotations

from milabench.events.model import Error, Other, StepEvent, Verdict

# An exit that is no failure: voir reports `sys.exit(0)` as an error too.
_GOOD_EXITS = ("", "0", "None")


class ErrorCheck:
    """Fails on any exception in the benchmark, its instruments or voir's overseer, but for a good SystemExit."""

    def __init__(self, step: str) -> None:
        self._step = step
        self._count = 0
        self._first = ""

    def see(self, event: StepEvent) -> None:
        """Count an error."""
        match event:
            case Error(type=kind, message=message):
                pass
            case Other(event="overseer_error", data=dict(data)):
                kind, message = str(data.get("type", "error")), str(data.get("message", ""))
            case _:
                return
        if kind == "SystemExit" and message in _GOOD_EXITS:
            return
        self._count += 1
        self._first = self._first or f"{kind}: {message}".splitlines()[0]

    def verdict(self) -> Verdict:
        """Fail when there was an error; the message is the first one's."""
        return Verdict(
            step=self._step,
            check="error",
            verdict="fail" if self._count else "pass",
            numbers={"count": self._count},
            message=self._first,
        )
