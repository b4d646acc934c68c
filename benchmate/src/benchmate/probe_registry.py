"""The probes that a voirfile asked for: which have fired, and the report on those that have not.

Outside the package `probes`, so that a program without a voirfile does not import that.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from benchmate.errors import BatchSizeError, ProbeError
from benchmate.session import current

P = ParamSpec("P")
R = TypeVar("R")
D = TypeVar("D")


class Probe:
    """A probe: its kind, whether it fired, and why it may not have."""

    def __init__(self, text: str, *, required: bool = True) -> None:
        self.text = text
        self.required = required
        self.why_not: Callable[[], str] = lambda: "it was never reached"
        self.fired = False

    def fire(self) -> None:
        """Note that the program reached the probe."""
        self.fired = True

    def guarded(self, function: Callable[P, R], default: D) -> Callable[P, R | D]:
        """Return the function with its exceptions failing the step instead of the script. They give `default`."""

        def call(*args: P.args, **kwargs: P.kwargs) -> R | D:
            try:
                return function(*args, **kwargs)
            except Exception as error:
                self.failed(error)
                return default

        return call

    def failed(self, error: BaseException) -> None:
        """Fail the step, because code of an instrument raised."""
        detail = str(error) if isinstance(error, (ProbeError, BatchSizeError)) else f"{type(error).__name__}: {error}"
        # Not into the script: its own `except` would hide it, or end a run that others wait for.
        session = current()
        # A function that raises at each step is reported once.
        if ("probe", f"{self.text}: {detail}") not in session.failures:
            session.error(error, traceback.format_exc())
            session.fail("probe", f"{self.text}: {detail}")


_expected: list[Probe] = []


def expect(probe: Probe) -> Probe:
    """Expect this probe to fire before the program ends."""
    _expected.append(probe)
    return probe


def silent_probes() -> list[Probe]:
    """Return the expected probes that never fired."""
    return [probe for probe in _expected if not probe.fired]
