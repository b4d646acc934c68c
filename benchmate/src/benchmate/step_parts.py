"""The parts of a step (forward, backward, optimizer), timed on host and device where torch passes their borders."""

from __future__ import annotations

import functools
from collections.abc import Callable
from time import perf_counter_ns
from typing import TypeVar

from benchmate.clock import DeviceClock, DeviceEvent
from benchmate.patching import Patch, apply_when_imported, optimizer_step_hook

FORWARD, BACKWARD, OPTIMIZER = range(3)

PartSpan = tuple[int, DeviceEvent, DeviceEvent]
"""(part, event at its begin, event at its end)."""

R = TypeVar("R")


class StepParts:
    """Times the parts of the steps that share an entry of the ring.

    Forward runs from the batch's arrival, or the last backward, to the next backward. In a step without backward it is
    everything. Work after the last backward outside the optimizer (clipping, logging) belongs to no part. Several backwards
    (accumulation, several losses) add up.
    """

    def __init__(self) -> None:
        self._inside: int | None = None
        self._depth = 0
        self._began_ns = 0
        self._mark: DeviceEvent | None = None
        self._saw_backward = False
        self.ns = [-1, -1, -1]
        """Nanoseconds of each part on the host, -1 where there was none."""
        self.spans: list[PartSpan] = []
        self.is_complete = True
        """Whether every part has its events: the device's pool of them may have been empty."""
        self.device: DeviceClock | None = None

    def begin(self) -> None:
        """Begin a step: its batch has arrived."""
        self._depth = 0
        self._saw_backward = False
        self._open(FORWARD)

    def enter(self, part: int) -> None:
        """Begin backward or the optimizer. Of nested ones the outer counts."""
        # Activation checkpointing calls backward inside backward, LBFGS backward inside step.
        self._depth += 1
        if self._depth > 1:
            return
        if part == BACKWARD:
            self._saw_backward = True
            self._close()
        else:
            self._drop()
        self._open(part)

    def leave(self) -> None:
        """End backward or the optimizer."""
        self._depth = max(0, self._depth - 1)
        if self._depth == 0 and self._inside is not None:
            part = self._inside
            self._close()
            if part == BACKWARD:
                self._open(FORWARD)

    def end(self) -> None:
        """End the step."""
        if self._inside == FORWARD and not self._saw_backward:
            self._close()
        else:
            self._drop()

    def take(self) -> tuple[list[int], list[PartSpan] | None]:
        """Return, since the last call, the nanoseconds on the host and the spans on the device, None where some are missing."""
        ns, spans = self.ns, self.spans if self.is_complete else None
        if spans is None and self.device is not None:
            for _, begin, end in self.spans:
                self.device.release(begin)
                self.device.release(end)
        self.ns, self.spans, self.is_complete = [-1, -1, -1], [], True
        return ns, spans

    def _open(self, part: int) -> None:
        self._drop()
        self._inside = part
        if self.device is not None:
            self._mark = self.device.mark()
            self.is_complete &= self._mark is not None
        self._began_ns = perf_counter_ns()

    def _close(self) -> None:
        part, self._inside = self._inside, None
        if part is None:
            return
        self.ns[part] = max(0, self.ns[part]) + perf_counter_ns() - self._began_ns
        begin, self._mark = self._mark, None
        if self.device is not None and begin is not None:
            end = self.device.mark()
            if end is None:
                self.is_complete = False
                self.device.release(begin)
            else:
                self.spans.append((part, begin, end))

    def _drop(self) -> None:
        self._inside = None
        if self._mark is not None and self.device is not None:
            self.device.release(self._mark)
        self._mark = None


_watched: list[StepParts] = []
_is_patched = False


def watch(parts: StepParts) -> None:
    """Report each border to `parts` from here on. Torch's entry points are patched once, when it is imported."""
    global _is_patched  # noqa: PLW0603  (torch's functions exist once in a process)
    _watched.append(parts)
    if not _is_patched:
        _is_patched = True
        apply_when_imported(Patch("torch.autograd.backward", _around_backward))
        apply_when_imported(optimizer_step_hook(lambda *_: _enter(OPTIMIZER), "pre"))
        apply_when_imported(optimizer_step_hook(lambda *_: _leave()))


def unwatch_all() -> None:
    """Stop reporting borders: a forked child must not touch its parent's device."""
    _watched.clear()


def _enter(part: int) -> None:
    for parts in _watched:
        parts.enter(part)


def _leave() -> None:
    for parts in _watched:
        parts.leave()


def _around_backward(backward: Callable[..., R]) -> Callable[..., R]:
    @functools.wraps(backward)
    def replacement(*args: object, **kwargs: object) -> R:
        _enter(BACKWARD)
        try:
            return backward(*args, **kwargs)
        finally:
            _leave()

    return replacement
