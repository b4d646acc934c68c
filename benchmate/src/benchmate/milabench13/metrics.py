"""`benchmate.metrics` of milabench 1.3: timed iterators, and functions that take a program's measurements.

The clocks, windows and records are `benchmate.observed`'s. Under milabench the measuring profile decides how much is
observed. In a script of its own the arguments and the variables of 1.3 do.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TextIO

from voir.helpers import current_overseer
from voir.phase import StopProgram
from voir.smuggle import SmuggleWriter

from benchmate import observe_loss
from benchmate.batch_size import BatchSizeGuess, plain_count
from benchmate.configuration import Measure, getenv
from benchmate.errors import BatchSizeError
from benchmate.given_records import record_given
from benchmate.loop_observer import Observer
from benchmate.session import Session, current
from benchmate.sink import TableSink
from benchmate.torchcompat_gaps import supply_when_imported

Push = Callable[..., object]
SizeFunction = Callable[[Any], Any]

supply_when_imported()


# Functions that take a measurement as keywords


def record_push(**data: object) -> None:
    """Record a rate, a loss or any other numbers. See `benchmate.given_records.record_given`. A loss may stay on its device."""
    if "loss" in data:
        data = dict(data)
        observe_loss(data.pop("loss"), str(data.get("task", "train")))
    record_given(current(), data)


def give_push() -> Push:
    """Return a function that gives measurements to the voirfile's streams. Without an overseer, a function that records them."""
    overseer = current_overseer.get()
    if overseer is None:
        return record_push
    give: Push = overseer.give
    return give


def sumggle_push() -> Push:
    """Return a function that records measurements. In a standalone script, a function that writes them to stdout as 1.3 does."""
    return record_push if has_sink(current()) else file_push(SmuggleWriter(sys.stdout))


def file_push(fp: TextIO | None = None) -> Push:
    """Return a function that writes measurements to a file, stdout by default, a line of JSON each."""

    def write(**data: object) -> None:
        print(json.dumps({"task": "train", **data}), file=fp or sys.stdout)

    return write


def is_running_with_voir() -> bool:
    """Return whether the program runs under voir's overseer, ours or its own."""
    return current_overseer.get() is not None


# How much is observed in a script of its own


def earlystop_count() -> int:
    """Return how many observations a loop has by default: VOIR_EARLYSTOP_COUNT and VOIR_EARLYSTOP_SKIP together, now."""
    return getenv("VOIR_EARLYSTOP_COUNT", int, 60) + getenv("VOIR_EARLYSTOP_SKIP", int, 10)


def has_sink(session: Session) -> bool:
    """Return whether milabench listens: then its measuring profile decides."""
    return not isinstance(session.sink, TableSink)


def measure_in_script(session: Session, count: int, skip: int | None = None) -> None:
    """Measure `count` observations in all where no milabench decides. `skip` of them, at most half, are warm-up.

    `skip` is VOIR_EARLYSTOP_SKIP where it is not given.
    """
    if not has_sink(session):
        warm_up = min(getenv("VOIR_EARLYSTOP_SKIP", int, 10) if skip is None else skip, count // 2)
        measure = Measure(warmup_steps=warm_up, warmup_s=0, window_steps=max(1, count - warm_up), window_s=0)
        session.config = session.config._replace(measure=measure)


# Losses and other values that are given later


class LazyMetricPusher:
    """Keeps measurements until `push`: kept values are not read before, so that no device is waited for."""

    def __init__(self, task: str) -> None:
        self.task = task
        self.delayed: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def append(self, *args: Any, **kwargs: Any) -> None:
        """Keep the input of `materialize`."""
        self.delayed.append((args, kwargs))

    def record(self, *args: Any, **kwargs: Any) -> None:
        """Keep a measurement."""
        self.append(*args, **kwargs)

    def materialize(self, *args: Any, **kwargs: Any) -> Mapping[str, Any]:
        """Return the measurement from the kept values."""
        return kwargs

    def push(self, pusher: Push) -> None:
        """Give all that was kept to `pusher`, and forget it."""
        delayed, self.delayed = self.delayed, []
        for args, kwargs in delayed:
            pusher(**self.materialize(*args, **kwargs))


class LazyLossPusher(LazyMetricPusher):
    """Keeps losses, detached from their graphs, with the time at which they came."""

    def record(self, loss: Any) -> None:
        """Keep a loss."""
        self.append(loss.detach() if hasattr(loss, "detach") else loss, time.time())

    def materialize(self, loss: Any, timing: float | None = None) -> Mapping[str, Any]:
        """Return the loss as a number, which waits for its device."""
        return {"loss": loss.item() if hasattr(loss, "item") else loss, "task": self.task, "time": timing}


# Loops


class TimedIterator:
    """An iterable with an observer behind it: each step of a loop over it is timed, and counts the items of its batch.

    `batch_size_fn(batch)` counts the items of a batch. Without it they are the length of its first tensor, else of the first of
    a pair or of the first value of a mapping, else its own. `earlystop` is how many steps are observed in a script of its own, by
    default `earlystop_count()`, None for all. With `raise_stop_program` the loop raises StopProgram when the window is
    complete. Without it the loop ends, and so do later ones, unless milabench's runner ends the program. `event_fn`, `rank`,
    `push` and `device` are accepted: the clocks and records are benchmate's own.
    """

    def __init__(
        self,
        loader: Iterable[Any],
        event_fn: object = None,
        rank: int | None = None,
        push: Push | None = None,
        device: object = None,
        earlystop: int | None = -1,
        raise_stop_program: bool = False,
        batch_size_fn: SizeFunction | None = None,
    ) -> None:
        self.loader = loader
        self.task = "train"
        count = earlystop_count() if earlystop == -1 else earlystop
        self.early_stop = None if count is None else getenv("BENCHMATE_OBSERVATION_COUNT", int, count)
        self.raise_stop_program = raise_stop_program
        self.batch_size_fn = batch_size_fn
        self.items_of = _Items(batch_size_fn)

    @classmethod
    def with_sumggler(cls, *args: Any, push: Push | None = None, **kwargs: Any) -> TimedIterator:
        """Return an iterator. All of them record in the same way."""
        return cls(*args, **kwargs)

    with_stdout = with_give = with_sumggler

    @property
    def observer(self) -> Observer:
        """The observer of the task, created when it is first needed: `task` may be set before."""
        session = current()
        if self.task in session.observers:
            return session.observers[self.task]
        if self.early_stop is not None:
            measure_in_script(session, self.early_stop)
        if self.raise_stop_program and session.stop_exception is None:
            session.end_program_with(StopProgram)
        # A runner ends the program, so that no later epoch or validation runs; without one the loop ends itself.
        stop = self.task == "train" and (self.early_stop is not None or has_sink(session))
        return session.observer(self.task, "items/s", stop)

    def __iter__(self) -> Iterator[Any]:
        return self.observer.iterate(self.loader, self.items_of.count)

    def __len__(self) -> int:
        length: int = len(self.loader)  # type: ignore[arg-type]  # an iterable data set has none, and says so
        return length

    # Else `if loader:` would call __len__, which an iterable data set does not have.
    def __bool__(self) -> bool:
        return bool(self.loader)

    def __getattr__(self, name: str) -> Any:
        # Protocols that ask the instance must not find the loader's; and `loader` itself is absent while this is unpickled.
        if name == "loader" or (name.startswith("__") and name.endswith("__")):
            raise AttributeError(name)
        return getattr(self.loader, name)

    def __enter__(self) -> TimedIterator:
        return self

    def __exit__(self, *error: object) -> None:
        """Do nothing: observations are recorded already."""

    def progress(self) -> int:
        """Return how many steps have been observed, including the warm-up."""
        return self.observer.count

    def is_done(self) -> bool:
        """Return whether the window is complete."""
        return self.observer.is_complete

    def deduce_batch_size(self, batch: Any) -> int | float:
        """Return the number of items of a batch, as they are counted."""
        return self.items_of.count(batch)


class ManualTimedIterator(TimedIterator):
    """An iterator whose steps the program ends itself, with `step()`: steps of an optimizer, of several batches each.

    A step lasts from the end of the previous step, the first from the begin of the loop. Its items are the items of the
    batches that the loop got in that time, `acc_batch_size`, unless `step` is given their number.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.acc_batch_size: int | float = 0
        self.accumulation_steps = 0
        self.epochs = 0
        self._last_ns: int | None = None

    def __iter__(self) -> Iterator[Any]:
        observer = self.observer
        if self._last_ns is None:
            self._last_ns = observer.begin_step(self)
        for batch in () if observer.stop_again() else self.loader:
            self.accumulation_steps += 1
            self.acc_batch_size += self.items_of.count(batch)
            yield batch
            if observer.is_over:
                break
        self.epochs += 1

    def step(self, batch_override: int | float | None = None) -> bool:
        """End a step. Return whether the loop is about to end."""
        n = plain_count(self.acc_batch_size if batch_override is None else batch_override, "step")
        self.acc_batch_size = self.accumulation_steps = 0
        self._last_ns = self.observer.end_step(self._last_ns, n, None, self)
        return self.observer.is_over


class _Items:
    """Counts the items of batches: by a function, by tensors, else by lengths as milabench 1.3 does."""

    def __init__(self, function: SizeFunction | None) -> None:
        self._function = function
        self._guess: BatchSizeGuess | None = BatchSizeGuess()

    def count(self, batch: Any) -> int | float:
        if self._function is not None:
            number = self._function(batch)
            return number if type(number) is int else plain_count(number, "batch_size_fn")
        if self._guess is not None:
            try:
                return self._guess.of(batch)
            except BatchSizeError:
                self._guess = None  # the first batch decides: looking for a tensor takes longer than a step may
        return _length(batch)


def _length(batch: Any) -> int:
    """Return the number of items of a batch without tensors: a batch that has no length is a single item."""
    if isinstance(batch, Mapping) and batch:
        batch = next(iter(batch.values()))
    elif isinstance(batch, (tuple, list)) and len(batch) == 2 and hasattr(batch[0], "__len__"):
        batch = batch[0]
    try:
        return 1 if isinstance(batch, (str, bytes)) else len(batch)
    except TypeError:
        return 1
