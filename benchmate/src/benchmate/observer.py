"""The observer of a loop: times each step, tells warm-up from window, and ends the program when the window is complete.

What runs inside the measured loop is `Observer.record` and the generator that calls it: no system call, lock or thread, and
nothing that grows with the number of steps.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from benchmate.batch_size import BatchSize, size_function
from benchmate.clock import BoundedLag, DeviceClock, bounded_lag, device_clock, wait_for_devices
from benchmate.errors import BatchSizeError, BenchmateError
from benchmate.rank_consensus import RankConsensus
from benchmate.ring import (
    EPOCH_END,
    HEAD,
    HEADER_BYTES,
    MILLI,
    NO_DEVICE_CLOCK,
    OBSERVED,
    PARTS,
    PENDING,
    SLOT_BYTES,
    SPARE,
    TAIL,
    UNIX_MINUS_MONO,
    WANTED,
    WARM_UP,
    WINDOW_START,
    WINDOW_STOP,
)

if TYPE_CHECKING:
    from benchmate.session import Session
    from benchmate.step_parts import Span, StepParts

AGGREGATE_AFTER = 100_000
RESERVE = 64  # slots kept for entries that must be written: the ends of warm-up and window
FAR = 1 << 62
LOOK_AGAIN_NS = 20_000_000
AFTER_GO_NS = (
    100_000_000  # of further warm-up: whoever waited at the barrier comes back to idle devices and cold caches
)
TASKS = ("train", "validation", "inference")
FIRST_SLOT = HEADER_BYTES // 8
SLOT_WORDS = SLOT_BYTES // 8


class Observer:
    """The observations of one task: any number of loops, one after the other, feed it.

    `until` and `need` are what the loop compares each step with; everything else happens in `_turn`, which is called when
    both are reached, and at each step of the warm-up.
    """

    # Slots are read faster than the entries of a dictionary of this size.
    __slots__ = (
        "_begin",
        "_capacity",
        "_consensus",
        "_device",
        "_direct",
        "_end",
        "_every",
        "_fast",
        "_first_end_ns",
        "_flags",
        "_head",
        "_is_closed",
        "_is_drained",
        "_lag",
        "_loop",
        "_measure",
        "_measured",
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
        "parts",
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
        self._consensus = RankConsensus(task, session.rank, session.world_size)
        self._measured = 0
        self.count = 0
        """Observations, warm-up included."""
        self.until = 0
        self.need = 0
        self._turn: Callable[[int], None] = self._first_turn
        measure = self._measure
        # At a barrier there is something to wait with, and for: the first step at least is warm-up.
        self._flags = WARM_UP if measure.warmup_steps or measure.warmup_s or measure.barrier else 0
        self._warm = 0
        self._first_end_ns = 0
        self._window_start_ns = 0
        self._loop: object | None = None
        self._fast: object | None = None
        """The loop whose own copies of the numbers below are true; None as soon as anything else has touched them."""
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
        self._pending: deque[tuple[int, Any, Any, list[Span] | None]] = deque()
        self._lag: BoundedLag | None = None
        self._is_drained = True
        """Whether the window began with nothing on its way to a device without events; then it ends so, too."""
        self.parts: StepParts | None = None
        """What the step consists of, where somebody asked for it."""

    def _tie_to_ring(self) -> None:
        self._fast = None
        self._words, self._capacity = self.ring.words, self.ring.capacity
        self._head = self.ring.head
        self._room = min(AGGREGATE_AFTER, self._head + self._capacity * 3 // 4)
        self._direct = self._room

    # In the loop

    def record(self, t0_ns: int, end_ns: int, n: int | float, wait_ns: int, flags: int) -> None:
        """Take one step: from `t0_ns` to `end_ns`, n items, `wait_ns` of it waiting for data (-1: unknown)."""
        self._fast = None
        count = self.count
        if self._head < self._direct:
            self._write(count, t0_ns, end_ns - t0_ns, n, NO_DEVICE_CLOCK, 1, flags | self._flags, wait_ns)
        else:
            self._gather(t0_ns, end_ns, n, wait_ns, flags | self._flags)
        self.count = count = count + 1
        self._words[SPARE if self._flags else OBSERVED] = count - self._warm
        if end_ns >= self.until and count >= self.need:
            self._turn(end_ns)

    def _write(
        self,
        batch_id: int,
        t0_ns: int,
        host_ns: int,
        n: int | float,
        device_ns: int,
        steps: int,
        flags: int,
        wait_ns: int,
    ) -> None:
        words, head = self._words, self._head
        slot = FIRST_SLOT + head % self._capacity * SLOT_WORDS
        # Word by word: after a training step has emptied the caches, struct's own library costs more than eight stores.
        try:
            words[slot + 3] = n
        except (TypeError, ValueError):
            words[slot + 3] = round(n * 1000)
            flags |= MILLI
        words[slot] = batch_id
        words[slot + 1] = t0_ns
        words[slot + 2] = host_ns
        words[slot + 4] = device_ns
        words[slot + 5] = steps
        words[slot + 6] = flags
        words[slot + 7] = wait_ns
        # Publish after the slot is written.
        words[HEAD] = self._head = head + 1

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
            self._direct = self._room if self._every == 1 and self._device is None and self.parts is None else -1
            if used >= self._capacity - reserve:
                self._room = head
                self._direct = -1
                return
        device_ns, end = NO_DEVICE_CLOCK, None
        if self._device is not None:
            end, self._end = self._end, None
            if end is None:
                if reserve == RESERVE:
                    return  # too many events on their way: this step joins the next entry
                end = self._device.mark()
            if end is not None and self._begin is not None:
                device_ns = PENDING
        spans = None if self.parts is None else self._write_parts(self.parts, device_ns)
        if self._device is not None:
            if device_ns == PENDING:
                self._pending.append((self._head, self._begin, end, spans))
            self._begin = end
        self._write(
            self._sum_batch_id,
            self._sum_t0_ns,
            self._sum_host_ns,
            self._sum_n,
            device_ns,
            self._sum_steps,
            self._sum_flags,
            self._sum_wait_ns,
        )
        self._sum_steps = self._sum_host_ns = self._sum_wait_ns = self._sum_flags = 0
        self._sum_n = 0

    def _write_parts(self, parts: StepParts, device_ns: int) -> list[Span] | None:
        """Write what the entry consists of into the slot before it; both are published with the entry."""
        ns, spans = parts.take()
        if device_ns != PENDING:
            spans = None
        elif spans is None:
            ns = [-1, -1, -1]  # the host only asked for them
        slot = FIRST_SLOT + self._head % self._capacity * SLOT_WORDS
        words = (self._sum_batch_id, *ns, NO_DEVICE_CLOCK if spans is None else PENDING, 0, PARTS, 0)
        for place, word in enumerate(words):
            self._words[slot + place] = word
        self._head += 1
        return spans

    def _fill_parts(self, device: DeviceClock, entry: int, spans: list[Span]) -> None:
        totals = [-1, -1, -1]
        for part, begin, end in spans:
            totals[part] = max(0, totals[part]) + device.elapsed_ns(begin, end)
            device.release(begin)
            device.release(end)
        if self._words[HEAD] - entry <= self._capacity:
            slot = FIRST_SLOT + entry % self._capacity * SLOT_WORDS
            for place, total in enumerate(totals, start=1):
                self._words[slot + place] = total
            self._words[slot + 4] = 0

    def take_parts(self) -> None:
        """From the next step on, record what each step consists of."""
        from benchmate.step_parts import StepParts

        self._write_gathered(0)
        self.parts = StepParts()
        self.parts.device = self._device
        self._direct, self._fast = -1, None

    def mark(self, result: Any = None) -> None:
        """The step ends here on the device, where there is one; `result` is what it gave, where that is known."""
        if self.parts is not None:
            self.parts.end()
        if self._lag is not None:
            self._lag.add(result)
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
            entry, begin, end, spans = pending.popleft()
            if spans is not None:
                self._fill_parts(device, entry - 1, spans)
            self.ring.fill_device_time(entry, device.elapsed_ns(begin, end))
            device.release(begin)
            # The end of this entry is the beginning of the next one, unless a loop ended here.
            if not (pending and pending[0][1] is end) and self._begin is not end:
                device.release(end)

    def settled(self, end_ns: int) -> int:
        """When the step that ended at `end_ns` was done on the device, if it is the last of the window."""
        if self._turn != self._last_turn or self._session.has_observations(self.task):
            return end_ns
        if self._device is not None and self._end is not None:
            self._device.wait(self._end)
        elif self._is_drained and "jax" in sys.modules:
            wait_for_devices()
        else:
            return end_ns
        return perf_counter_ns()

    # Between warm-up, window and the end

    def _first_turn(self, end_ns: int) -> None:
        self._first_end_ns = end_ns
        self._session.first_step(end_ns)
        self._look_for_a_device()
        self._turn = self._warm_turn
        if self._flags == 0:
            self._begin_window(0)
            self._window_start_ns = self.ring.words[WINDOW_START] = end_ns - self._first_host_ns()
        else:
            self._warm_turn(end_ns)

    def _first_host_ns(self) -> int:
        if self._sum_steps:
            return self._sum_host_ns
        return self._words[FIRST_SLOT + (self._head - 1) % self._capacity * SLOT_WORDS + 2]

    def _warm_turn(self, end_ns: int) -> None:
        self._look_for_a_device()
        measure = self._measure
        if self.count >= measure.warmup_steps and end_ns - self._first_end_ns >= measure.warmup_s * 1e9:
            if measure.barrier and not self._session.has_gone:
                self._write_gathered(0)
                self._settle()
                wait_for_devices()
                self._session.wait_for_go()
                self._turn, self.until = self._after_go_turn, perf_counter_ns() + AFTER_GO_NS
                self.need = self.count + 1
            else:
                self._begin_window(self.count)

    def _after_go_turn(self, end_ns: int) -> None:
        self._begin_window(self.count)

    def _begin_window(self, warm: int) -> None:
        """Measure from here; the first `warm` steps were warm-up."""
        self._warm = warm
        self._write_gathered(0)
        self._settle()
        self._flags = 0
        # Waiting would leave the device idle, so that the first steps of the window seem to take no time: as far behind as it
        # is at the beginning it is at the end.
        self._is_drained = self._lag is None
        if self._is_drained:
            wait_for_devices()
        self._session.window_begins()
        start_ns = perf_counter_ns()
        self._window_start_ns = self.ring.words[WINDOW_START] = start_ns
        self.need = self._warm + max(1, self._measure.window_steps)
        self.until = start_ns + round(self._measure.window_s * 1e9)
        self._turn = self._last_turn

    def _last_turn(self, end_ns: int) -> None:
        if self.stopping and self._session.goes_on(self):
            self.until = end_ns + LOOK_AGAIN_NS
            return
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
            if not self._consensus.may_stop(self.count):
                return False
            self._consensus.meet()
            return True
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
        if self._lag is None:
            self._lag = bounded_lag()
        device = device_clock() if self._device is None else None
        if device is None:
            return
        self._write_gathered(0)
        self._device, self._direct = device, -1
        if self.parts is not None:
            self.parts.device = device
        self.meta["clock"] = "event"
        self.ring.describe(self.meta)
        self._begin = device.mark()

    def _settle(self) -> None:
        """Wait for the device and fill in every time that is still to come."""
        if self._device is not None and self._pending:
            self._device.wait(self._pending[-1][2])
            self._poll()

    # Around the loop

    def iterate(  # noqa: PLR0915  (the loop is written out, because each call in it costs)
        self, iterable: Iterable[Any], batch_size: BatchSize = None
    ) -> Iterator[Any]:
        """Yield what `iterable` yields, observing each step: from one request for a batch to the next."""
        if self.is_complete and self.stopping:
            # The script swallowed what was to end it, or asks for another epoch of a loop that was ended.
            self._stop_turn(0)
            if self.is_over:
                return
        size, n = size_function(batch_size)
        me = self._loop = object()
        clock, began_ns, wait_ns = perf_counter_ns, None, 0
        head_word, no_device_clock = HEAD, NO_DEVICE_CLOCK
        words, slot, last_slot, head, count, observed_word, warm, flags, until, has_marks = self._copies(me)
        t0_ns = clock()
        self.begin_on_device()
        try:
            for batch in iterable:
                fetched_ns = clock()
                if began_ns is not None:
                    # `_write` and `record` written out, with their constants in variables: a call, and each line of memory
                    # touched, costs what can be seen after a training step has emptied the caches.
                    if self._fast is me and slot < last_slot and type(n) is int:
                        words[slot] = count
                        words[slot + 1] = began_ns
                        words[slot + 2] = t0_ns - began_ns
                        words[slot + 3] = n
                        words[slot + 4] = no_device_clock
                        words[slot + 5] = 1
                        words[slot + 6] = flags
                        words[slot + 7] = wait_ns
                        slot += 8
                        words[head_word] = self._head = head = head + 1
                        self.count = count = count + 1
                        words[observed_word] = count - warm
                    else:
                        self._record_unless_overlapped(me, began_ns, t0_ns, n, wait_ns, 0)
                        words, slot, last_slot, head, count, observed_word, warm, flags, until, has_marks = (
                            self._copies(me)
                        )
                if size is not None:
                    try:
                        n = size(batch)
                    except Exception as error:
                        n = self._size_unknown(error)
                wait_ns = fetched_ns - t0_ns
                began_ns = t0_ns
                if has_marks and self.parts is not None:
                    self.parts.begin()
                yield batch
                if has_marks:
                    self.mark()
                t0_ns = clock()
                if t0_ns >= until and self.count + 1 >= self.need:
                    # A step of the warm-up, or the last of the window: recorded before another batch is fetched.
                    ended_ns, began_ns = began_ns, None
                    self._record_unless_overlapped(me, ended_ns, self.settled(t0_ns), n, wait_ns, 0)
                    if self.is_over:
                        return
                    words, slot, last_slot, head, count, observed_word, warm, flags, until, has_marks = self._copies(me)
                    t0_ns = clock()
                    if has_marks:
                        self.begin_on_device()
        except BaseException:
            # The loader raised: the step before it is complete. (A loop that is left ends at `yield`, in the middle of one.)
            if began_ns is not None and began_ns != t0_ns:
                self._record_unless_overlapped(me, began_ns, t0_ns, n, wait_ns, 0)
            raise
        if began_ns is not None:
            self._record_unless_overlapped(me, began_ns, t0_ns, n, wait_ns, EPOCH_END)
        elif self.count:
            self._mark_epoch_end()
        else:
            self._session.message(f"{self.task}: a loader yielded nothing", once=True)
        self._loop_ended()

    def _copies(self, me: object) -> tuple[Any, int, int, int, int, int, int, int, int, bool]:
        """What the loop `me` needs at each step, for its own variables; true as long as `_fast` is `me`."""
        self._fast = me
        head = self._head
        place = head % self._capacity
        slot = FIRST_SLOT + place * SLOT_WORDS
        return (
            self._words,
            slot,
            # The ring's end, where the next slot is the first again, or what may be written without looking at the reader.
            slot + min(self._capacity - place, self._direct - head) * SLOT_WORDS,
            head,
            self.count,
            SPARE if self._flags else OBSERVED,
            self._warm,
            self._flags,
            self.until,
            self.has_marks,
        )

    @property
    def has_marks(self) -> bool:
        """Whether the ends of steps must be told to anything but the host's clock."""
        return self._device is not None or self._lag is not None or self.parts is not None

    def _record_unless_overlapped(
        self, me: object, t0_ns: int, end_ns: int, n: int | float, wait_ns: int, flags: int
    ) -> None:
        if self._loop is me:
            self.record(t0_ns, end_ns, n, wait_ns, flags)
            return
        # Another loop over this task ran inside this step: neither the step's time nor its items mean anything.
        self._loop = me
        self._session.message(
            f"{self.task}: two loops overlap; give them different tasks, or when= to leave one alone", once=True
        )
        self.begin_on_device()

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

    def _size_unknown(self, error: Exception) -> int:
        """Fail the step, not the script: nobody can tell how many items a batch has."""
        # A function of the voirfile's author may raise anything.
        what = "" if isinstance(error, BatchSizeError) else f"batch_size of {self.task}: {type(error).__name__}: "
        self._session.fail("probe", f"{what}{error}")
        return 0

    def close(self) -> None:
        """The program has ended: complete what is open."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._window_start_ns and not self.is_complete:
            why = "complete" if self._session.has_observations(self.task) else "ended"
            self._end_window(self._last_end_ns(), why)
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
        self._device = self._lag = self.parts = None
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

    def __call__(self, n: int | float = 1, result: Any = None) -> None:
        """End a step of n items, which gave `result`. The first call only begins: how long that step took nobody knows."""
        observer = self._observer
        has_marks = observer.has_marks
        if has_marks:
            observer.mark(result)
        end_ns = perf_counter_ns()
        last_ns, self._last_ns = self._last_ns, end_ns
        if last_ns is None:
            observer._session.first_step(end_ns)
            observer._look_for_a_device()
            observer.begin_on_device()
        elif end_ns >= observer.until and observer.count + 1 >= observer.need:
            observer.record(last_ns, observer.settled(end_ns), n, -1, 0)
            self._last_ns = perf_counter_ns()
            observer.begin_on_device()
        else:
            observer.record(last_ns, end_ns, n, -1, 0)
        if has_marks and observer.parts is not None:
            observer.parts.begin()

    @property
    def is_over(self) -> bool:
        """Whether the window is complete, for a loop of your own that asks for its end with `stop=True`."""
        return self._observer.is_over


def _unwrapped(value: Any) -> Any:
    return value
