"""Recording losses: read at once in host memory, kept on a device and read after the window."""

from __future__ import annotations

import contextlib
import math
from time import perf_counter_ns
from typing import TYPE_CHECKING

from benchmate.records import as_number
from benchmate.ring import Ring

if TYPE_CHECKING:
    from benchmate.recording import Recording

MAX_KEPT = 512
"""Losses on a device that are kept to be read later."""
SLOTS = 8192
READ_AT_ONCE = 64
"""Losses on the host that are read before they are thinned out in time."""
READ_EVERY_NS = 50_000_000


class LossRecorder:
    """Records the losses of a task: `count` have been observed. Losses up to number `until` need not be read.

    Losses in host memory are written into the ring, the first 64 and then one about every 50 ms: reading a tensor costs as much
    as a small operator. Floats are written as seldom, but every float is checked, so that none that is not finite is missed.
    At most 512 tensors on a device are kept, detached: when there are more, every other tensor is dropped, and from then on only
    every second tensor is kept. Whether a tensor is passed over is decided before it is touched.
    """

    def __init__(self, session: Recording, task: str) -> None:
        self._session = session
        self.ring: Ring = session.open_ring(task, "", "loss", SLOTS)
        self._task = task
        self._answers = session.answers if task == "train" else None
        if self._answers is not None:
            self._answers.when_again.append(self._look_at_all)
        self.count = self.until = 0
        self._due = 0
        """The number of the next loss on the host to write."""
        self._stride = 1
        self._kept: list[tuple[int, int, object]] = []
        """(batch_id, monotonic ns, loss) of those that are still on their device."""
        self._kept_stride = 1
        self._address = 0
        """Where on its device the loss before is."""
        self._is_reused = False
        """Whether each loss is written at the same address as the previous loss."""
        self._has_failed = False
        self._is_on_host: bool | None = None
        """Whether the losses are in host memory. None before the first that is no float."""
        self._read_ns = self._read_id = 0

    def _look_at_all(self) -> None:
        self.until = 0

    def take(self, batch_id: int, value: object) -> None:
        """Take the loss of a step. Never wait for a device, never keep a graph alive, never raise."""
        if self._answers is not None and self._answers.takes(value):
            return
        if isinstance(value, (int, float)):
            if batch_id >= self._due or not math.isfinite(value):
                self._read(batch_id, value)
            return
        if self._is_on_host is None:
            # The first one decides for all.
            self._is_on_host = _is_on_host(value)
        if self._is_on_host:
            self._read(batch_id, as_number(value))
            self.until = self._due
        else:
            self._keep(batch_id, value)
            if len(self._kept) > MAX_KEPT:
                # What is left stays evenly spread over the run.
                del self._kept[1::2]
                self._kept_stride *= 2
            self.until = batch_id + self._kept_stride

    def _keep(self, batch_id: int, value: object) -> None:
        """Keep a loss on its device. A captured graph writes each into the same memory: from the second on, copies are kept.

        What has several elements is no number, and may be large.
        """
        shape = getattr(value, "shape", None)
        if isinstance(shape, tuple) and math.prod(shape) != 1:
            return
        t_ns, detach = perf_counter_ns(), getattr(value, "detach", None)
        if detach is not None:
            value = tensor = detach()
            address = 0
            with contextlib.suppress(RuntimeError):  # a subclass without memory of its own
                address = tensor.data_ptr()
            if address and address == self._address and not self._is_reused:
                self._is_reused = True
                self._kept.pop()  # just overwritten
            self._address = address
            if self._is_reused:
                value = tensor.clone()
        self._kept.append((batch_id, t_ns, value))

    def _read(self, batch_id: int, loss: float | None) -> None:
        """Write a loss that is on the host, and choose the next: READ_EVERY_NS from here, at the pace since the last loss."""
        t_ns = perf_counter_ns()
        if loss is not None:
            self._write(batch_id, t_ns, loss)
        self._due = batch_id + 1
        if batch_id >= READ_AT_ONCE:
            since = batch_id - self._read_id
            pace_ns = max(1, (t_ns - self._read_ns) // since)
            self._due = batch_id + max(1, min(READ_EVERY_NS // pace_ns, 2 * since))
        self._read_id, self._read_ns = batch_id, t_ns

    def close(self) -> None:
        """Read the losses that are still on the device, and send the rest."""
        for batch_id, t_ns, value in self._kept:
            number = as_number(value)
            if number is not None:
                self._write(batch_id, t_ns, number)
        self._kept = []
        self._session.drain(self.ring)
        self.ring.close()

    def _write(self, batch_id: int, t_ns: int, loss: float) -> None:
        loss = float(loss)
        if not math.isfinite(loss):
            if not self._has_failed:
                self._has_failed = True
                self._session.fail("invalid", f"loss of {self._task}: {loss} at step {batch_id}")
        elif batch_id % self._stride:
            return
        if self.ring.free * 4 < self.ring.capacity:
            # The reader is late: thin out instead of losing a stretch.
            self._stride *= 2
        self.ring.write_loss(batch_id, t_ns, loss)


def _is_on_host(value: object) -> bool:
    device = getattr(value, "device", None)
    kind = getattr(device, "type", None)
    if kind is not None:
        # A meta tensor has no value: reading it fails at once and waits for nothing.
        return kind in ("cpu", "meta")
    # numpy has no device, or the text "cpu"; an array of JAX may still be computing, wherever it lives.
    return not hasattr(value, "block_until_ready")
