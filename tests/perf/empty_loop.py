"""What observing costs where nothing else happens: CPU of an observed empty loop, and memory of a long one.

    python tests/perf/empty_loop.py

A round's ratio is the observed loop's step over a bare event and append in the same round; each round has a ring of its own.
By hand also the loop alone, and the steps of a long run, of which several share an entry.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial

from discarding_sink import DiscardingSink
from rows import YARDSTICK_STEPS, Row, bare_event_ns, in_turn, ratios, show

import benchmate
from benchmate.configuration import parse_config
from benchmate.memory import host_peak_bytes
from benchmate.session import Session, use

ROUNDS = 61
LONG_STEPS = 10_000_000
LONG_MIB = 1.0
BARE, LOOP, OBSERVED, SUMMED = "bare event and append", "loop alone", "observed", "observed, several steps an entry"
GOAL = 1.3


def fresh_observer() -> Callable[[Iterable[object]], Iterable[object]]:
    """An observer of its own past its warm-up, that never ends the loop."""
    rules = {"warmup_steps": 1, "warmup_s": 0, "window_steps": 10**9, "window_s": 10**6}
    use(Session(parse_config({"measure": rules}), DiscardingSink()))
    for _ in benchmate.observed(range(2), batch_size=1):
        pass
    return lambda iterable: benchmate.observed(iterable, batch_size=1)


def step_ns(iterable: Iterable[object], steps: int) -> float:
    """Thread CPU nanoseconds of a step of an empty loop."""
    began = time.thread_time_ns()
    for _ in iterable:
        pass
    return (time.thread_time_ns() - began) / steps


def observed_ns() -> float:
    """Each step is an entry of the ring."""
    observe = fresh_observer()
    return step_ns(observe(range(YARDSTICK_STEPS)), YARDSTICK_STEPS)


def summed_ns() -> float:
    """The ring is full, so that several steps share an entry."""
    observe = fresh_observer()
    step_ns(observe(range(10 * YARDSTICK_STEPS)), 1)
    return step_ns(observe(range(YARDSTICK_STEPS)), YARDSTICK_STEPS)


def long_loop_mib() -> tuple[float, float]:
    """Peak memory of this process before and after a long loop that nobody reads."""
    observe = fresh_observer()
    step_ns(observe(range(100_000)), 1)
    before = host_peak_bytes() or 0
    step_ns(observe(range(LONG_STEPS)), LONG_STEPS)
    return before / 2**20, (host_peak_bytes() or 0) / 2**20


def main() -> None:
    """Print a row for the step and one for the memory."""
    # Before anything else has raised the peak.
    before, after = long_loop_mib()
    measures: dict[str, Callable[[], float]] = {BARE: bare_event_ns, OBSERVED: observed_ns}
    if "--json" not in sys.argv:
        measures |= {LOOP: partial(step_ns, range(YARDSTICK_STEPS), YARDSTICK_STEPS), SUMMED: summed_ns}
    found = in_turn(measures, ROUNDS)
    medians = {name: statistics.median(values) for name, values in found.items()}
    if "--json" not in sys.argv:
        for name, value in medians.items():
            print(
                f"{name:32} {value:5.0f} ns of CPU a step, {value / medians[BARE]:.2f} x bare, least {min(found[name]):.0f}"
            )
    show(
        [
            Row(
                "observed empty loop, CPU a step",
                BARE,
                ratios(found, OBSERVED, BARE),
                GOAL,
                f"{medians[OBSERVED]:.0f} and {medians[BARE]:.0f} ns",
            ),
            Row(
                f"peak memory that {LONG_STEPS // 10**6} million observed steps add",
                f"{LONG_MIB:g} MiB",
                ((after - before) / LONG_MIB,),
                1.0,
                f"{before:.1f} and {after:.1f} MiB",
            ),
        ]
    )


if __name__ == "__main__":
    try:
        main()
    finally:
        DiscardingSink.remove()
