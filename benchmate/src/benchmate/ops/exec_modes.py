"""The original's three ways to time: discrete, continuous, continuous_events. Every call counted, as many as asked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from benchmate.ops.base import Call
from benchmate.ops.device import TorchDevice
from benchmate.ops.interface import Passes

_clock = time.perf_counter_ns


@dataclass(slots=True, kw_only=True)
class DirectionTimes:
    """Times in ms and peaks of the allocator in MiB."""

    times_ms: list[float] = field(default_factory=list)
    memory_mib: list[float] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class PassTimes:
    """The times of the passes. `no_backward` says why there is no backward pass."""

    forward: DirectionTimes = field(default_factory=DirectionTimes)
    backward: DirectionTimes = field(default_factory=DirectionTimes)
    no_backward: str | None = None


TimePasses = Callable[[Passes, int, bool, TorchDevice, bool], PassTimes]


def discrete(passes: Passes, count: int, has_backward: bool, device: TorchDevice, is_evicted: bool) -> PassTimes:
    """Time each call by itself, between two waits for the device. `is_evicted` empties the cache before each, untimed."""
    times = PassTimes()
    for _ in range(count):
        output = _time_call(passes.forward, device, is_evicted, times.forward)
        if has_backward and times.no_backward is None:
            times.no_backward = passes.make_gradient(output)
            if times.no_backward is None:
                _time_call(passes.backward, device, is_evicted, times.backward)
    return times


def continuous(passes: Passes, count: int, has_backward: bool, device: TorchDevice, is_evicted: bool) -> PassTimes:
    """Time all calls between two waits for the device: a mean each. On a CPU every call by itself.

    The mean of the backward passes is the mean of forward and backward together less the mean of forward, as in the original.
    Where noise makes it negative it is left out.
    """
    if device.kind == "cpu":
        return _on_host(passes, count, has_backward, device)
    times = PassTimes()
    output: object = None
    with _span(device, times.forward, count):
        for _ in range(count):
            output = passes.forward()
    if has_backward:
        times.no_backward = passes.make_gradient(output)
    if has_backward and times.no_backward is None:
        with _span(device, times.backward, count):
            # A graph is gone after its backward pass, so each one needs a forward before it; that is subtracted below.
            for _ in range(count):
                passes.make_gradient(passes.forward())
                passes.backward()
        rest_ms = times.backward.times_ms.pop() - times.forward.times_ms[0]
        if rest_ms > 0:
            times.backward.times_ms.append(rest_ms)
        else:
            times.no_backward = "forward and backward together took no longer than forward alone: too noisy to subtract"
    return times


def continuous_events(
    passes: Passes, count: int, has_backward: bool, device: TorchDevice, is_evicted: bool
) -> PassTimes:
    """Time all calls without waiting, an event before and after each. On a CPU every call by itself."""
    if not device.has_events:
        return _on_host(passes, count, has_backward, device)
    times = PassTimes()
    output = _between_events(passes.forward, lambda: None, count, device, times.forward)
    if has_backward:
        times.no_backward = passes.make_gradient(output)
        if times.no_backward is None:
            _between_events(
                passes.backward, lambda: passes.make_gradient(passes.forward()), count, device, times.backward
            )
    return times


MODES: dict[str, TimePasses] = {mode.__name__: mode for mode in (discrete, continuous, continuous_events)}
NAMES = tuple(MODES)


def _time_call(call: Call, device: TorchDevice, is_evicted: bool, times: DirectionTimes) -> object:
    if is_evicted:
        device.evict()
    # Nothing to wait for, and no peak to reset: that writes to /proc, which takes longer than many operators.
    if device.kind == "cpu":
        begin = _clock()
        output = call()
        end = _clock()
        times.memory_mib.append(0)
    else:
        device.reset_peak()
        device.synchronize()
        begin = _clock()
        output = call()
        device.synchronize()
        end = _clock()
        times.memory_mib.append(_peak_mib(device))
    times.times_ms.append((end - begin) / 1e6)
    return output


def _on_host(passes: Passes, count: int, has_backward: bool, device: TorchDevice) -> PassTimes:
    times = discrete(passes, count, has_backward, device, False)
    times.forward.memory_mib, times.backward.memory_mib = [], []
    return times


@contextmanager
def _span(device: TorchDevice, times: DirectionTimes, count: int) -> Iterator[None]:
    device.reset_peak()
    device.synchronize()
    begin = _clock()
    yield
    device.synchronize()
    times.times_ms.append((_clock() - begin) / 1e6 / count)
    times.memory_mib.append(_peak_mib(device))


def _between_events(call: Call, prepare: Call, count: int, device: TorchDevice, times: DirectionTimes) -> object:
    """Time each call. Return the output of the last."""
    pairs = device.event_pairs(count)
    device.reset_peak()
    device.synchronize()
    output: object = None
    for begin, end in pairs:
        prepare()
        begin.record()
        output = call()
        end.record()
    device.synchronize()
    times.times_ms.extend(begin.elapsed_time(end) for begin, end in pairs)
    times.memory_mib.append(_peak_mib(device))
    return output


def _peak_mib(device: TorchDevice) -> float:
    return (device.peak_bytes() or 0) / 2**20
