"""Writes the steps of a task into its ring: an entry per step, or an entry for several, with their times on the device."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from benchmate.clock import BoundedLag, DeviceClock, DeviceEvent, bounded_lag, device_clock, keep_for_ever
from benchmate.ring import (
    EPOCH_END,
    FLAGS,
    HEAD,
    NO_DEVICE_CLOCK,
    PARTS,
    PENDING,
    TAIL,
    Ring,
)
from benchmate.step_parts import PartSpan, StepParts

AGGREGATE_AFTER = 100_000
"""Number of entries after which several steps share an entry, so that a long run stays small."""
LEAST_LAGGING_NS = 5_000_000
"""Minimum time of an entry of JAX's: shorter steps share an entry, since each entry waits for the device."""
LOOKED_AT = 16
"""Entries of which the time that a step works is known well enough."""
RESERVE = 64
"""Slots kept for entries that must be written: the ends of warm-up and window."""


class PendingEntry(NamedTuple):
    """An entry of the ring whose time on the device is not known yet."""

    number: int
    begin: DeviceEvent
    end: DeviceEvent
    part_spans: list[PartSpan] | None


class ObservationWriter:
    """Writes the observations of a task.

    The measured loop writes into the ring itself as long as `ring.head < direct`, an entry for each step, and calls `gather`
    from there on.
    """

    def __init__(self, ring: Ring) -> None:
        self.device: DeviceClock | None = None
        self.parts: StepParts | None = None
        """The parts of the current step, where they were asked for."""
        self.has_marks = False
        """Whether the borders of steps must be marked with more than the host's clock: on a device, or for their parts."""
        self._lag: BoundedLag | None = None
        self._begin: DeviceEvent | None = None
        self._end: DeviceEvent | None = None
        self._pending: deque[PendingEntry] = deque()
        # Steps on their way into one entry.
        self._steps_per_entry = self._least_steps = 1
        self._trend = 0
        """How many entries in a row were too short. Less than 0 where they were too long."""
        self._sum_steps = self._sum_host_ns = self._sum_wait_ns = self._sum_flags = 0
        self._sum_n: int | float = 0
        self._sum_t0_ns = self._sum_batch_id = 0
        self.ahead = 0
        """The number of steps in excess of slots, so that a single count is enough where each step is an entry."""
        self._use_ring(ring)

    @property
    def count(self) -> int:
        """Number of steps taken."""
        return self.ring.head + self.ahead

    def _use_ring(self, ring: Ring) -> None:
        self.ring = ring
        # Until then no unread slot can be overwritten, wherever the reader is: its position need not be looked at.
        self._room = min(AGGREGATE_AFTER, ring.head + ring.capacity * 3 // 4)
        """The number of slots up to which none that is unread can be overwritten."""
        self.direct = self._room
        """The number of slots up to which each step is an entry of its own. -1 where entries need more than the host's times."""

    def detach(self) -> None:
        """Continue in a ring without a reader, on the host's clock alone."""
        self._forget_device()
        self.has_marks = False
        self.leave_reader()

    def leave_reader(self) -> None:
        """Continue in a ring without a reader."""
        self._lag = None
        self.ahead = self.count
        self._use_ring(Ring(self.ring.meta, capacity=1024))

    def _forget_device(self) -> None:
        """Continue without the device and without parts. Their events stay: destroying them may abort this process.

        So it is in a forked child, which must not touch its parent's device, and with a device that has failed.
        """
        if self.device is not None:
            keep_for_ever((self.device, self.parts, self._begin, self._end, self._pending))
        self.device = self.parts = self._begin = self._end = None
        self._pending = deque()

    # Entries

    def gather(self, count: int, t0_ns: int, end_ns: int, n: int | float, wait_ns: int, flags: int) -> None:
        """Take step number `count` into an entry that holds several, or whose time on the device is still to come."""
        self.ahead += 1
        steps = self._sum_steps
        if steps == 0:
            self._sum_t0_ns, self._sum_batch_id, self._sum_wait_ns = t0_ns, count, 0
        self._sum_steps = steps = steps + 1
        self._sum_host_ns += end_ns - t0_ns
        self._sum_n += n
        self._sum_wait_ns = -1 if wait_ns < 0 or self._sum_wait_ns < 0 else self._sum_wait_ns + wait_ns
        if flags:
            self._sum_flags |= flags
        if self._pending:
            self._fill_finished()
        if steps >= self._steps_per_entry:
            self.flush(RESERVE)

    def flush(self, reserve: int = 0) -> None:
        """Write the gathered steps as an entry if there is room beyond `reserve` slots. Else gather on, so that none is lost."""
        if self._sum_steps == 0:
            return
        if self.ring.head >= self._room and not self._make_room(reserve):
            return
        device_ns, end = NO_DEVICE_CLOCK, None
        if self.device is not None:
            end, self._end = self._end, None
            if end is None:
                if reserve == RESERVE:
                    return  # too many events on their way: this step joins the next entry
                end = self.device.mark()
            if end is not None and self._begin is not None:
                device_ns = PENDING
        part_spans = None if self.parts is None else self._write_parts(self.parts, device_ns)
        if self.device is not None:
            if end is not None and self._begin is not None:
                self._pending.append(PendingEntry(self.ring.head, self._begin, end, part_spans))
            self._begin = end
        self.ring.write(
            self._sum_batch_id,
            self._sum_t0_ns,
            self._sum_host_ns,
            self._sum_n,
            device_ns,
            self._sum_steps,
            self._sum_flags,
            self._sum_wait_ns,
        )
        self.ahead -= 1
        if self._lag is not None:
            self._pace(self._sum_host_ns * self._steps_per_entry // self._sum_steps)
        self._sum_steps = self._sum_host_ns = self._sum_wait_ns = self._sum_flags = 0
        self._sum_n = 0

    def _pace(self, entry_ns: int) -> None:
        """Put more steps, or fewer, into an entry, given how long an entry of the present number lasts."""
        trend = (entry_ns < LEAST_LAGGING_NS) - (entry_ns > 4 * LEAST_LAGGING_NS)
        self._trend = self._trend + trend if self._trend * trend > 0 else trend
        # Three in a row: a device that was idle lets one or two entries pass without a wait, another program stretches one.
        if abs(self._trend) > 2:
            steps = self._steps_per_entry * 2 if trend > 0 else self._steps_per_entry // 2
            self._steps_per_entry, self._trend = max(self._least_steps, steps), 0

    def _make_room(self, reserve: int) -> bool:
        """Check how far the reader is, and put more steps into an entry where it lags. Return False when there is no room."""
        head, capacity = self.ring.head, self.ring.capacity
        used = head - self.ring.words[TAIL]
        # Half full, or long enough as it is: twice as many steps in an entry from here on.
        if used * 2 > capacity or head >= AGGREGATE_AFTER * self._steps_per_entry.bit_length():
            self._steps_per_entry *= 2
            self._least_steps = self._steps_per_entry
        self._room = head + max(1, (capacity - used) // 4)
        one_per_step = self._steps_per_entry == 1
        if one_per_step:
            self._room = min(self._room, AGGREGATE_AFTER)
        needs_more = self.device is not None or self.parts is not None or self._lag is not None
        self.direct = self._room if one_per_step and not needs_more else -1
        if used >= capacity - reserve:
            self._room = head
            self.direct = -1
            return False
        return True

    def mark_epoch_end(self) -> None:
        """Set EPOCH_END on the last step, which was recorded before it was known to be the last of its epoch."""
        if self._sum_steps:
            self._sum_flags |= EPOCH_END
        else:
            self.ring.words[self.ring.slot(self.ring.head - 1) + FLAGS] |= EPOCH_END

    def last_interval(self) -> tuple[int, int]:
        """Return the begin of the last entry, gathered or written, and its duration on the host, in nanoseconds."""
        if self._sum_steps:
            return self._sum_t0_ns, self._sum_host_ns
        last = self.ring.entry(self.ring.head - 1)
        return last.t0_ns, last.host_ns

    def ends_since(self, start_ns: int) -> list[int]:
        """Return this time, and when the entries after it ended that the ring still holds."""
        ring = self.ring
        numbers = range(max(0, ring.head - ring.capacity + 1), ring.head)
        ends = (ring.end_ns(number) for number in numbers if not ring.words[ring.slot(number) + FLAGS] & PARTS)
        return [start_ns, *(end_ns for end_ns in ends if end_ns > start_ns)]

    def least_work_ns(self) -> float:
        """Return the minimum time that any of the last entries had its batch, per step. 0 without an entry with a known wait."""
        head = self.ring.head
        entries = map(self.ring.entry, range(max(0, head - LOOKED_AT), head))
        known = (entry for entry in entries if not entry.flags & PARTS and entry.wait_ns >= 0)
        return min(((entry.host_ns - entry.wait_ns) / entry.steps for entry in known), default=0.0)

    # Parts of a step

    def record_parts(self) -> StepParts:
        """Record the parts of each step from the next step on. The caller reports each border to the returned object."""
        self.flush()
        self.parts = StepParts()
        self.parts.device = self.device
        self.direct = -1
        self.has_marks = True
        return self.parts

    def _write_parts(self, parts: StepParts, device_ns: int) -> list[PartSpan] | None:
        """Write the parts of the entry into the slot before it. Both are published together. Return their spans on the device."""
        ns, spans = parts.take()
        if device_ns != PENDING:
            spans = None
        elif spans is None:
            ns = [-1, -1, -1]  # the times on the host are those of queueing
        slot = self.ring.slot(self.ring.head)
        words = (self._sum_batch_id, *ns, NO_DEVICE_CLOCK if spans is None else PENDING, 0, PARTS, 0)
        for index, word in enumerate(words, start=slot):
            self.ring.words[index] = word
        self.ring.words[HEAD] += 1
        self.ahead -= 1
        return spans

    def _fill_parts(self, device: DeviceClock, number: int, spans: list[PartSpan]) -> None:
        totals = [-1, -1, -1]
        for part, begin, end in spans:
            totals[part] = max(0, totals[part]) + device.elapsed_ns(begin, end)
            device.release(begin)
            device.release(end)
        if self.ring.head - number <= self.ring.capacity:
            for index, total in enumerate(totals, start=self.ring.slot(number) + 1):
                self.ring.words[index] = total
            self.ring.fill_device_time(number, 0)

    # The device

    @property
    def is_lagging(self) -> bool:
        """Whether each step is kept a bounded number ahead of a device without events."""
        return self._lag is not None and self._steps_per_entry == 1

    @property
    def lag_cost_ns(self) -> int:
        """The cost of keeping close to a device without events."""
        return 0 if self._lag is None else self._lag.cost_ns

    def look_for_device(self) -> None:
        """Use the accelerator's clock from here on, if the program has initialised an accelerator."""
        if self._lag is None:
            self._lag = bounded_lag()
            if self._lag is not None:
                self.direct, self.has_marks = -1, True
        device = device_clock() if self.device is None else None
        if device is None:
            return
        self.flush()
        self.device, self.direct, self.has_marks = device, -1, True
        if self.parts is not None:
            self.parts.device = device
        self.ring.meta["clock"] = "event"
        self.ring.describe()
        self._begin = device.mark()

    def mark_begin(self) -> None:
        """Record on the device where the first step of a loop begins."""
        device = self.device
        if device is None:
            return
        if self._end is not None:
            device.release(self._end)
            self._end = None
        if self._sum_steps == 0 or self._begin is None:
            begin, self._begin = self._begin, device.mark()
            # The end of an entry that is still pending goes back to the pool when that entry is complete.
            if begin is not None and not (self._pending and self._pending[-1].end is begin):
                device.release(begin)

    def mark_end(self, result: object = None) -> None:
        """Record on the device where a step ends. `result` is its result, where known."""
        if self.parts is not None:
            self.parts.end()
        if self._sum_steps + 1 < self._steps_per_entry:
            return
        if self._lag is not None:
            self._lag.add(result, 2 if self._steps_per_entry == 1 else 1)
        if self._end is None and self.device is not None:
            self._end = self.device.mark()

    def wait_for_step(self) -> bool:
        """Wait until the device has done the step that was marked last. Return False when there is no such mark."""
        if self.device is None or self._end is None:
            return False
        self.device.wait(self._end)
        return True

    def settle(self) -> None:
        """Write the gathered steps, wait for the device and fill in every pending time."""
        try:
            self.flush()
            if self.device is not None and self._pending:
                self.device.wait(self._pending[-1].end)
                self._fill_finished()
        except RuntimeError:  # the device has failed: the program's own next call says so
            self._forget_device()
            self.flush()

    def _fill_finished(self) -> None:
        """Fill in the times of the entries that the device has finished. Does not wait."""
        device, pending = self.device, self._pending
        assert device is not None
        while pending and device.is_complete(pending[0].end):
            number, begin, end, part_spans = pending.popleft()
            if part_spans is not None:
                self._fill_parts(device, number - 1, part_spans)
            self.ring.fill_device_time(number, device.elapsed_ns(begin, end))
            device.release(begin)
            # The end of this entry is the begin of the next one, unless a loop ended here.
            if not (pending and pending[0].begin is end) and self._begin is not end:
                device.release(end)
