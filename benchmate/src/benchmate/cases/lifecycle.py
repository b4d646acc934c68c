"""The lifecycle of a case in its own process: set up, warm up, run, tear down, with its cost and its end."""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from itertools import repeat
from time import perf_counter_ns, process_time_ns
from typing import TYPE_CHECKING

from benchmate.cases.memory_peaks import MemoryPeaks
from benchmate.cases.options import RunBudget
from benchmate.cases.registry import STATE, Case, Skip, State, takes_state
from benchmate.clock import wait_for_devices
from benchmate.frameworks import initialized_devices
from benchmate.memory import is_out_of_memory
from benchmate.records import text_of

if TYPE_CHECKING:
    from benchmate.cases.results import CasePayload  # the runner's: with statistics, which a case need not import

MAX_ITERATIONS = 1_000_000_000_000
_OVERSHOOT = 1.4  # a trial aims beyond the least time, so that the next one rarely falls short again
_TELLING_SHARE = 0.1  # of the least time: a shorter trial predicts nothing

Call = Callable[[], object]


def run_case(case: Case, budget: RunBudget) -> CasePayload:
    """Return the outcome of the case: passed, failed (with why and detail) or skipped, times in ns, memory in bytes.

    Nothing is raised: an exception of a case is its failure. A failure in `run` does not keep `teardown` from being called.
    """
    state, peaks = State(), MemoryPeaks()
    stage = "setup"
    try:
        peaks.begin()
        setup, run, teardown = _bind_subject(case, state)
        setup()
        _synchronise()
        peaks.after_setup()
        stage = "run"
        try:
            payload = measure_run(run, budget)
            peaks.after_run()
            stage = "teardown"
        finally:
            teardown()
    except Skip as reason:
        return {"outcome": "skipped", "detail": str(reason) or "the case says so"}
    except BaseException as error:
        return _failure(error, stage)
    payload |= {"outcome": "passed", "memory": peaks.sizes, "notes": peaks.notes}
    payload |= {"items": state.items, "bytes": state.bytes, "counters": state.counters, "label": state.label}
    return payload


def measure_run(run: Call, budget: RunBudget) -> CasePayload:
    """Call `run` as often as asked. Return the times of all these calls together.

    The device is waited for before both readings of the clock. To reach a minimum time, trials grow until a trial lasts
    this long. Only the last trial counts (the rule is Google Benchmark's, on the wall clock).
    """
    if budget.warmup_s > 0:
        warm_up(run, budget.warmup_s)
    if budget.iterations is not None:
        return _time_calls(run, budget.iterations)
    least_ns, iterations = budget.min_time_s * 1e9, 1
    while True:
        times = _time_calls(run, iterations)
        if times["wall_ns"] >= least_ns or iterations >= MAX_ITERATIONS:
            return times
        iterations = next_iterations(iterations, times["wall_ns"], least_ns)


def next_iterations(iterations: int, took_ns: float, least_ns: float) -> int:
    """Return how many iterations the next trial has, after a trial that fell short of `least_ns`."""
    # PredictNumItersNeeded of Google Benchmark, with its constants.
    is_telling = took_ns / least_ns > _TELLING_SHARE
    wanted = iterations * _OVERSHOOT * least_ns / max(took_ns, 1) if is_telling else iterations * 10
    return min(max(math.ceil(wanted), iterations + 1), MAX_ITERATIONS)


def warm_up(run: Call, seconds: float) -> None:
    """Call `run` until `seconds` have passed, device included."""
    end_ns = perf_counter_ns() + seconds * 1e9
    while perf_counter_ns() < end_ns:
        run()
        _synchronise()


def _time_calls(run: Call, iterations: int) -> CasePayload:
    # As timeit does: range() would make a new number for each iteration.
    times = repeat(None, iterations)
    _synchronise()
    cpu_ns, begin_ns = process_time_ns(), perf_counter_ns()
    for _ in times:
        run()
    _synchronise()
    end_ns = perf_counter_ns()
    return {"iterations": iterations, "wall_ns": end_ns - begin_ns, "cpu_ns": process_time_ns() - cpu_ns}


def _bind_subject(case: Case, state: State) -> tuple[Call, Call, Call]:
    """Return setup, run and teardown without arguments. Raises the errors of the case's constructor."""
    if not isinstance(case.subject, type):
        return _do_nothing, _with_state(case.subject, case.params, state), _do_nothing
    instance = case.subject()
    for key, value in case.params.items():
        if hasattr(instance, key):
            name = type(instance).__qualname__
            raise RuntimeError(f"{name} makes an attribute {key} itself. Rename the parameter")
        setattr(instance, key, value)
    methods = (getattr(instance, name, _do_nothing) for name in ("setup", "run", "teardown"))
    setup, run, teardown = (_with_state(method, {}, state) for method in methods)
    return setup, run, teardown


def _with_state(function: Callable[..., object], values: Mapping[str, object], state: State) -> Call:
    """Return the call of a function with its values, and with the state where it takes that."""
    values = {**values, STATE: state} if takes_state(function) else values
    return partial(function, **values) if values else function


def _do_nothing() -> None:
    """Stand in for the set-up or teardown that a case does not have."""


def _synchronise() -> None:
    """Wait until the devices that this process uses have finished their work."""
    for device in initialized_devices("cuda", "xpu", "hpu"):
        for index in range(device.device_count()):
            device.synchronize(index)
    wait_for_devices()


def _failure(error: BaseException, stage: str) -> CasePayload:
    traceback.print_exception(error)
    text = " ".join(text_of(error).split())
    return {
        "outcome": "failed",
        "why": "out-of-memory" if is_out_of_memory(error) else "exit",
        "detail": f"{stage}: {type(error).__name__}{': ' if text else ''}{text}",
    }
