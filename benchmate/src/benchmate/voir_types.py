"""The members of voir's Overseer that probes use, as types; voir has no type hints and is not imported here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol


class Phase(Protocol):
    """One phase of voir; an instrument yields it to wait until it has finished."""

    exception: BaseException | None

    @property
    def pending(self) -> bool:
        """Whether the phase has not begun."""

    def __call__(self, priority: int = 0) -> object:
        """Return the phase with a priority; instruments with a higher one continue first."""


class Phases(Protocol):
    """The phases of a program under voir, in their order."""

    init: Phase
    parse_args: Phase
    load_script: Phase
    run_script: Phase
    finalize: Phase

    def __iter__(self) -> Iterator[Phase]: ...


class InstrumentHost(Protocol):
    """The overseer as an instrument sees it: the `ov` of every probe."""

    phases: Phases

    def require(self, *instruments: Callable[[InstrumentHost], object]) -> object:
        """Run further instruments."""


Instrument = Callable[[InstrumentHost], object]
