"""The observer of a loop: times each step, tells warm-up from window, and ends the program when the window is complete.

What runs inside the measured loop is `Observer.record` and the generator that calls it: no system call, lock or thread, and
nothing that grows with the number of steps.
"""

from __future__ import annotations

import struct
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from benchmate.agreement import Agreement
from benchmate.batch import BatchSize, sizer
from benchmate.clock import DeviceClock, device_clock, wait_for_devices
from benchmate.errors import BatchSizeError, BenchmateError
from benchmate.ring import (
    EPOCH_END,
    HEAD,
    HEADER_BYTES,
    MILLI,
    NO_DEVICE_CLOCK,
    OBSERVED,
    PENDING,
    SLOT_BYTES,
    TAIL,
    UNIX_MINUS_MONO,
    WANTED,
    WARM_UP,
    WINDOW_START,
    WINDOW_STOP,
)

if TYPE_CHECKING:
    from benchmate.session import Session

AGGREGATE_AFTER = 100_000
RESERVE = 64  # slots kept for entries that must be written: the ends of warm-up and window
FAR = 1 << 62
TASKS = ("train", "validation", "inference")

_pack = struct.Struct("<8q").pack_into


class Observer:
    """The observations of one task: any number of loops, one after the other, feed it.

    `until` and `need` are what the loop compares each step with; everything else happens in `_turn`, which is called when
    both are reached, and at each step of the warm-up.
    """

    # Slots are read faster than the entries of a dictionary of this size.
    __slots__ = (
        "_agreement",
        "_begin",
        "_capacity",
        "_device",
        "_direct",
        "_end",
        "_every",
        "_first_end_ns",
        "_flags",
        "_head",
        "_is_closed",
        "_loop",
        "_measure",
        "_measured",
        "_memory",
        "_pending",
        "_room",
        "_session",
        "_sum_batch_id",
        "_sum_flags",
        "_sum_host_ns",
        "_sum_n",
        "_sum_steps",
        "_sum_t0_ns",
        "_sum_wait_ns",
        "_turn",
        "_warm",
        "_window_start_ns",
        "_words",
        "count",
        "is_complete",
        "is_over",
        "meta",
        "need",
        "ring",
        "stopping",
        "task",
        "until",
    )

    def __init__(self, session: Session, task: str, units: str, stop: bool | None) -> None:
        if task not in TASKS:
            raise BenchmateError(f"task={task!r}: expected one of {', '.join(TASKS)}")
        self._session = session
        self._measure = session.config.measure
        self.task = task
        self.stopping = (task == "train" and session.stop_exception is not None) if stop is None else stop
        self.meta: dict[str, object] = {
            "task": task,
            "units": units,
            "rank": session.rank,
            "clock": "host",
            "kind": "rate",
        }
        self.ring = session.open_ring(self.meta)
        self.ring.words[WANTED] = self._measure.window_steps
        self.is_complete = False
        self.is_over = False
        """Whether loops should end now: the window is complete and there is no runner to end the program."""
        self._agreement = Agreement(task, session.rank, session.world_size)
        self._measured = 0
        self.count = 0
        """Observations, warm-up included."""
        self.until = 0
        self.need = 0
        self._turn: Callable[[int], None] = self._first_turn
        self._flags = WARM_UP if self._measure.warmup_steps or self._measure.warmup_s else 0
        self._warm = 0
        self._first_end_ns = 0
        self._window_start_ns = 0
        self._loop: object | None = None
        self._is_closed = False
        self._tie_to_ring()
        # Steps on their way into one entry.
        self._every = 1
        self._sum_steps = self._sum_host_ns = self._sum_wait_ns = self._sum_flags = 0
        self._sum_n: int | float = 0
        self._sum_t0_ns = self._sum_batch_id = 0
        # The device's clock, when there is one.
        self._device: DeviceClock | None = None
        self._begin: Any = None
        self._end: Any = None
        self._pending: deque[tuple[int, Any, Any]] = deque()

    def _tie_to_ring(self) -> None:
        self._memory, self._words, self._capacity = self.ring.memory, self.ring.words, self.ring.capacity
        self._head = self.ring.head
        self._room = min(AGGREGATE_AFTER, self._head + self._capacity * 3 // 4)
        self._direct = self._room

    # In the loop

    def record(self, t0_ns: int, end_ns: int, n: int | float, wait_ns: int, flags: int) -> None:
        """Take one step: from `t0_ns` to `end_ns`, n items, `wait_ns` of it waiting for data (-1: unknown)."""
        head = self._head
        count = self.count
        if head < self._direct:
            offset = HEADER_BYTES + head % self._capacity * SLOT_BYTES
            try:
                _pack(self._memory, offset, count, t0_ns, end_ns - t0_ns, n, -1, 1, flags | self._flags, wait_ns)
            except struct.error:
                n, flags = round(n * 1000), flags | MILLI
                _pack(self._memory, offset, count, t0_ns, end_ns - t0_ns, n, -1, 1, flags | self._flags, wait_ns)
            # Publish after the slot is written.
            self._words[HEAD] = self._head = head + 1
        else:
            self._gather(t0_ns, end_ns, n, wait_ns, flags | self._flags)
        self.count = count = count + 1
        self._words[OBSERVED] = count - self._warm
        if end_ns >= self.until and count >= self.need:
            self._turn(end_ns)

    def _gather(self, t0_ns: int, end_ns: int, n: int | float, wait_ns: int, flags: int) -> None:
        """The slower way: several steps in one entry, or an entry whose time on the device is still to come."""
        if self._sum_steps == 0:
            self._sum_t0_ns, self._sum_batch_id, self._sum_wait_ns = t0_ns, self.count, 0
        self._sum_steps += 1
        self._sum_host_ns += end_ns - t0_ns
        self._sum_n += n
        self._sum_wait_ns = -1 if wait_ns < 0 or self._sum_wait_ns < 0 else self._sum_wait_ns + wait_ns
        self._sum_flags |= flags
        if self._pending:
            self._poll()
        if self._sum_steps >= self._every:
            self._write_gathered(RESERVE)

    def _write_gathered(self, reserve: int) -> None:
        """Write the sum as one entry if there is room beyond `reserve` slots; else go on summing, so that nothing is lost."""
        if self._sum_steps == 0:
            return
        head = self._head
        if head >= self._room:
            used = head - self._words[TAIL]
            # Half full, or long enough as it is: twice as many steps in an entry from here on.
            if used * 2 > self._capacity or head >= AGGREGATE_AFTER * self._every.bit_length():
                self._every *= 2
            self._room = head + max(1, (self._capacity - used) // 4)
            if self._every == 1:
                self._room = min(self._room, AGGREGATE_AFTER)
            self._direct = self._room if self._every == 1 and self._device is None else -1
            if used >= self._capacity - reserve:
                self._room = head
                self._direct = -1
                return
        device_ns = NO_DEVICE_CLOCK
        if self._device is not None:
            end, self._end = self._end, None
            if end is None:
                if reserve == RESERVE:
                    return  # too many events on their way: this step joins the next entry
                end = self._device.mark()
            if end is not None and self._begin is not None:
                self._pending.append((head, self._begin, end))
                device_ns = PENDING
            self._begin = end
        n, flags = self._sum_n, self._sum_flags
        if not isinstance(n, int):
            n, flags = round(n * 1000), flags | MILLI
        offset = HEADER_BYTES + head % self._capacity * SLOT_BYTES
        steps, host_ns = self._sum_steps, self._sum_host_ns
        _pack(
            self._memory,
            offset,
            self._sum_batch_id,
            self._sum_t0_ns,
            host_ns,
            n,
            device_ns,
            steps,
            flags,
            self._sum_wait_ns,
        )
        self._words[HEAD] = self._head = head + 1
        self._sum_steps = self._sum_host_ns = self._sum_wait_ns = self._sum_flags = 0
        self._sum_n = 0

    def mark(self) -> None:
        """Record the end of the step on the device, when this step ends an entry."""
        if self._end is None and self._sum_steps + 1 >= self._every and self._device is not None:
            self._end = self._device.mark()

    def begin_on_device(self) -> None:
        """Record where the first step of a loop begins on the device."""
        device = self._device
        if device is None:
            return
        if self._end is not None:
            device.release(self._end)
            self._end = None
        if self._sum_steps == 0 or self._begin is None:
            begin, self._begin = self._begin, device.mark()
            # The end of an entry that is still on its way goes back to the pool when that entry is complete.
            if begin is not None and not (self._pending and self._pending[-1][2] is begin):
                device.release(begin)

    def _poll(self) -> None:
        """Fill in what the device has finished; asks, never waits."""
        device, pending = self._device, self._pending
        assert device is not None
        while pending and device.is_complete(pending[0][2]):
            entry, begin, end = pending.popleft()
            self.ring.fill_device_time(entry, device.elapsed_ns(begin, end))
            device.release(begin)
            # The end of this entry is the beginning of the next one, unless a loop ended here.
            if not (pending and pending[0][1] is end) and self._begin is not end:
                device.release(end)

    def settled(self, end_ns: int) -> int:
        """When the step that ended at `end_ns` was done on devices without events, if it is the last of the window."""
        if self._turn != self._last_turn or "jax" not in sys.modules:
            return end_ns
        wait_for_devices()
        return perf_counter_ns()

    # Between warm-up, window and the end

    def _first_turn(self, end_ns: int) -> None:
        self._first_end_ns = end_ns
        self._session.first_step(end_ns)
        self._turn = self._warm_turn
        if self._flags == 0:
            self._begin_window()
            self._window_start_ns = self.ring.words[WINDOW_START] = end_ns - self._first_host_ns()
        else:
            self._warm_turn(end_ns)

    def _first_host_ns(self) -> int:
        return self.ring.words[HEADER_BYTES // 8 + 2] if self._sum_steps == 0 else self._sum_host_ns

    def _warm_turn(self, end_ns: int) -> None:
        if self._device is None:
            self._look_for_a_device()
        measure = self._measure
        if self.count >= measure.warmup_steps and end_ns - self._first_end_ns >= measure.warmup_s * 1e9:
            self._warm = self.count
            self._begin_window()

    def _begin_window(self) -> None:
        self._write_gathered(0)
        self._flags = 0
        wait_for_devices()
        self._session.window_begins()
        start_ns = perf_counter_ns()
        self._window_start_ns = self.ring.words[WINDOW_START] = start_ns
        self.need = self._warm + max(1, self._measure.window_steps)
        self.until = start_ns + round(self._measure.window_s * 1e9)
        self._turn = self._last_turn

    def _last_turn(self, end_ns: int) -> None:
        self._end_window(end_ns, "complete")
        self.need = self.until = FAR
        if self.stopping:
            # From here on every step ends the program, should the script swallow what ends it.
            self.need = self.until = 0
            self._turn = self._stop_turn
            self._stop_turn(end_ns)

    def _stop_turn(self, end_ns: int) -> None:
        if self._may_stop():
            self.is_over = self._session.stop(f"{self.task}: {self._measured} observations")

    def _may_stop(self) -> bool:
        try:
            return self._agreement.may_stop(self.count)
        except Exception as error:  # the store of a process group that is going away
            self._session.message(
                f"{self.task}: cannot agree with the other ranks on the last step: {error}", once=True
            )
            return True

    def _end_window(self, end_ns: int, why: str) -> None:
        if self.is_complete or self._window_start_ns == 0:
            return
        self.is_complete = True
        self._measured = self.count - self._warm
        self._write_gathered(0)
        self._settle()
        words, offset = self.ring.words, self.ring.words[UNIX_MINUS_MONO]
        start_ns = self._window_start_ns
        words[WINDOW_STOP] = end_ns
        window = {
            "start_ns": start_ns,
            "stop_ns": end_ns,
            "start": (start_ns + offset) / 1e9,
            "stop": (end_ns + offset) / 1e9,
            "why": why,
        }
        self._session.record("data", {"task": self.task, "window": window})
        observed = self._measured
        progress = [
            observed,
            max(observed, self._measure.window_steps) if why == "complete" else self._measure.window_steps,
        ]
        self._session.record("data", {"task": self.task, "progress": progress})

    def _look_for_a_device(self) -> None:
        device = device_clock()
        if device is None:
            return
        self._write_gathered(0)
        self._device, self._direct = device, -1
        self.meta["clock"] = "event"
        self.ring.describe(self.meta)
        self._begin = device.mark()

    def _settle(self) -> None:
        """Wait for the device and fill in every time that is still to come."""
        if self._device is not None and self._pending:
            self._device.wait(self._pending[-1][2])
            self._poll()

    # Around the loop

    def iterate(self, iterable: Iterable[Any], batch_size: BatchSize = None) -> Iterator[Any]:
        """Yield what `iterable` yields, observing each step: from one request for a batch to the next."""
        if self.is_complete and self.stopping:
            # The script swallowed what was to end it, or asks for another epoch of a loop that was ended.
            self._stop_turn(0)
            if self.is_over:
                return
        size, n = sizer(batch_size)
        me = self._loop = object()
        began_ns = None
        wait_ns = 0
        t0_ns = perf_counter_ns()
        self.begin_on_device()
        for batch in iterable:
            fetched_ns = perf_counter_ns()
            if began_ns is not None:
                self.record(began_ns, t0_ns, n, wait_ns, 0)
            if size is not None:
                n = self._size_of(size, batch)
            wait_ns = fetched_ns - t0_ns
            began_ns = t0_ns
            yield batch
            t0_ns = perf_counter_ns()
            if self._device is not None:
                self.mark()
            if t0_ns >= self.until and self.count + 1 >= self.need:
                # A step of the warm-up, or the last of the window: recorded before another batch is fetched.
                self.record(began_ns, self.settled(t0_ns), n, wait_ns, 0)
                began_ns = None
                if self.is_over:
                    return
                t0_ns = perf_counter_ns()
                if self._device is not None:
                    self.begin_on_device()
            if self._loop is not me:
                # Another loop over this task ran inside this step: neither the step's time nor its items mean anything.
                self._loop = me
                began_ns = None
                self._session.message(
                    f"{self.task}: two loops overlap; give them different tasks, or when= to leave one alone", once=True
                )
                self.begin_on_device()
        if began_ns is not None:
            self.record(began_ns, t0_ns, n, wait_ns, EPOCH_END)
        elif self.count:
            self._mark_epoch_end()
        else:
            self._session.message(f"{self.task}: a loader yielded nothing", once=True)
        self._loop_ended()

    def _mark_epoch_end(self) -> None:
        """The last step was recorded before anybody knew that it was an epoch's last."""
        if self._sum_steps:
            self._sum_flags |= EPOCH_END
        else:
            slot = HEADER_BYTES + (self._head - 1) % self._capacity * SLOT_BYTES
            self._words[slot // 8 + 6] |= EPOCH_END

    def _loop_ended(self) -> None:
        self._write_gathered(RESERVE if self.ring.path is not None else 0)
        self._session.drain(self.ring, self.meta)

    def _size_of(self, size: Callable[[Any], int | float], batch: Any) -> int | float:
        try:
            return size(batch)
        except BatchSizeError as error:
            self._session.fail("probe", str(error))
            return 0
        except Exception as error:  # a function of the voirfile's author: it must not end the script
            self._session.fail("probe", f"batch_size of {self.task}: {type(error).__name__}: {error}")
            return 0

    def close(self) -> None:
        """The program has ended: complete what is open."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._window_start_ns and not self.is_complete:
            self._end_window(self._last_end_ns(), "ended")
        elif self.count and not self.is_complete:
            self._session.message(f"{self.task}: ended during warm-up, after {self.count} steps: nothing was measured")
        self._write_gathered(0)
        self._settle()
        self._session.drain(self.ring, self.meta)
        self.ring.close()

    def _last_end_ns(self) -> int:
        if self._sum_steps:
            return self._sum_t0_ns + self._sum_host_ns
        word = (HEADER_BYTES + (self._head - 1) % self._capacity * SLOT_BYTES) // 8
        return self._words[word + 1] + self._words[word + 2]

    def detach(self) -> None:
        """In a forked child: loops under way go on, into a ring that nobody reads."""
        from benchmate.ring import Ring

        self.ring = Ring(self.meta, capacity=1024)
        self._device = None
        self._pending.clear()
        self._tie_to_ring()
        self.stopping = False
        self._is_closed = True

    def cost_s(self) -> float:
        """Host seconds that observing took: the number of steps times the price of one, measured now. Call it last."""
        if self.count == 0:
            return 0.0
        steps, tries = self.count, 500
        self.detach()
        self.need = self.until = FAR
        begin_ns = perf_counter_ns()
        for _ in range(tries):
            end_ns = perf_counter_ns()
            self.record(begin_ns, end_ns, 1, perf_counter_ns() - end_ns, 0)
        return steps * (perf_counter_ns() - begin_ns) / tries / 1e9


class Observed:
    """An iterable with an observer behind it; in every other respect the object that it wraps."""

    def __init__(self, wrapped: Any, observer: Observer, batch_size: BatchSize = None) -> None:
        self.__dict__.update(_wrapped=wrapped, _observer=observer, _batch_size=batch_size)

    def __iter__(self) -> Iterator[Any]:
        return self._observer.iterate(self._wrapped, self._batch_size)

    def __len__(self) -> int:
        return len(self._wrapped)

    def __length_hint__(self) -> int:
        import operator

        return operator.length_hint(self._wrapped)

    def __bool__(self) -> bool:
        return bool(self._wrapped)

    def __getitem__(self, index: Any) -> Any:
        return self._wrapped[index]

    def __contains__(self, item: Any) -> bool:
        return item in self._wrapped

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return getattr(self.__dict__["_wrapped"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._wrapped, name, value)

    def __repr__(self) -> str:
        return f"observed({self._wrapped!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy in another process is not the loop that is measured.
        return _unwrapped, (self._wrapped,)


class ObservedIterator(Observed):
    """An observed iterable that is an iterator itself, such as a generator: `next` works on it."""

    def __init__(self, wrapped: Any, observer: Observer, batch_size: BatchSize = None) -> None:
        super().__init__(wrapped, observer, batch_size)
        self.__dict__["_iteration"] = observer.iterate(wrapped, batch_size)

    def __iter__(self) -> Iterator[Any]:
        return self._iteration

    def __next__(self) -> Any:
        return next(self._iteration)


class Steps:
    """Observes steps that nobody can wrap: call it at the end of each; a step lasts from one call to the next."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._last_ns: int | None = None

    def __call__(self, n: int | float = 1) -> None:
        """End a step of n items. The first call only begins: how long that step took nobody knows."""
        observer = self._observer
        end_ns = perf_counter_ns()
        last_ns, self._last_ns = self._last_ns, end_ns
        if last_ns is None:
            observer._session.first_step(end_ns)
            observer.begin_on_device()
            return
        if observer._device is not None:
            observer.mark()
        if end_ns >= observer.until and observer.count + 1 >= observer.need:
            observer.record(last_ns, observer.settled(end_ns), n, -1, 0)
            self._last_ns = perf_counter_ns()
            observer.begin_on_device()
        else:
            observer.record(last_ns, end_ns, n, -1, 0)

    @property
    def is_over(self) -> bool:
        """Whether the window is complete, for a loop of your own that asks for its end with `stop=True`."""
        return self._observer.is_over


def _unwrapped(value: Any) -> Any:
    return value
