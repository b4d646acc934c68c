"""The parts of a step: forward, backward, optimizer; found by what torch calls at their borders, on host and device."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from benchmate.clock import DeviceClock, now_ns

if TYPE_CHECKING:
    from benchmate.observer import Observer

NAMES = ("forward", "backward", "optimizer")
FORWARD, BACKWARD, OPTIMIZER = range(3)

Span = tuple[int, Any, Any]


class StepParts:
    """How long the parts of the steps took that share one entry of the ring; told of each border in the loop.

    Forward is what runs from the batch's arrival, or the last backward, to the next backward; in a step without backward all of
    it. What follows the last backward and is not the optimizer's (clipping, logging) belongs to no part. Several backwards
    (accumulation, several losses) add up.
    """

    def __init__(self) -> None:
        self._inside: int | None = None
        self._depth = 0
        self._began_ns = 0
        self._mark: Any = None
        self._saw_backward = False
        self.ns = [-1, -1, -1]
        """Nanoseconds on the host of each part, -1 where there was none."""
        self.spans: list[Span] = []
        """(part, event at its begin, event at its end) on the device."""
        self.is_whole = True
        """Whether every part has its events: the device may have had too many on their way."""
        self.device: DeviceClock | None = None

    def begin(self) -> None:
        """The batch is here."""
        self._depth = 0
        self._saw_backward = False
        self._open(FORWARD)

    def enter(self, part: int) -> None:
        """Backward, or the optimizer, begins; one inside the other is its."""
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
        """It has ended."""
        self._depth = max(0, self._depth - 1)
        if self._depth == 0 and self._inside is not None:
            part = self._inside
            self._close()
            if part == BACKWARD:
                self._open(FORWARD)

    def end(self) -> None:
        """The step has ended."""
        if self._inside == FORWARD and not self._saw_backward:
            self._close()
        else:
            self._drop()

    def take(self) -> tuple[list[int], list[Span] | None]:
        """(nanoseconds on the host, spans on the device, None where some are missing) since the last call."""
        ns, spans = self.ns, self.spans if self.is_whole else None
        if spans is None:
            self._release()
        self.ns, self.spans, self.is_whole = [-1, -1, -1], [], True
        return ns, spans

    def _release(self) -> None:
        if self.device is not None:
            for _, begin, end in self.spans:
                self.device.release(begin)
                self.device.release(end)

    def _open(self, part: int) -> None:
        self._drop()
        self._inside = part
        if self.device is not None:
            self._mark = self.device.mark()
            self.is_whole &= self._mark is not None
        self._began_ns = now_ns()

    def _close(self) -> None:
        part, self._inside = self._inside, None
        if part is None:
            return
        self.ns[part] = max(0, self.ns[part]) + now_ns() - self._began_ns
        begin, self._mark = self._mark, None
        if self.device is not None and begin is not None:
            end = self.device.mark()
            if end is None:
                self.is_whole = False
                self.device.release(begin)
            else:
                self.spans.append((part, begin, end))

    def _drop(self) -> None:
        self._inside = None
        if self._mark is not None and self.device is not None:
            self.device.release(self._mark)
        self._mark = None


_observers: list[Observer] = []


def watch(observer: Observer) -> None:
    """Take the parts of an observer's steps from here on; torch's entry points are patched once, when it is imported."""
    from benchmate.patching import Patch
    from benchmate.probes import book

    if observer in _observers:
        return
    observer.take_parts()
    if not _observers:
        book().place(Patch("torch.autograd.backward", _around_backward))
        book().place(Patch("torch.optim.optimizer.register_optimizer_step_post_hook", _around_steps))
    _observers.append(observer)


def _enter(part: int) -> None:
    for observer in _observers:
        if observer.parts is not None:
            observer.parts.enter(part)


def _leave() -> None:
    for observer in _observers:
        if observer.parts is not None:
            observer.parts.leave()


def _around_backward(backward: Callable[..., Any]) -> Callable[..., Any]:
    import functools

    @functools.wraps(backward)
    def replacement(*args: Any, **kwargs: Any) -> Any:
        _enter(BACKWARD)
        try:
            return backward(*args, **kwargs)
        finally:
            _leave()

    return replacement


def _around_steps(register_after: Callable[..., Any]) -> Callable[..., Any]:
    module = sys.modules["torch.optim.optimizer"]
    module.register_optimizer_step_pre_hook(lambda *_: _enter(OPTIMIZER))  # type: ignore[attr-defined]
    register_after(lambda *_: _leave())
    return register_after
