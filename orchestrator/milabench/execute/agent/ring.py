"""Turn observations that a process leaves in shared memory into `data` records."""

from __future__ import annotations

import contextlib
import glob
import json
import math
import os
import struct
import time
from typing import Any, Dict, List, Set, Tuple

from .outcome import StepLedger
from .protocol import StepFrames


class RingReader:
    """Observations that a process leaves in a file, without a system call; they outlive it.

    Read with pread, not through a mapping: a program that truncates its file must not kill us by SIGBUS.
    Layout: protocol.md, section 2. Raises OSError or ValueError when the file is not a ring.
    """

    MAGIC = b"MBRING01"
    HEADER = 4096
    SLOT = 64
    PENDING = -2
    WARMUP, EPOCH_END, MILLI, PARTS = 1, 2, 4, 8
    STOP_OFFSET = 96

    def __init__(self, path: str, world_size: int = 1) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            header = os.pread(self._fd, self.HEADER, 0)
            if header[:8] != self.MAGIC:
                raise ValueError("it is not a ring")  # noqa: TRY301 - the descriptor is closed below
            self.capacity, _, self._tail, _, _, self._offset_ns, *_, length = struct.unpack_from("<11q", header, 8)
            if self.capacity < 1 or os.fstat(self._fd).st_size < self.HEADER + self.SLOT * self.capacity:
                raise ValueError("it is shorter than it says")  # noqa: TRY301
            meta = json.loads(header[512 : 512 + length].decode())
        except BaseException:
            os.close(self._fd)
            raise
        self.is_done = False
        self.head = self._tail
        self.observations = 0
        self.warmups = 0
        self.lost = 0
        self._skipped = 0
        self._parts: Tuple[int, str] = (-1, "")  # of the entry that follows: its batch, and what its step consists of
        self._about = {"task": meta.get("task"), "units": meta.get("units"), "rank": meta.get("rank", 0)}
        self.last: Dict[str, Any] = {}  # what a display needs of the observations that were drained last
        self._is_loss = meta.get("kind") == "loss"
        self._task = json.dumps(meta.get("task"))
        self._units = json.dumps(meta.get("units"))
        self._rank = ',"rank":%d' % meta.get("rank", 0) if world_size > 1 else ""

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._fd)

    def request_stop(self) -> None:
        """Write that the whole group has its observations, where the loop sees it without a system call."""
        with contextlib.suppress(OSError):  # it goes on until its own end
            os.pwrite(self._fd, struct.pack("<q", 1), self.STOP_OFFSET)

    def drain(self, now: float, final: bool = False) -> Tuple[bytes, int]:
        """Return the records that became complete since the last call, and how many.

        `final`: the writer is dead, so a device time that is still missing will not come; the host clock counts then.
        """
        header = os.pread(self._fd, 96, 0)
        if len(header) < 96:
            return b"", 0
        head, _, lost, closed, _, wanted, _, _, observed = struct.unpack_from("<9q", header, 16)
        self.head = head
        if head - self._tail > self.capacity:
            self._skipped += head - self._tail - self.capacity
            self._tail = head - self.capacity
        slots = self._slots(self._tail, head)
        # A writer that laps us while we copy makes the oldest slots unreadable.
        lapped = struct.unpack("<q", os.pread(self._fd, 8, 16))[0] - self.capacity - self._tail
        if lapped > 0:
            self._skipped += min(lapped, len(slots))
            self._tail += min(lapped, len(slots))
            slots = slots[lapped:]
        self.lost = lost + self._skipped
        self.last = {}
        records, taken = self._losses(slots, now) if self._is_loss else self._rates(slots, now, final)
        self._tail += taken
        os.pwrite(self._fd, struct.pack("<q", self._tail), 24)
        self.is_done = bool(closed) and self._tail >= head
        if self.last:
            self.last["progress"] = [observed, wanted]
        return "".join(records).encode(), len(records)

    def _slots(self, start: int, stop: int) -> List[Tuple[int, ...]]:
        first = start % self.capacity
        count = stop - start
        until_end = min(count, self.capacity - first)
        data = os.pread(self._fd, until_end * self.SLOT, self.HEADER + first * self.SLOT)
        if count > until_end:
            data += os.pread(self._fd, (count - until_end) * self.SLOT, self.HEADER)
        return list(struct.iter_unpack("<8q", data[: len(data) // self.SLOT * self.SLOT]))

    def _rates(self, slots: List[Tuple[int, ...]], now: float, final: bool) -> Tuple[List[str], int]:
        # Filled by %, at half the price of json.dumps: this runs beside a measurement, a thousand times a second.
        common = (
            '{"event":"data","data":{"task":' + self._task.replace("%", "%%")
            + ',"rate":%.9g,"units":' + self._units.replace("%", "%%")
            + ',"time":%.6f,"elapsed":%.9f,"n":%s,"batch_id":%d,"t0_ns":%d,"host_ns":%d,"clock":"%s"%s}'
            + ',"pipe":"data","t":%.6f}\n' % now
        )  # fmt: skip
        out = []
        offset, rank, taken = self._offset_ns, self._rank, 0
        # Of each run of observations of the warm-up, or after it: begin of the first, end of the last, items.
        spans: List[List[Any]] = []
        for batch, start, host, value, device, steps, flags, wait in slots:
            if device == self.PENDING and not final:
                break
            taken += 1
            if flags & self.PARTS:
                known = zip(("forward", "backward", "optimizer"), (start, host, value))
                self._parts = (batch, "".join(',"%s":%.9f' % (name, part * 1e-9) for name, part in known if part >= 0))
                continue
            clock, nanoseconds = ("event", device) if device >= 0 else ("host", host)
            more = rank
            parts = self._parts[1] if self._parts[0] == batch else ""
            if wait >= 0:
                more += ',"parts":{"wait":%.9f%s}' % (wait * 1e-9, parts)
            elif parts:
                more += ',"parts":{%s}' % parts[1:]
            if steps > 1:
                more += ',"steps":%d' % steps
            if flags:
                if flags & self.WARMUP:
                    more += ',"warmup":true'
                    self.warmups += 1
                if flags & self.EPOCH_END:
                    more += ',"epoch_end":true'
            n = value / 1000 if flags & self.MILLI else value
            elapsed = nanoseconds * 1e-9
            end = (start + host + offset) * 1e-9
            if elapsed > 0:
                is_warmup = flags & self.WARMUP
                if not spans or spans[-1][3] != is_warmup:
                    spans.append([start, 0, 0.0, is_warmup])
                spans[-1][1] = start + host
                spans[-1][2] += n
                out.append(common % (n / elapsed, end, elapsed, n, batch, start, host, clock, more))
            else:
                more += ',"nonfinite":["rate"]'
                line = common.replace("%.9g", "%s", 1)
                out.append(line % ("null", end, elapsed, n, batch, start, host, clock, more))
        self.observations += len(out)
        if spans:
            self.last = dict(self._about, spans=spans)
        return out, taken

    def _losses(self, slots: List[Tuple[int, ...]], now: float) -> Tuple[List[str], int]:
        out = []
        for batch, t_ns, bits, *_ in slots:
            loss = struct.unpack("<d", struct.pack("<q", bits))[0]
            text, more = (repr(loss), "") if math.isfinite(loss) else ("null", ',"nonfinite":["loss"]')
            out.append(
                '{"event":"data","data":{"task":%s,"loss":%s,"time":%.6f,"batch_id":%d%s%s},"pipe":"data","t":%.6f}\n'
                % (self._task, text, (t_ns + self._offset_ns) * 1e-9, batch, self._rank, more, now)
            )
        return out, len(out)


class StepRings:
    """The rings of a step's processes, in its folder."""

    def __init__(self, folder: str, frames: StepFrames) -> None:
        self._folder = folder
        self._frames = frames
        self._rings: List[RingReader] = []
        self._known: Set[str] = set()
        self._is_asked_to_stop = False

    def open(self, name: str, world_size: int = 1) -> None:
        """Follow a ring; by name, because a container may know the folder under another path."""
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
        """Turn new observations into records; return whether any came. `final`: see RingReader.drain."""
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
        """Take what is left, after the end of the step, and sum up in its ledger."""
        # A process may have died between making a ring and announcing it.
        for path in glob.glob(os.path.join(glob.escape(self._folder), "*.ring")):
            self.open(os.path.basename(path))
        self.drain(final=True)
        for ring in self._rings:
            ledger.warmups += ring.warmups
            ledger.measurements += ring.observations
            ledger.records += ring.observations
            ledger.lost += ring.lost
            ring.close()
