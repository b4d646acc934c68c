"""Our ways to time: hot, cold and end-to-end, sampled until the median's interval is narrow enough."""

from __future__ import annotations

import gc
import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from benchmate.ops.device import TorchDevice, clock_pair_s
from benchmate.ops.statistics import FEWEST_FOR_INTERVAL, Estimate, StopRule, estimate

NAMES = ("hot", "cold", "end-to-end")
HOST_BLOCK_S = 0.010
DEVICE_BLOCK_S = 0.001
CALLS_QUEUED = 256  # what fits into a device's queue of launches with room to spare
COLD_BATCH = 16
LARGEST_STEP = 10

_clock = time.perf_counter_ns

Agree = Callable[[float], float]
"""The largest of what all ranks say: every rank takes the same samples and stops at the same one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledTime:
    """The seconds of a call: `loops` calls in each sample, read from `clock` (host or event).

    `enqueue_s` is what the host takes to ask a device for one call; None on a CPU.
    """

    mode: str
    estimate: Estimate
    loops: int
    clock: str
    is_converged: bool
    elapsed_s: float
    enqueue_s: float | None = None

    @property
    def is_launch_bound(self) -> bool:
        """Whether the device waits for the host: asking takes longer than doing."""
        return self.enqueue_s is not None and self.enqueue_s > self.estimate.median


def _alone(value: float) -> float:
    return value


def sample_calls(
    mode: str,
    call: Callable[[], Any],
    place: TorchDevice,
    rule: StopRule,
    agree: Agree = _alone,
    in_turn: Sequence[Callable[[], Any]] = (),
) -> SampledTime:
    """Time a call in one of our modes. What the call raises is passed on.

    `in_turn` is the same call with copies of its inputs; the mode cold takes one after another.
    """
    with gc_paused():
        call()
        place.synchronize()
        if mode == "end-to-end":
            return _sampled(mode, lambda: [_waited(call, place)], 1, "host", rule, agree)
        enqueue_s = None if place.kind == "cpu" else agree(_enqueue_s(call, place))
        if mode == "cold":
            clock = "event" if place.has_events else "host"
            sample = _cold_samples(in_turn or [call], place, enqueue_s or 0.0)
            return _sampled(mode, sample, 1, clock, rule, agree, enqueue_s)
        if place.has_events:
            return _hot_on_device(call, place, rule, agree, enqueue_s or 0.0)
        loops = _loops(lambda count: block_s(call, count, place), agree(_host_block_s()), agree)
        return _sampled(mode, lambda: [block_s(call, loops, place) / loops], loops, "host", rule, agree, enqueue_s)


@contextmanager
def gc_paused() -> Iterator[None]:
    """Without the garbage collector while inside."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def measurement_floor(place: TorchDevice) -> dict[str, float]:
    """What the harness itself takes: a pair of clock readings, a call of nothing in a loop, and an empty pair of events."""
    import functools

    nothing = functools.partial(int)
    with gc_paused():
        found = {"clock_pair_s": clock_pair_s(), "loop_s": min(_loop_s(nothing, 10_000) / 10_000 for _ in range(3))}
        if place.has_events:
            pairs = [(place.event(), place.event()) for _ in range(33)]
            place.spin(0.001)
            for begin, end in pairs:
                begin.record()
                end.record()
            place.synchronize()
            found["event_pair_s"] = estimate([begin.elapsed_time(end) / 1e3 for begin, end in pairs]).median
    return found


def _sampled(
    mode: str,
    sample: Callable[[], list[float]],
    loops: int,
    clock: str,
    rule: StopRule,
    agree: Agree,
    enqueue_s: float | None = None,
) -> SampledTime:
    """Samples until the rule is content or the time is over."""
    values: list[float] = []
    spent_s = 0.0  # by the samples, which all ranks agree on: a call of seconds is not repeated thirty times
    began = _clock()
    while True:
        for value in sample():
            values.append(agree(value))
            spent_s += values[-1] * loops
            is_overdue = spent_s >= rule.longest_s and len(values) >= FEWEST_FOR_INTERVAL
            if not rule.is_time_to_look(len(values)) and not is_overdue:
                continue
            elapsed_s = agree((_clock() - began) / 1e9)
            found = estimate(values)
            is_converged = rule.is_converged(found, elapsed_s)
            if is_converged or max(elapsed_s, spent_s) >= rule.longest_s or len(values) >= rule.most:
                return SampledTime(
                    mode=mode,
                    estimate=found,
                    loops=loops,
                    clock=clock,
                    is_converged=is_converged,
                    elapsed_s=elapsed_s,
                    enqueue_s=enqueue_s,
                )


def _loops(timed: Callable[[int], float], target_s: float, agree: Agree, most: int = 1 << 30) -> int:
    """How many calls make a block of at least `target_s` seconds, at most `most`."""
    count = 1
    while True:
        # The best of two: one interruption must not pass for a long block.
        taken_s = agree(min(timed(count), timed(count)))
        if taken_s >= target_s or count >= most:
            return count
        wanted = math.ceil(count * 1.1 * target_s / max(taken_s, 1e-9))
        count = min(most, max(count + 1, min(wanted, count * LARGEST_STEP)))


def _host_block_s() -> float:
    return max(HOST_BLOCK_S, 1000 * clock_pair_s(), 1000 * time.get_clock_info("perf_counter").resolution)


def _loop_s(call: Callable[[], Any], count: int) -> float:
    repeats = itertools.repeat(None, count)
    begin = _clock()
    for _ in repeats:
        call()
    return (_clock() - begin) / 1e9


def block_s(call: Callable[[], Any], count: int, place: TorchDevice) -> float:
    """Seconds that `count` calls take, one after another, on the host's clock."""
    if place.kind == "cpu":
        return _loop_s(call, count)
    place.synchronize()
    begin = _clock()
    for _ in range(count):
        call()
    place.synchronize()
    return (_clock() - begin) / 1e9


def _waited(call: Callable[[], Any], place: TorchDevice) -> float:
    place.synchronize()
    begin = _clock()
    call()
    place.synchronize()
    return (_clock() - begin) / 1e9


def _enqueue_s(call: Callable[[], Any], place: TorchDevice, count: int = 16) -> float:
    """Seconds that the host takes to ask for one call, with an idle device."""
    call()
    place.synchronize()
    taken_s = _loop_s(call, count) / count
    place.synchronize()
    return taken_s


def _hot_on_device(
    call: Callable[[], Any], place: TorchDevice, rule: StopRule, agree: Agree, enqueue_s: float
) -> SampledTime:
    begin, end = place.event(), place.event()

    def queued_s(count: int) -> float:
        # The device is kept busy until all calls are queued: their launches are then not in the time.
        place.spin(1.2 * enqueue_s * count + 20e-6)
        begin.record()
        for _ in range(count):
            call()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1e3

    loops = _loops(queued_s, DEVICE_BLOCK_S, agree, CALLS_QUEUED)
    return _sampled("hot", lambda: [queued_s(loops) / loops], loops, "event", rule, agree, enqueue_s)


def _cold_samples(
    calls: Sequence[Callable[[], Any]], place: TorchDevice, enqueue_s: float
) -> Callable[[], list[float]]:
    turns = itertools.cycle(calls)
    if not place.has_events:

        def one() -> list[float]:
            call = next(turns)
            place.evict()
            return [_waited(call, place)]

        return one
    pairs = [(place.event(), place.event()) for _ in range(COLD_BATCH)]
    evict_s = _enqueue_s(place.evict, place)

    def batch() -> list[float]:
        place.spin(1.2 * (enqueue_s + evict_s + 20e-6) * COLD_BATCH)
        for begin, end in pairs:
            call = next(turns)
            place.evict()
            begin.record()
            call()
            end.record()
        place.synchronize()
        return [begin.elapsed_time(end) / 1e3 for begin, end in pairs]

    return batch
