"""The life of one case in its own process: set up, warm up, run, tear down; what it took, and how it ended."""

from __future__ import annotations

import math
import sys
import time
import traceback
from collections.abc import Callable
from itertools import repeat
from typing import Any

from benchmate.cases.memory_peaks import MemoryPeaks
from benchmate.cases.options import Effort
from benchmate.cases.registry import Case, Skip, State, takes_state
from benchmate.clock import now_ns, wait_for_devices

MOST_ITERATIONS = 1_000_000_000_000
_AIM = 1.4  # a trial aims beyond the least time, so that the next one rarely falls short again
_NEGLIGIBLE = 0.1  # of the least time: too short a trial to predict from


def run_case(case: Case, effort: Effort) -> dict[str, Any]:
    """What came of the case: `outcome` passed, failed (with why and detail) or skipped, times in ns, memory in bytes.

    Nothing is raised: what a case raises is its failure. A failure in `run` does not keep `teardown` from being called.
    """
    said: dict[str, Any] = {"outcome": "passed"}
    state, peaks = State(), MemoryPeaks()
    part = "setup"
    try:
        peaks.begin()
        setup, run, teardown = _subject(case, state)
        setup()
        _synchronise()
        peaks.after_setup()
        part = "run"
        try:
            said |= measure_run(run, effort)
            peaks.after_run()
            part = "teardown"
        finally:
            teardown()
    except Skip as reason:
        return {"outcome": "skipped", "detail": str(reason) or "the case says so"}
    except BaseException as error:
        return _failure(error, part)
    said["memory"] = peaks.found
    said["notes"] = peaks.notes
    said |= _told(state)
    return said


def measure_run(run: Callable[[], object], effort: Effort) -> dict[str, Any]:
    """Call `run` as often as asked; `{iterations, wall_ns, cpu_ns}` of all these calls together.

    The device is waited for before both readings of the clock. To reach a least time, trials grow until one lasts so
    long; only the last one counts (the rule is Google Benchmark's, on the wall clock).
    """
    if effort.warmup_s > 0:
        warm_up(run, effort.warmup_s)
    if effort.iterations is not None:
        wall_ns, cpu_ns = _timed(run, effort.iterations)
        return {"iterations": effort.iterations, "wall_ns": wall_ns, "cpu_ns": cpu_ns}
    least_ns, iterations = effort.min_time_s * 1e9, 1
    while True:
        wall_ns, cpu_ns = _timed(run, iterations)
        if wall_ns >= least_ns or iterations >= MOST_ITERATIONS:
            return {"iterations": iterations, "wall_ns": wall_ns, "cpu_ns": cpu_ns}
        iterations = next_iterations(iterations, wall_ns, least_ns)


def next_iterations(iterations: int, took_ns: float, least_ns: float) -> int:
    """How many iterations the next trial has, after one that fell short of `least_ns`."""
    is_telling = took_ns / least_ns > _NEGLIGIBLE
    wanted = iterations * _AIM * least_ns / max(took_ns, 1) if is_telling else iterations * 10
    return min(max(math.ceil(wanted), iterations + 1), MOST_ITERATIONS)


def warm_up(run: Callable[[], object], seconds: float) -> None:
    """Call `run` until `seconds` have passed, device included."""
    end_ns = now_ns() + seconds * 1e9
    while now_ns() < end_ns:
        run()
        _synchronise()


def _timed(run: Callable[[], object], iterations: int) -> tuple[int, int]:
    times = repeat(None, iterations)
    _synchronise()
    cpu_ns, begin_ns = time.process_time_ns(), now_ns()
    for _ in times:
        run()
    _synchronise()
    end_ns = now_ns()
    return end_ns - begin_ns, time.process_time_ns() - cpu_ns


def _subject(case: Case, state: State) -> tuple[Callable[[], object], Callable[[], object], Callable[[], object]]:
    """Set-up, run and teardown without arguments. Raises what the case's constructor raises."""
    if not isinstance(case.subject, type):
        values = dict(case.params)
        if takes_state(case.subject):
            values["state"] = state
        function = case.subject
        return _nothing, (lambda: function(**values)) if values else function, _nothing
    made = case.subject()
    for key, value in case.params.items():
        if hasattr(made, key):
            raise RuntimeError(
                f"{type(made).__qualname__} makes an attribute {key} itself; name the parameter differently"
            )
        setattr(made, key, value)
    setup, run, teardown = (_bound(made, name, state) for name in ("setup", "run", "teardown"))
    return setup, run, teardown


def _bound(made: object, name: str, state: State) -> Callable[[], object]:
    method = getattr(made, name, None)
    if method is None:
        return _nothing
    return (lambda: method(state=state)) if takes_state(method) else method


def _nothing() -> None:
    """What a case without set-up or teardown does."""


def _synchronise() -> None:
    """Wait until the devices that this process uses have done what was asked of them."""
    torch = sys.modules.get("torch")
    for name in () if torch is None else ("cuda", "xpu", "hpu"):
        device: Any = getattr(torch, name, None)
        is_initialized = getattr(device, "is_initialized", None)
        if is_initialized is not None and is_initialized():
            for number in range(device.device_count()):
                device.synchronize(number)
    wait_for_devices()


def _told(state: State) -> dict[str, Any]:
    said = {"items": state.items, "bytes": state.bytes, "counters": state.counters, "label": state.label}
    return {key: value for key, value in said.items() if value not in (None, "", {})}


def _failure(error: BaseException, part: str) -> dict[str, Any]:
    traceback.print_exception(error)
    is_memory = type(error).__name__ in ("MemoryError", "OutOfMemoryError")
    text = " ".join(str(error).split())
    return {
        "outcome": "failed",
        "why": "out-of-memory" if is_memory else "exit",
        "detail": f"{part}: {type(error).__name__}{': ' if text else ''}{text}",
    }
