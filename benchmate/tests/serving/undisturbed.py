"""Times that a busy machine may lengthen are measured again: a defect shows at every attempt, a disturbance does not."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

ATTEMPTS = 10


def undisturbed(measure: Callable[[int], None]) -> None:
    """Call with the number of the attempt, from 0, until no assertion fails; the last attempt's failure is the test's."""
    for attempt in range(ATTEMPTS - 1):
        with contextlib.suppress(AssertionError):
            return measure(attempt)
    return measure(ATTEMPTS - 1)
