"""The phases of a program, and instruments that wait for their ends: voir's, without importing it."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Iterator
from itertools import count
from types import GeneratorType
from typing import Any, NamedTuple


class StopProgram(BaseException):
    """Ends the program early. Not an error, and no Exception, so that the program does not catch it by accident."""


class ProgramAborted(BaseException):
    """Ends the program with the error that it holds, because an instrument says so."""


class Phase:
    """A phase of a program. An instrument yields it to wait until it has ended."""

    def __init__(self, name: str, status: str = "pending") -> None:
        self.name = name
        self.status = status
        """`pending` until the phase has ended, `running` while instruments continue after it, then `done`."""
        self.value: object = None
        self.exception: BaseException | None = None

    @property
    def pending(self) -> bool:
        """Whether the phase has not ended yet."""
        return self.status == "pending"

    @property
    def running(self) -> bool:
        """Whether instruments continue after the phase just now."""
        return self.status == "running"

    @property
    def done(self) -> bool:
        """Whether all instruments that waited for the phase have continued."""
        return self.status == "done"

    def __call__(self, priority: int = 0) -> PhaseWithPriority:
        """Return the phase with a priority. Instruments with a higher one continue first."""
        return PhaseWithPriority(self, priority)


class PhaseWithPriority(NamedTuple):
    """A phase, and the priority of an instrument among those that wait for it."""

    phase: Phase
    priority: int


class Phases:
    """The phases of a program, in their order. IMMEDIATE is a phase that ended before all of them."""

    def __init__(self) -> None:
        self.start = Phase("start", status="done")
        self.init = Phase("init")
        self.parse_args = Phase("parse_args")
        self.load_script = Phase("load_script")
        self.run_script = Phase("run_script")
        self.finalize = Phase("finalize")
        self.IMMEDIATE = self.start(priority=0)

    def __iter__(self) -> Iterator[Phase]:
        yield from (self.start, self.init, self.parse_args, self.load_script, self.run_script, self.finalize)


Instrument = Callable[["InstrumentHost"], object]
_Waiting = tuple[int, int, Generator[object, object, object]]
"""Priority, the smaller the earlier. Number of the instrument. The generator to continue."""


class InstrumentHost:
    """Calls the instruments of a program, each once, as their argument, and continues them after every phase that they yield.

    The part of `ov` that needs no voir. An exception of an instrument goes to `instrument_failed`, and the others continue.
    """

    def __init__(self) -> None:
        self.phases = Phases()
        self.handlers: set[Instrument] = set()
        """The instruments that have been called."""
        self._waiting: dict[Phase, list[_Waiting]] = {phase: [] for phase in self.phases}
        self._numbers = count()

    def require(self, *instruments: Instrument) -> object:
        """Run further instruments. Return the state of a single one, or of each: its `__state__` if it has any, else itself."""
        states = [self._require(instrument) for instrument in instruments]
        return states[0] if len(states) == 1 else states

    def instrument_failed(self, error: BaseException) -> None:
        """Report an exception that an instrument raised."""
        raise NotImplementedError

    def _require(self, instrument: Instrument) -> object:
        state: object = getattr(instrument, "__state__", instrument)
        if instrument not in self.handlers:
            self.handlers.add(instrument)
            try:
                generator = instrument(self)
            except StopProgram as stop:
                self._throw(stop)
                raise
            except BaseException as error:
                self.instrument_failed(error)
                return None
            if isinstance(generator, GeneratorType):
                self._continue(next(self._numbers), generator, self.phases.start)
        return state

    def _end(self, phase: Phase, error: BaseException | None) -> None:
        """End a phase, in which the program raised `error`: waiting instruments continue, then the error is raised."""
        phase.status = "running"
        phase.exception = error
        waiting = self._waiting[phase]
        try:
            # One that continues may require others, which wait for the same phase.
            while waiting:
                _, number, generator = heapq.heappop(waiting)
                self._continue(number, generator, phase)
        except ProgramAborted as aborted:
            raise aborted.args[0] from None
        phase.status = "done"
        if error is not None:
            raise error

    def _throw(self, stop: StopProgram) -> None:
        """Throw the early end of the program into every instrument that waits."""
        for _, _, generator in [entry for waiting in self._waiting.values() for entry in waiting]:
            try:
                generator.throw(StopProgram(*stop.args))
            except (StopProgram, StopIteration):
                pass
            except BaseException as error:
                self.instrument_failed(error)

    def _continue(self, number: int, generator: Generator[object, object, object], phase: Phase) -> None:
        """Continue an instrument after a phase, and after all that it yields which have ended already."""
        while True:
            awaited = self._resume(generator, phase)
            if awaited is None:
                return
            phase = awaited.phase
            if not phase.done:
                heapq.heappush(self._waiting[phase], (-awaited.priority, number, generator))
                return

    def _resume(self, generator: Generator[Any, object, object], phase: Phase) -> PhaseWithPriority | None:
        """Return the next phase that an instrument waits for. None when it has ended."""
        try:
            awaited = generator.send(phase.value) if phase.exception is None else generator.throw(phase.exception)
        except StopIteration:
            return None
        except BaseException as error:
            if error is phase.exception:
                return None
            if isinstance(error, (StopProgram, ProgramAborted)):
                raise
            self.instrument_failed(error)
            return None
        if isinstance(awaited, Phase):
            awaited = awaited()
        if isinstance(awaited, PhaseWithPriority) and awaited.phase in self._waiting:
            return awaited
        self.instrument_failed(TypeError(f"an instrument yielded {awaited!r}: expected a phase of ov.phases"))
        return None
