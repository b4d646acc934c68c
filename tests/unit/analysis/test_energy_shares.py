"""Energy is of the seconds that the rate counts, and a device's joules are counted once, however many steps used it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from milabench.analysis.compare import compare_systems
from milabench.analysis.comparison_model import System
from milabench.analysis.energy_per_item import energies, joules_per_item
from milabench.analysis.summary import summarise
from milabench.events.model import Config, Data, Event
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


MEASURE = {"measure": {"window_steps": 1, "window_s": 0.0}}


def pair(client: Iterable[Event], server: Iterable[Event], number: int = 0) -> list[Recorded]:
    """A server that is up from 60 s before its client's window until 60 s after it, and the client."""
    peer = {"step": f"digits.D{number}.server", "node": "local"}
    roles: list[Mapping[str, Any]] = [{"role": "server"}, {"role": "client", "server": peer}]
    return [
        Recorded(tag=f"D{number}.{role['role']}", config=role, events=(Config(step="b", data=role | MEASURE), *rest))
        for role, rest in zip(roles, (server, tuple(client)[1:]), strict=True)
    ]


def powered(uuid: str, watts: float = 100.0) -> Iterable[Event]:
    for time in range(940, 1075):
        yield Data(step="b", data={"task": "main", "gpudata": {"0": {"uuid": uuid, "power_W": watts}}, "time": time})


@pytest.mark.parametrize(
    ("reads", "watts"), [("GPU-1", 100), ("GPU-2", 150)], ids=["one device", "a device of its own"]
)
def test_the_joules_of_a_server_are_those_of_its_client_in_the_seconds_that_it_counts(
    tmp_path: Path, reads: str, watts: float
) -> None:
    """A server on the client's device adds nothing; on one of 50 W it adds that, not what it took before and after."""
    server = tuple(powered(reads, 100.0 if reads == "GPU-1" else 50.0))
    (bench,) = summarise(record(tmp_path, *pair(tuple(launch()), server))).benchmarks
    (process,) = bench.processes
    assert joules_per_item(process, energies(bench)) == pytest.approx(watts / 80)
    assert bench.energy_j == pytest.approx(10 * watts)


def test_two_pairs_of_server_and_client_on_one_device_share_it(tmp_path: Path) -> None:
    steps = [step for n in range(2) for step in pair(tuple(launch()), tuple(powered("GPU-1")), n)]
    (bench,) = summarise(record(tmp_path, *steps)).benchmarks
    assert [joules_per_item(each, energies(bench)) for each in bench.processes] == [pytest.approx(0.625)] * 2
    assert bench.energy_j == pytest.approx(1000)


def test_the_energy_of_a_server_without_readings_for_the_clients_seconds_is_not_known(tmp_path: Path) -> None:
    server = tuple(powered("GPU-2"))[:30]
    (bench,) = summarise(record(tmp_path, *pair(tuple(launch()), server))).benchmarks
    assert (bench.energy_j, energies(bench).get("digits.D0.client")) == (None, None)


def test_three_instances_on_a_device_of_100_w_are_100_w_in_the_mix(tmp_path: Path) -> None:
    steps = [
        Recorded(tag=f"D0.{index}", repeat=repeat, events=tuple(launch())) for repeat in range(3) for index in range(3)
    ]
    summary = summarise(record(tmp_path, *steps))
    mixes = compare_systems([System(name=name, summary=summary) for name in ("old", "new")]).job_mix
    assert len(mixes) == 2
    for mix in mixes:
        assert mix.energy_kwh is not None
        assert mix.energy_from == "measured"
        assert mix.energy_kwh * 1000 / mix.time_h == pytest.approx(100)
