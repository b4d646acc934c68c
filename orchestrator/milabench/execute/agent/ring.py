"""Turn observations that a process leaves in shared memory into `data` records."""

from __future__ import annotations

import contextlib
import json
import math
import os
import struct
import time

from .outcome import StepLedger
from .procfs import list_folder
from .protocol import StepFrames
from .slots import SLOT, SlotDecoder, measured_span

TYPE_CHECKING = False  # see unpack.py
if TYPE_CHECKING:
    from typing import Any

    Drained = tuple[list[str], int, int]
    """Of slots: the records without their line ends, how many slots that took, and of how much the records tell."""

_LOSS = struct.Struct("<qqd40x")


class RingReader:
    """Observations that a process leaves in a file, without a system call. They outlive it.

    Read with pread, not through a mapping: a program that truncates its file must not kill us by SIGBUS.
    Layout: protocol.md, section 10. Raises OSError or ValueError when the file is not a ring.
    """

    MAGICS = (b"MBRING01", b"MBRING02")  # entries of the first never continue one another
    HEADER = 4096
    STOP_OFFSET = 96

    def __init__(self, path: str, world_size: int = 1) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            header = os.pread(self._fd, self.HEADER, 0)
            if header[:8] not in self.MAGICS:
                raise ValueError("it is not a ring")  # noqa: TRY301 - the descriptor is closed below
            self.capacity, _, self._tail, _, _, self._offset_ns, *_, length = struct.unpack_from("<11q", header, 8)
            if self.capacity < 1 or os.fstat(self._fd).st_size < self.HEADER + SLOT * self.capacity:
                raise ValueError("it is shorter than it says")  # noqa: TRY301
            meta = json.loads(header[512 : 512 + length].decode())
        except BaseException:
            os.close(self._fd)
            raise
        self.is_done = False
        self.moved = time.monotonic()
        self._wanted = 0
        self.head = self._tail
        self.observations = 0
        self.warmups = 0
        self.lost = 0
        self._skipped = 0
        self._steps = 0  # after warm-up
        self._decoder = SlotDecoder()
        rank = meta.get("rank", 0)
        self._about = {"task": meta.get("task"), "units": meta.get("units"), "rank": rank}
        self._columns_of_all = {
            **({} if world_size == 1 else {"rank": rank}),
            "task": meta.get("task"),
            "units": meta.get("units"),
            "unix_minus_mono_ns": self._offset_ns,
        }
        self.last: dict[str, Any] = {}  # what a display needs of the observations that were drained last
        self._is_loss = meta.get("kind") == "loss"
        self.rank = int(rank or 0)
        self._task = json.dumps(meta.get("task"))
        self._rank = ',"rank":%d' % rank if world_size > 1 else ""

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._fd)

    @property
    def is_going_on(self) -> bool:
        """Whether it has had a step, and more are to come."""
        is_complete = self.is_done or 0 < self._wanted <= self._steps
        return not self._is_loss and self.head > 0 and not is_complete

    @property
    def steps(self) -> int:
        """Number of reported steps, including the warm-up."""
        return self.warmups + self._steps

    def request_stop(self) -> None:
        """Write that the whole group has its observations, where the loop sees it without a system call."""
        with contextlib.suppress(OSError):  # it goes on until its own end
            os.pwrite(self._fd, struct.pack("<q", 1), self.STOP_OFFSET)

    def drain(self, now: float, final: bool = False) -> tuple[bytes, int]:
        """Return the records that became complete since the last call, and how many.

        `final`: the writer is dead, so a device time that is still missing will not come. The host clock counts then.
        """
        header = os.pread(self._fd, 64, 0)
        if len(header) < 64:
            return b"", 0
        head, _, lost, closed, _, wanted = struct.unpack_from("<6q", header, 16)
        self._wanted = wanted
        if head != self.head:
            self.moved = time.monotonic()
        self.head = head
        if head - self._tail > self.capacity:
            self._skipped += head - self._tail - self.capacity
            self._tail = head - self.capacity
        slots = self._slots(self._tail, head)
        # A writer that laps us while we copy makes the oldest slots unreadable.
        lapped = struct.unpack("<q", os.pread(self._fd, 8, 16))[0] - self.capacity - self._tail
        if lapped > 0:
            lapped = min(lapped, len(slots) // SLOT)
            self._skipped += lapped
            self._tail += lapped
            slots = slots[lapped * SLOT :]
        self.lost = lost + self._skipped
        self.last = {}
        records, taken, made = self._losses(slots, now) if self._is_loss else self._rates(slots, now, final)
        self._tail += taken
        os.pwrite(self._fd, struct.pack("<q", self._tail), 24)
        self.is_done = bool(closed) and self._tail >= head
        if self.last:
            self.last["progress"] = [self._steps, wanted]
        return "".join(record + "\n" for record in records).encode(), made

    def _slots(self, start: int, stop: int) -> bytes:
        first = start % self.capacity
        count = stop - start
        until_end = min(count, self.capacity - first)
        data = os.pread(self._fd, until_end * SLOT, self.HEADER + first * SLOT)
        if count > until_end:
            data += os.pread(self._fd, (count - until_end) * SLOT, self.HEADER)
        return data[: len(data) // SLOT * SLOT]

    def _rates(self, slots: bytes, now: float, final: bool) -> Drained:
        """Return a record for each run of observations of the same kind, column by column: nothing is computed here."""
        runs, taken = self._decoder.decode(slots, final)
        records, count = [], 0
        # Of each run of observations of the warm-up, or after it: begin of the first, end of the last, items.
        sums: list[list[Any]] = []
        for columns in runs:
            made = columns["observations"]
            count += made
            if columns.get("warmup"):
                self.warmups += made
            else:
                steps = columns.get("steps", 1)
                self._steps += sum(steps) if isinstance(steps, list) else steps * made
            span = measured_span(columns)
            if span is not None and sums and sums[-1][3] == span[3]:
                sums[-1][1:3] = [span[1], sums[-1][2] + span[2]]
            elif span is not None:
                sums.append(span)
            data = {"observations": made, **self._columns_of_all, **columns}
            records.append(
                json.dumps({"event": "data", "data": data, "pipe": "data", "t": round(now, 6)}, separators=(",", ":"))
            )
        self.observations += count
        if sums:
            self.last = dict(self._about, spans=sums)
        return records, taken, count

    def _losses(self, slots: bytes, now: float) -> Drained:
        out = []
        for batch, t_ns, loss in _LOSS.iter_unpack(slots):
            text, more = (repr(loss), "") if math.isfinite(loss) else ("null", ',"nonfinite":["loss"]')
            out.append(
                '{"event":"data","data":{"task":%s,"loss":%s,"time":%.6f,"batch_id":%d%s%s},"pipe":"data","t":%.6f}'
                % (self._task, text, (t_ns + self._offset_ns) * 1e-9, batch, self._rank, more, now)
            )
        return out, len(out), len(out)


class StepRings:
    """The rings of a step's processes, in its folder."""

    def __init__(self, folder: str, frames: StepFrames) -> None:
        self._folder = folder
        self._frames = frames
        self._rings: list[RingReader] = []
        self._known: set[str] = set()
        self._is_asked_to_stop = False

    def open(self, name: str, world_size: int = 1) -> None:
        """Follow a ring, by name: a container may know the folder under another path."""
        if name in self._known:
            return
        self._known.add(name)
        try:
            ring = RingReader(os.path.join(self._folder, name), world_size)
        except (
            OSError,
            ValueError,
            TypeError,
            AttributeError,
            OverflowError,
            RecursionError,
            struct.error,
        ) as error:
            self._frames.message("the ring %s cannot be read: %s" % (name, error))
            return
        self._rings.append(ring)
        if self._is_asked_to_stop:
            ring.request_stop()

    def drain(self, final: bool = False) -> bool:
        """Turn new observations into records. Return whether any came. `final`: see RingReader.drain."""
        has_moved = False
        for ring in self._rings:
            if ring.is_done:
                continue
            before = ring.head
            payload, count = ring.drain(time.time(), final)
            has_moved = has_moved or ring.head != before
            if count:
                self._frames.emit("obs", payload, count=count, last=ring.last)
        return has_moved

    def progress(self) -> list[tuple[int, int, float]]:
        """Return rank, steps, and seconds since the last step in any of its loops, of each rank with steps left."""
        now = time.monotonic()
        ranks: dict[int, list[RingReader]] = {}
        for ring in self._rings:
            if ring.is_going_on:
                ranks.setdefault(ring.rank, []).append(ring)
        return [
            (rank, max(ring.steps for ring in rings), round(min(now - ring.moved for ring in rings), 3))
            for rank, rings in sorted(ranks.items())
        ]

    @property
    def is_done(self) -> bool:
        """Whether no more observations can come from the rings that are known."""
        return all(ring.is_done for ring in self._rings)

    def request_stop(self) -> None:
        """Let all loops see that their load is needed no longer."""
        self._is_asked_to_stop = True
        for ring in self._rings:
            if not ring.is_done:
                ring.request_stop()

    def close(self, ledger: StepLedger) -> None:
        """Take the rest after the end of the step, and sum up in its ledger."""
        # A process may have died between making a ring and announcing it.
        for name in list_folder(self._folder):
            if name.endswith(".ring"):
                self.open(name)
        self.drain(final=True)
        for ring in self._rings:
            ledger.measurements += ring.observations
            ledger.lost += ring.lost
            ring.close()
