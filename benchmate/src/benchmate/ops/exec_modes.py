"""The original's three ways to time: discrete, continuous, continuous_events; every call counted, as many as asked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from benchmate.ops.device import TorchDevice
from benchmate.ops.interface import Passes

NAMES = ("discrete", "continuous", "continuous_events")

_clock = time.perf_counter_ns


@dataclass(slots=True, kw_only=True)
class PassTimes:
    """Times in ms and peaks of the allocator in MiB, forward and backward."""

    forward: list[float] = field(default_factory=list)
    forward_memory: list[float] = field(default_factory=list)
    backward: list[float] = field(default_factory=list)
    backward_memory: list[float] = field(default_factory=list)
    no_backward: str | None = None


Call = Callable[[Passes, int, bool, TorchDevice, bool], PassTimes]


def discrete(passes: Passes, count: int, has_backward: bool, place: TorchDevice, is_evicted: bool) -> PassTimes:
    """Each call by itself, between two waits for the device; `is_evicted` empties the cache before each, untimed."""
    timed = PassTimes()
    for _ in range(count):
        output = _one(passes.forward, place, is_evicted, timed.forward, timed.forward_memory)
        if not has_backward:
            continue
        timed.no_backward = passes.make_gradient(output)
        if timed.no_backward is not None:
            has_backward = False
            continue
        _one(passes.backward, place, is_evicted, timed.backward, timed.backward_memory)
    return timed


def continuous(passes: Passes, count: int, has_backward: bool, place: TorchDevice, is_evicted: bool) -> PassTimes:
    """All calls between two waits for the device: one mean each. On a CPU every call by itself.

    The mean of the backward passes is that of forward and backward together less that of forward, as the original has it;
    where noise makes it negative it is left out.
    """
    if place.kind == "cpu":
        return _on_host(passes, count, has_backward, place)
    timed = PassTimes()
    output: Any = None
    with _span(place, timed.forward, timed.forward_memory, count):
        for _ in range(count):
            output = passes.forward()
    if has_backward and count:
        timed.no_backward = passes.make_gradient(output)
    if has_backward and timed.no_backward is None:
        both: list[float] = []
        with _span(place, both, timed.backward_memory, count):
            for _ in range(count):
                passes.make_gradient(passes.forward())
                passes.backward()
        rest = both[0] - timed.forward[0]
        if rest > 0:
            timed.backward.append(rest)
        else:
            timed.no_backward = "forward and backward together took no longer than forward alone: too noisy to subtract"
    return timed


def continuous_events(
    passes: Passes, count: int, has_backward: bool, place: TorchDevice, is_evicted: bool
) -> PassTimes:
    """All calls without waiting, an event before and after each. On a CPU every call by itself."""
    if not place.has_events:
        return _on_host(passes, count, has_backward, place)
    timed = PassTimes()
    output: Any = None

    def forward(_: int) -> Any:
        nonlocal output
        output = passes.forward()

    _between_events(forward, lambda: None, count, place, timed.forward, timed.forward_memory)
    if has_backward and count:
        timed.no_backward = passes.make_gradient(output)
        if timed.no_backward is None:
            _between_events(
                lambda _: passes.backward(),
                lambda: passes.make_gradient(passes.forward()),
                count,
                place,
                timed.backward,
                timed.backward_memory,
            )
    return timed


MODES: dict[str, Call] = {"discrete": discrete, "continuous": continuous, "continuous_events": continuous_events}


def _one(call: Callable[[], Any], place: TorchDevice, is_evicted: bool, times: list[float], memory: list[float]) -> Any:
    if is_evicted:
        place.evict()
    if place.kind == "cpu":
        begin = _clock()
        output = call()
        end = _clock()
        memory.append(0)
    else:
        place.reset_peak()
        place.synchronize()
        begin = _clock()
        output = call()
        place.synchronize()
        end = _clock()
        memory.append((place.peak_bytes() or 0) / 2**20)
    times.append((end - begin) / 1e6)
    return output


def _on_host(passes: Passes, count: int, has_backward: bool, place: TorchDevice) -> PassTimes:
    timed = discrete(passes, count, has_backward, place, False)
    timed.forward_memory, timed.backward_memory = [], []
    return timed


@contextmanager
def _span(place: TorchDevice, times: list[float], memory: list[float], count: int) -> Iterator[None]:
    if not count:
        yield
        return
    place.reset_peak()
    place.synchronize()
    begin = _clock()
    yield
    place.synchronize()
    times.append((_clock() - begin) / 1e6 / count)
    memory.append((place.peak_bytes() or 0) / 2**20)


def _between_events(
    call: Callable[[int], Any],
    before: Callable[[], Any],
    count: int,
    place: TorchDevice,
    times: list[float],
    memory: list[float],
) -> None:
    if not count:
        return
    pairs = [(place.event(), place.event()) for _ in range(count)]
    place.reset_peak()
    place.synchronize()
    for number, (begin, end) in enumerate(pairs):
        before()
        begin.record()
        call(number)
        end.record()
    place.synchronize()
    times.extend(begin.elapsed_time(end) for begin, end in pairs)
    memory.append((place.peak_bytes() or 0) / 2**20)
