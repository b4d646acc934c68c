"""What observing a loop of JAX costs: the same steps plain and observed, in turn, in one process. Run with a Python that has JAX.

Pairs of neighbouring blocks, medians with their exact 95 % interval: the machine may be busy. Beside the paired difference
stands what the instruments report of themselves. Numbers to look at, not assertions.
"""

from __future__ import annotations

import functools
import importlib.util
import math
import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from discarding_sink import DiscardingSink

import benchmate
from benchmate.configuration import parse_config
from benchmate.session import Session, use

ROUNDS = int(os.environ.get("ROUNDS", "41"))
BLOCK_S = 0.03

SIZES = {"about 12 us": (24, 1), "about 60 us": (64, 6), "about 1 ms": (256, 6), "about 10 ms": (512, 12)}
"""Width of the matrices and how many products of them a step has."""


def step_of(width: int, products: int, *, is_donated: bool) -> Callable[[Any, Any], Any]:
    """A training step; one that donates its state returns nothing else, the worst case for waiting."""
    import jax
    import jax.numpy as jnp

    @functools.partial(jax.jit, donate_argnums=(0,) if is_donated else ())
    def step(weights: Any, batch: Any) -> Any:
        for _ in range(products):
            weights = jnp.tanh(weights @ batch)
        return weights if is_donated else (weights, weights.sum())

    return (lambda state, batch: (step(state, batch), None)) if is_donated else step


def measured(size: tuple[int, int], *, is_donated: bool) -> str:
    """One row: microseconds a step plain, the paired difference, what is reported, and steps in an entry."""
    import jax.numpy as jnp

    width, _ = size
    step = step_of(*size, is_donated=is_donated)
    batch = jnp.ones((width, width)) * 0.01
    state = step(jnp.ones((width, width)), batch)[0]
    rules = {"warmup_steps": 50, "warmup_s": 1, "window_steps": 10**9, "window_s": 10**6}
    session = use(Session(parse_config({"measure": rules}), DiscardingSink()))

    def batches(count: int) -> Iterator[Any]:
        for _ in range(count):
            yield batch

    def us_a_step(iterable: Iterable[Any], count: int) -> float:
        nonlocal state
        state.block_until_ready()
        begin = time.perf_counter()
        for each in iterable:
            state, _ = step(state, each)
        state.block_until_ready()
        return (time.perf_counter() - begin) / count * 1e6

    count = max(10, round(BLOCK_S * 1e6 / us_a_step(batches(50), 50)))
    observer = session.observer("train", "steps/s")
    begin = time.perf_counter()
    while time.perf_counter() - begin < 2:
        us_a_step(benchmate.observed(batches(count), batch_size=1), count)
    plain, difference = [], []
    for round_ in range(ROUNDS):
        # The order alternates, so that neither is always the one after the other.
        if round_ % 2:
            without = us_a_step(batches(count), count)
            observed = us_a_step(benchmate.observed(batches(count), batch_size=1), count)
        else:
            observed = us_a_step(benchmate.observed(batches(count), batch_size=1), count)
            without = us_a_step(batches(count), count)
        plain.append(without)
        difference.append(observed - without)
    middle, low, high = median_interval(difference)
    steps, entries = observer.count, max(1, observer.ring.head)
    cost_us = observer.cost_s() / steps * 1e6
    base = statistics.median(plain)
    paired_us = f"{middle:+7.2f} [{low:+7.2f}, {high:+7.2f}]"
    return f"{base:9.1f}  {paired_us}  x{1 + middle / base:.3f}  {cost_us:8.2f}  {steps / entries:7.1f}"


def median_interval(values: list[float]) -> tuple[float, float, float]:
    """(median, low, high): the exact 95 % interval of the median by order statistics, ranks from the normal approximation."""
    ordered = sorted(values)
    n = len(ordered)
    rank = max(0, math.floor(n / 2 - 0.98 * math.sqrt(n)))
    return statistics.median(ordered), ordered[rank], ordered[n - 1 - rank]


def main() -> None:
    """Print a row for each size of step."""
    if importlib.util.find_spec("jax") is None:
        print("steps of JAX: jax is not installed here")
        return
    import jax

    load = f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors"
    print(
        f"JAX {jax.__version__} on {jax.default_backend()}, {ROUNDS} pairs of blocks of {BLOCK_S} s; {load}; us a step"
    )
    print(f"  {'step':24} {'plain':>9}  {'observed - plain':>26}  ratio   reported  steps/entry")
    for name, size in SIZES.items():
        for is_donated in (False, True):
            print(
                f"  {name + (', donated' if is_donated else ''):24} {measured(size, is_donated=is_donated)}", flush=True
            )


if __name__ == "__main__":
    try:
        main()
    finally:
        DiscardingSink.remove()
