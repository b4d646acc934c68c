"""How long it takes to ask for the smallest piece of work, and to learn that it is done.

The work adds 1 to one number. `queued` is the time of a call when the next does not wait for it (on an accelerator what
a launch costs, on a CPU what dispatching an operator costs); `round_trip`, of a call and the wait for its end; `graph`,
of one of the kernels of a CUDA graph that is replayed. The number must have become the count of the calls.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from command import wrong
from timing import the_device

import benchmate
from benchmate.ops.device import TorchDevice
from benchmate.ops.sampling import gc_paused
from benchmate.ops.statistics import estimate
from benchmate.session import current

BLOCK = 500  # calls between two readings of the clock
IN_GRAPH = 100
FEWEST = 7  # blocks


class Counter:
    """One number on the device, and how often 1 was added to it."""

    def __init__(self, device: TorchDevice) -> None:
        self.device, self.expected = device, 0
        self.value = torch.zeros((), dtype=torch.int64, device=device.device)

    def queued(self) -> None:
        for _ in range(BLOCK):
            self.value.add_(1)
        self.device.synchronize()
        self.expected += BLOCK

    def round_trips(self) -> None:
        for _ in range(BLOCK):
            self.value.add_(1)
            self.device.synchronize()
        self.expected += BLOCK

    def captured(self) -> Callable[[], None]:
        """A block of kernels in one CUDA graph, replayed."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(IN_GRAPH):
                self.value.add_(1)

        def replay() -> None:
            for _ in range(BLOCK // IN_GRAPH):
                graph.replay()
            self.device.synchronize()
            self.expected += BLOCK

        return replay


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.0, help="time for each number")
    args = parser.parse_args()
    device = the_device()
    counter = Counter(device)
    cases = {"queued": counter.queued}
    if device.kind != "cpu":
        cases["round_trip"] = counter.round_trips
    if device.is_cuda:
        cases["graph"] = counter.captured()
    else:
        benchmate.message(f"launch: {device.kind} has no CUDA graph")
    for case, block in cases.items():
        blocks = timed_blocks(block, args.seconds)
        if counter.value.item() != counter.expected:
            wrong(f"launch: {case}: {counter.expected} calls added {counter.value.item()}")
        calls = estimate([seconds / BLOCK for seconds in blocks])
        benchmate.metric(
            "time", calls.median, "s", "lower", case=case, main=True, samples=calls.samples,
            ci95=list(calls.ci95) if calls.ci95 else None, clock="host",
        )  # fmt: skip
        print(f"{case}: {calls.median * 1e6:.3f} us a call ({calls.samples} blocks of {BLOCK})", flush=True)
    current().finish()


def timed_blocks(block: Callable[[], None], seconds: float) -> list[float]:
    """The seconds of each block, after one that is not counted."""
    block()
    taken: list[float] = []
    with gc_paused():
        began = time.perf_counter()
        while len(taken) < FEWEST or time.perf_counter() - began < seconds:
            since = time.perf_counter()
            block()
            taken.append(time.perf_counter() - since)
    return taken


if __name__ == "__main__":
    main()
