"""Energy is of the seconds that the rate counts, and a device's joules are counted once, however many steps used it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from milabench.analysis.energy_per_item import energies, joules_per_item
from milabench.analysis.summary import summarise
from milabench.events.model import Data, Event
from tests.recorded_run import Recorded, record
from tests.unit.analysis.test_throughput import asked, pause, step


def launch(pause_w: float = 400.0) -> Iterable[Event]:
    """5 s of work at 100 W, a pause of 2 s, 5 s of work: 80 items a second on one device."""
    yield asked()
    window = {"start_ns": 10**9, "stop_ns": 13 * 10**9, "start": 1001.0, "stop": 1013.0, "why": "complete"}
    yield Data(step="b", data={"task": "train", "window": window})
    yield pause("validation", 6.0, 8.0)
    yield from (step((1.0 if k < 50 else 3.0) + 0.1 * k, 0.1) for k in range(100))
    joules = 0.0
    for index in range(29):
        time = 1000.0 + 0.5 * index
        sample = {"uuid": "GPU-1", "energy_J": joules, "memory": [1, 2], "load": 1.0}
        yield Data(step="b", data={"task": "main", "gpudata": {"0": sample}, "time": time})
        joules += 0.5 * (pause_w if 1006.0 <= time < 1008.0 else 100.0)


def test_the_energy_of_a_pause_is_in_no_item(tmp_path: Path) -> None:
    (bench,) = summarise(record(tmp_path, Recorded(events=tuple(launch())))).benchmarks
    (process,) = bench.processes
    assert process.throughput.value == pytest.approx(80)
    # By items a second that is 100 W, not the 150 W of the window.
    assert joules_per_item(process, energies(bench)) == pytest.approx(1000 / 800)
    assert bench.energy_j == pytest.approx(1000)


def test_three_instances_on_one_device_share_its_joules(tmp_path: Path) -> None:
    steps = [Recorded(tag=f"D0.{index}", events=tuple(launch())) for index in range(3)]
    (bench,) = summarise(record(tmp_path, *steps)).benchmarks
    shares = [joules_per_item(process, energies(bench)) for process in bench.processes]
    assert shares == [pytest.approx(1000 / 3 / 800)] * 3
    assert bench.energy_j == pytest.approx(1000)


def test_launches_one_after_the_other_share_nothing(tmp_path: Path) -> None:
    steps = [Recorded(repeat=index, events=tuple(launch())) for index in range(3)]
    (bench,) = summarise(record(tmp_path, *steps)).benchmarks
    assert [joules_per_item(process, energies(bench)) for process in bench.processes] == [pytest.approx(1.25)] * 3
