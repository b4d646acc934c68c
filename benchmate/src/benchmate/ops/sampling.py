"""Our ways to time: hot, cold and end-to-end, sampled until the median's interval is narrow enough."""

from __future__ import annotations

import copy
import functools
import gc
import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from benchmate.ops.base import Arguments, Call, Keywords
from benchmate.ops.device import TorchDevice, clock_pair_s, free_bytes
from benchmate.ops.interface import tensors_in
from benchmate.ops.statistics import FEWEST_FOR_INTERVAL, Estimate, StopRule, estimate

NAMES = ("hot", "cold", "end-to-end")
HOST_BLOCK_S = 0.010
DEVICE_BLOCK_S = 0.001
CALLS_QUEUED = 256  # what fits into a device's queue of launches with room to spare
COLD_BATCH = 16
LARGEST_STEP = 10
MAX_COPIES = 16384  # of inputs so small that more of them would only take time

_clock = time.perf_counter_ns

Bind = Callable[[Arguments, Keywords], Call]
"""Return the call of an operator with other arguments."""
Agree = Callable[[float], float]
"""Return the largest value of all ranks: every rank takes the same samples and stops at the same sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledTime:
    """The seconds of a call: `loops` calls in each sample, read from `clock` (host or event).

    `enqueue_s` is the host's time to enqueue a call on a device. None on a CPU.
    """

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


def sample_calls(
    mode: str, call: Call, device: TorchDevice, rule: StopRule, agree: Agree = float, in_turn: Sequence[Call] = ()
) -> SampledTime:
    """Time a call in a mode of ours. Errors of the call are passed on.

    `in_turn` is the same call with copies of its inputs. The mode cold takes them in sequence.
    """
    loops, enqueue_s = 1, None
    # The first call compiles, allocates and chooses algorithms: it is in no sample.
    with gc_paused():
        call()
        device.synchronize()
        if mode != "end-to-end" and device.kind != "cpu":
            enqueue_s = agree(_enqueue_s(call, device))
        if mode == "end-to-end":
            sample: Callable[[], list[float]] = functools.partial(_synchronised_samples, call, device)
        elif mode == "cold":
            sample = _cold_samples(in_turn or [call], device, enqueue_s or 0.0)
        else:
            timed, target_s, most = block_timer(call, device, enqueue_s or 0.0), DEVICE_BLOCK_S, CALLS_QUEUED
            if not device.has_events:
                resolution_s = max(clock_pair_s(), time.get_clock_info("perf_counter").resolution)
                target_s, most = agree(max(HOST_BLOCK_S, 1000 * resolution_s)), 1 << 30
            loops = _count_loops(timed, target_s, agree, most)
            sample = lambda: [timed(loops) / loops]  # noqa: E731
        median, is_converged, elapsed_s = _sample_until(sample, loops, rule, agree)
    return SampledTime(
        estimate=median,
        loops=loops,
        clock="event" if device.has_events and mode != "end-to-end" else "host",
        is_converged=is_converged,
        elapsed_s=elapsed_s,
        enqueue_s=enqueue_s,
    )


@contextmanager
def gc_paused() -> Iterator[None]:
    """Keep the garbage collector off while inside."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def measurement_floor(device: TorchDevice) -> dict[str, float]:
    """Return the cost of the harness itself: a pair of clock readings, an empty call in a loop, an empty pair of events."""
    nothing = functools.partial(int)
    with gc_paused():
        floor = {"clock_pair_s": clock_pair_s(), "loop_s": min(_loop_s(nothing, 10_000) / 10_000 for _ in range(3))}
        if device.has_events:
            pairs = device.event_pairs(33)
            device.spin(0.001)
            for begin, end in pairs:
                begin.record()
                end.record()
            device.synchronize()
            floor["event_pair_s"] = estimate([begin.elapsed_time(end) / 1e3 for begin, end in pairs]).median
    return floor


def _sample_until(
    sample: Callable[[], list[float]], loops: int, rule: StopRule, agree: Agree
) -> tuple[Estimate, bool, float]:
    """Take samples until the rule is content or the time is over. Return (estimate, whether it converged, seconds)."""
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
            median = estimate(values)
            is_converged = rule.is_converged(median, elapsed_s)
            if is_converged or max(elapsed_s, spent_s) >= rule.longest_s or len(values) >= rule.most:
                return median, is_converged, elapsed_s


def _count_loops(timed: Callable[[int], float], target_s: float, agree: Agree, max_loops: int) -> int:
    """Return how many calls make a block of at least `target_s` seconds, at most `max_loops`."""
    count = 1
    while True:
        # The best of two: one interruption must not pass for a long block.
        taken_s = agree(min(timed(count), timed(count)))
        if taken_s >= target_s or count >= max_loops:
            return count
        wanted = math.ceil(count * 1.1 * target_s / max(taken_s, 1e-9))
        count = min(max_loops, max(count + 1, min(wanted, count * LARGEST_STEP)))


def _loop_s(call: Call, count: int) -> float:
    # The cheapest loop of Python: as timeit has it, with no integer made for a call.
    repeats = itertools.repeat(None, count)
    begin = _clock()
    for _ in repeats:
        call()
    return (_clock() - begin) / 1e9


def _synchronised_samples(call: Call, device: TorchDevice) -> list[float]:
    device.synchronize()
    begin = _clock()
    call()
    device.synchronize()
    return [(_clock() - begin) / 1e9]


def _enqueue_s(call: Call, device: TorchDevice, count: int = 16) -> float:
    """Return the seconds that the host takes to enqueue a call, with an idle device."""
    call()
    device.synchronize()
    taken_s = _loop_s(call, count) / count
    device.synchronize()
    return taken_s


def block_timer(call: Call, device: TorchDevice, enqueue_s: float = 0.0) -> Callable[[int], float]:
    """Return the function that times a number of calls in sequence, in seconds. `enqueue_s` is the host's time for a call."""
    ((begin, end),) = device.event_pairs(1)

    def block_s(count: int) -> float:
        # The cheapest loop of Python: as timeit has it, with no integer made for a call.
        repeats = itertools.repeat(None, count)
        # The device is kept busy until all calls are queued: their launches are then not in the time.
        device.spin(1.2 * enqueue_s * count + 20e-6)
        begin.record()
        for _ in repeats:
            call()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3

    return block_s


def _cold_samples(calls: Sequence[Call], device: TorchDevice, enqueue_s: float) -> Callable[[], list[float]]:
    turns = itertools.cycle(calls)
    # One spin for a batch: all its calls are queued before the first of them starts.
    pairs = device.event_pairs(COLD_BATCH if device.has_events else 1)
    evict_s = _enqueue_s(device.evict, device) if device.has_events else 0.0

    def sample() -> list[float]:
        device.spin(1.2 * (enqueue_s + evict_s + 20e-6) * COLD_BATCH)
        for begin, end in pairs:
            call = next(turns)
            device.evict()
            begin.record()
            call()
            end.record()
        device.synchronize()
        return [begin.elapsed_time(end) / 1e3 for begin, end in pairs]

    return sample


@dataclass(frozen=True, kw_only=True)
class InputRotation:
    """The same call with each of `len(calls)` copies of its inputs, of `total_bytes` together."""

    calls: Sequence[Call]
    total_bytes: int


def rotate_inputs(bind: Bind, args: Arguments, kwargs: Keywords, device: TorchDevice) -> InputRotation | None:
    """Return enough copies of the inputs to exceed the last cache level. The first is the inputs themselves.

    None for inputs that exceed it alone, and for those that are not plain strided memory or were computed with gradients.
    Fewer copies than it takes where they would fill half of the device's free memory.
    """
    import torch

    tensors = list(tensors_in([args, kwargs]))
    kinds = {(tensor.layout, tensor.device.type, tensor.is_leaf) for tensor in tensors}
    if kinds - {(torch.strided, device.kind, True)}:
        return None
    storages = [tensor.untyped_storage() for tensor in tensors]
    input_bytes = sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())
    if not 0 < input_bytes <= device.cache_bytes:
        return None
    free = free_bytes(str(device.device))
    limit = MAX_COPIES if free is None else min(MAX_COPIES, free // 2 // input_bytes)
    count = max(1, min(limit, math.ceil((device.cache_bytes + 1) / input_bytes)))
    # Tensors that share memory, such as views, share it in the copy too.
    calls = [bind(args, kwargs), *(bind(*copy.deepcopy((args, kwargs))) for _ in range(count - 1))]
    return InputRotation(calls=calls, total_bytes=count * input_bytes)
