"""Records that milabench once made a wrong number of and called it valid; each is measured against the records' own clock.

Other numbers of this kind need more than one run's records: a busy host (tests/contract/test_contended.py), the number of every
command (tests/unit/workflow/test_one_number.py), a process that is stopped (tests/process/cli/test_frozen_step.py).
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path

import pytest

from milabench.acceptance.criteria import parse_criteria
from milabench.acceptance.evaluate import evaluate_criteria
from milabench.analysis.summary import summarise
from milabench.analysis.summary_model import BenchSummary
from milabench.events.model import Config, Data, Event
from tests.examples import thinned
from tests.recorded_run import Recorded, record

pytestmark = pytest.mark.turns(3)

S = 10**9
DEFAULT = {"window_steps": 60, "window_s": 30.0}


def launch(cycles: Iterable[tuple[float, float]], why: str | None = "complete") -> tuple[list[Event], float]:
    """The records of one launch in profile default, and its items a second by the sum of all that it did.

    A cycle is the seconds of a step of 8 items and of the gap that follows. `why` the window ended; None: no window is recorded.
    """
    now, steps = 1.0, list[Event]()
    for lasted, gap in cycles:
        place = {"t0_ns": round(now * S), "host_ns": round(lasted * S)}
        told = {"task": "train", "units": "items/s", "n": 8, "elapsed": lasted, "rate": 8 / lasted}
        steps.append(Data(step="", data={**told, **place}))
        end = now + lasted
        now = end + gap
    events: list[Event] = [Config(step="", data={"measure": DEFAULT}), *steps]
    if why is not None:
        window = {"start_ns": S, "stop_ns": round(end * S), "why": why}
        events.append(Data(step="", data={"task": "train", "window": window}))
    return events, 8 * len(steps) / (now - 1.0)


def judged(base: Path, *launches: Sequence[Event]) -> BenchSummary:
    """What the summary of a run says of these launches of one benchmark."""
    steps = [
        Recorded(bench="b", repeat=number, events=tuple(events), is_complete=False)
        for number, events in enumerate(launches)
    ]
    (bench,) = summarise(record(base, *steps)).benchmarks
    return bench


def noise(steps: int, seconds: float, seed: int, correlation: float = 0.0) -> list[tuple[float, float]]:
    draw = random.Random(seed)
    state, cycles = draw.gauss(0, 1), list[tuple[float, float]]()
    for _ in range(steps):
        cycles.append((seconds * math.exp(0.02 * state), 0.0))
        state = correlation * state + math.sqrt(1 - correlation**2) * draw.gauss(0, 1)
    return cycles


@pytest.mark.parametrize("between", [0.735, 0.37, 0.28], ids=["pykeen", "workers", "scikit-learn"])
def test_time_between_epochs_is_in_the_number_and_named(tmp_path: Path, between: float) -> None:
    """Left out, it made the number 3.8, 1.6 and 1.4 times what the machine did, and `valid`."""
    epoch = [(0.01, 0.0)] * 49 + [(0.01, 0.5 * between / (1 - between))]
    cycles = epoch * 80
    events, by_its_own_clock = launch(cycles)
    bench = judged(tmp_path, events)
    assert bench.perf == pytest.approx(by_its_own_clock, rel=0.005)
    assert bench.validity == "imprecise"


@pytest.mark.parametrize(
    ("steps", "seconds", "why"),
    [(2, 0.5, "exhausted"), (2, 0.5, "complete"), (1, 40.0, "complete"), (100, 0.4, "exhausted"), (100, 0.4, None)],
    ids=["two-steps", "two-steps-called-complete", "one-step", "ended-by-itself", "no-window-recorded"],
)
def test_a_window_that_is_not_complete_is_never_valid(
    tmp_path: Path, steps: int, seconds: float, why: str | None
) -> None:
    events, by_its_own_clock = launch(noise(steps, seconds, seed=1), why)
    bench = judged(tmp_path, events)
    assert bench.perf == pytest.approx(by_its_own_clock, rel=1e-6)
    assert (bench.validity, bench.doubts) == ("suspect", ("short",))


def test_a_system_is_not_accepted_by_windows_of_two_steps(tmp_path: Path) -> None:
    steps = [
        Recorded(bench="b", repeat=n, events=tuple(launch(noise(2, 0.5, n), "exhausted")[0]), is_complete=False)
        for n in range(5)
    ]
    criteria = parse_criteria(b"benchmarks: {b: {minimum: 1 items/s}}\n", "a.yaml")
    assert evaluate_criteria(criteria, summarise(record(tmp_path, *steps))).verdict == "INCONCLUSIVE"


@pytest.mark.parametrize("frozen", [3.0, 8.0, 10.0])
def test_a_process_that_stood_still_has_its_calm_rate_in_the_interval(tmp_path: Path, frozen: float) -> None:
    """It was 9 to 33 % slow, and `valid` in 95 of 100 cases."""
    calm = noise(300, 0.1, seed=2)
    cycles = [*calm[:120], (frozen + 0.1, 0.0), *calm[120:]]
    bench = judged(tmp_path, launch(cycles)[0], launch(noise(310, 0.1, seed=3))[0], launch(noise(310, 0.1, seed=4))[0])
    assert bench.uncertainty is not None and bench.uncertainty.high is not None and bench.perf is not None
    calm_rate = 8 * len(calm) / math.fsum(lasted for lasted, _ in calm)
    assert bench.uncertainty.high > calm_rate > bench.perf
    # 3 s of 33, in one of three launches, are 3 %.
    assert (bench.validity, bench.uncertainty.components[0].name) == ("valid" if frozen < 5 else "imprecise", "stalls")


@pytest.mark.slow
def test_more_launches_of_noise_are_not_less_precise(tmp_path: Path) -> None:
    """One of ten launches was called unsteady in 14 to 86 % of benchmarks."""
    trials = thinned(range(20), 3)
    runs = [[launch(noise(310, 0.1, seed=100 * trial + n, correlation=0.9))[0] for n in range(10)] for trial in trials]
    suspects = [
        bench
        for number, launches in enumerate(runs)
        if (bench := judged(tmp_path / str(number), *launches)).validity != "valid"
    ]
    assert len(suspects) <= len(trials) * 3 / 20, list(chain.from_iterable(bench.doubts for bench in suspects))
