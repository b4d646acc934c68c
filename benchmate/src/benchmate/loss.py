"""The loss: observed where it is a number, kept on the device and read after the window where it is not."""

from __future__ import annotations

import math
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from benchmate.records import as_number
from benchmate.ring import Ring

if TYPE_CHECKING:
    from benchmate.session import Session

KEPT = 512
SLOTS = 8192
READ_AT_ONCE = 64
READ_EVERY_NS = 50_000_000


class Losses:
    """The losses of one task.

    A float goes straight into the ring; so does a tensor in host memory, though after the first 64 only about every 50 ms,
    because reading one costs as much as a small operator. A tensor on a device is kept, detached, at most 512 of them: when
    there are more, every other one is let go and only every second of those to come is kept. Whether one is passed over is
    decided before it is touched.
    """

    def __init__(self, session: Session, task: str) -> None:
        self._session = session
        self._meta: dict[str, object] = {
            "task": task,
            "units": "",
            "rank": session.rank,
            "clock": "host",
            "kind": "loss",
        }
        self.ring: Ring = session.open_ring(self._meta, capacity=SLOTS)
        self._task = task
        self._count = 0
        self._next = 0
        """The number of the next loss to look at."""
        self._stride = 1
        self._kept: list[tuple[int, int, Any]] = []
        self._kept_stride = 1
        self._has_failed = False
        self._is_on_host: bool | None = None
        self._read_ns = self._read_id = 0

    def observe(self, value: Any) -> None:
        """Take the loss of one step. Never waits for a device, never keeps a graph alive, never raises."""
        self._count = count = self._count + 1
        if count > self._next:
            self._take(count - 1, value)

    def _take(self, batch_id: int, value: Any) -> None:
        t_ns = perf_counter_ns()
        if isinstance(value, (int, float)):
            self._write(batch_id, t_ns, float(value))
        elif self._is_on_host or (self._is_on_host is None and self._look(value)):
            number = as_number(value)
            if number is not None:
                self._write(batch_id, t_ns, float(number))
            self._next = batch_id + (1 if batch_id < READ_AT_ONCE else self._until_next(batch_id, t_ns))
            self._read_id, self._read_ns = batch_id, t_ns
        else:
            detach = getattr(value, "detach", None)
            self._kept.append((batch_id, t_ns, value if detach is None else detach()))
            if len(self._kept) > KEPT:
                del self._kept[1::2]
                self._kept_stride *= 2
            self._next = batch_id + self._kept_stride

    def _until_next(self, batch_id: int, t_ns: int) -> int:
        """How many losses make READ_EVERY_NS at the pace since the last one read, so that those in between read no clock."""
        since = batch_id - self._read_id
        pace_ns = max(1, (t_ns - self._read_ns) // since)
        return max(1, min(READ_EVERY_NS // pace_ns, 2 * since))

    def _look(self, value: Any) -> bool:
        """Where the losses of this task live; the first one tells for all."""
        self._is_on_host = _is_on_host(value)
        return self._is_on_host

    def close(self) -> None:
        """Read what is still on the device, and send the rest."""
        kept, self._kept = self._kept, []
        for batch_id, t_ns, value in kept:
            number = as_number(value)
            if number is not None:
                self._write(batch_id, t_ns, float(number))
        self._session.drain(self.ring, self._meta)
        self.ring.close()

    def _write(self, batch_id: int, t_ns: int, loss: float) -> None:
        if not math.isfinite(loss):
            if not self._has_failed:
                self._has_failed = True
                self._session.fail("invalid", f"loss of {self._task}: {loss} at step {batch_id}")
        elif batch_id % self._stride:
            return
        if self.ring.free * 4 < self.ring.capacity:
            # Nobody drained in time: thin out instead of losing a stretch.
            self._stride *= 2
        self.ring.write_loss(batch_id, t_ns, loss)


def _is_on_host(value: Any) -> bool:
    device = getattr(value, "device", None)
    kind = getattr(device, "type", None)
    if kind is not None:
        return kind in ("cpu", "meta")
    # numpy has no device, or the text "cpu"; an array of JAX may still be computing, wherever it lives.
    return not hasattr(value, "block_until_ready")
