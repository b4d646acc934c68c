"""Overlap of windows, reasons for doubt, and checks on the way through a step's records."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from milabench.analysis.measure import Measurement
from milabench.analysis.summary import summarise
from milabench.analysis.windows import overlap
from milabench.checks.check import StepContext
from milabench.checks.registry import NAMES, checks_for
from milabench.events.model import Data, Verdict
from milabench.events.rundir import open_run
from tests.recorded_run import Recorded, rates, record


@pytest.mark.parametrize(
    ("windows", "share"),
    [
        ([(0, 10), (0, 10)], 1.0),
        ([(0, 10), (5, 15)], 5 / 15),
        ([(0, 10), (1, 9), (0, 8)], 7 / 10),
        ([(0, 4), (6, 10)], 0.0),
    ],
)
def test_overlap_is_the_intersection_over_the_union(windows: list[tuple[float, float]], share: float) -> None:
    assert overlap(windows) == pytest.approx(share)


def test_overlap_is_unknown_without_every_window() -> None:
    assert overlap([(0, 1), None]) is None
    assert overlap([(0, 1)]) is None


def beside(start: float, stop: float) -> Data:
    told = {"start_ns": 0, "stop_ns": 10**12, "start": start, "stop": stop, "why": "complete"}
    return Data(step="s", data={"task": "train", "window": told})


def test_instances_that_did_not_measure_together_are_suspect(tmp_path: Path) -> None:
    steps = [Recorded(tag=f"D{n}", events=(*rates(5.0), beside(n, 10 + n))) for n in range(2)]
    (bench,) = summarise(record(tmp_path, *steps)).benchmarks
    assert bench.overlap == pytest.approx(9 / 11)
    assert (bench.validity, bench.doubts) == ("suspect", ("overlap",))


def test_the_steps_of_one_job_have_to_measure_together_too(tmp_path: Path) -> None:
    steps = [
        Recorded(tag=f"{n}", method="multigpu", events=(*rates(5.0, rank=n), beside(5 * n, 10 + 5 * n)))
        for n in range(2)
    ]
    (bench,) = summarise(record(tmp_path, *steps)).benchmarks
    assert bench.overlap == pytest.approx(5 / 15)
    assert bench.doubts == ("overlap",)


@pytest.mark.parametrize(("clocks", "share"), [({"n0": 0.0, "n1": 100.0}, 9 / 11), ({"n0": 0.0}, None)])
def test_instances_that_were_released_together_overlap_by_one_clock(
    tmp_path: Path, clocks: dict[str, float], share: float | None
) -> None:
    """The second node's clock is 100 s ahead; a node that did not tell its clock is left to itself."""
    nodes = [("n0", 0.0), ("n1", 101.0)]
    steps = [
        Recorded(tag=f"D{k}", node=node, events=(*rates(5.0), beside(at, at + 10)))
        for k, (node, at) in enumerate(nodes)
    ]
    path = record(tmp_path, *steps).path
    told = {node: {"ahead_s": ahead} for node, ahead in clocks.items()}
    entry = {"group": "digits", "state": "released", "clocks": told, "steps": {step.id: step.node for step in steps}}
    with (path / "journal.jsonl").open("a") as file:
        file.write(json.dumps(entry) + "\n")
    (bench,) = summarise(open_run(path)).benchmarks
    assert bench.overlap == (None if share is None else pytest.approx(share))


def test_checks_see_the_records_and_are_told_step_by_step(tmp_path: Path) -> None:
    hot = [Data(step="s", data={"gpudata": {"0": {"throttle": ["hw_thermal"]}}, "time": time}) for time in (5.0, 5.1)]
    run = record(tmp_path, Recorded(events=(*rates(5.0), *hot)))
    (bench,) = summarise(run, lambda step: checks_for(StepContext(step=step), NAMES, {})).benchmarks
    assert bench.doubts == ("throttled",)
    said = {one["check"]: one["verdict"] for one in bench.validations}
    assert said["throttle"] == "fail"
    assert said["error"] == "pass"
    assert bench.to_json()["validations"][0]["step"]


@pytest.mark.parametrize(
    ("clocks", "validity", "doubts"),
    [((2000, 1200), "imprecise", ()), ((2000, 1900), "valid", ()), ((1200, 1200), "suspect", ("throttled",))],
)
def test_throttling_is_a_component_where_clocks_bound_it(
    tmp_path: Path, clocks: tuple[int, int], validity: str, doubts: tuple[str, ...]
) -> None:
    """A fifth of the window is hot: by two fifths of the clock that is 8 %; by a twentieth 1 %."""

    def reading(number: int) -> Data:
        is_hot = number % 5 == 0 or len(set(clocks)) == 1
        read = {"sm_clock_MHz": clocks[is_hot], "throttle": ["hw_thermal"] if is_hot else []}
        return Data(step="s", data={"gpudata": {"0": read}, "time": 5.0 + number / 10})

    events = (*rates(*[5.0] * 9), *map(reading, range(10)))
    run = record(
        tmp_path, *(Recorded(repeat=k, events=events) for k in range(3)), manifest={"aim": {"precision": 0.03}}
    )
    (bench,) = summarise(run, lambda step: checks_for(StepContext(step=step), ["throttle"], {})).benchmarks
    assert (bench.validity, bench.doubts) == (validity, doubts)
    sizes = {part.name: part.size for part in bench.uncertainty.components} if bench.uncertainty else {}
    lost = 0.2 * (1 - clocks[1] / clocks[0])
    assert sizes.get("throttling", 0.0) == pytest.approx(1 / (1 - lost) - 1)


def test_energy_is_that_of_the_window(tmp_path: Path) -> None:
    samples = [
        Data(step="s", data={"gpudata": {"0": {"energy_J": 100.0 * t}, "1": {"power_W": 50.0}}, "time": float(t)})
        for t in range(21)
    ]
    run = record(tmp_path, Recorded(events=(*rates(5.0), *samples, beside(5, 15))))
    (bench,) = summarise(run).benchmarks
    assert bench.energy_j == pytest.approx(100 + 50)  # of the one second that an observation counts


def test_replicates_on_different_nodes_are_doubtful_and_are_still_one_instance(tmp_path: Path) -> None:
    def steps(*nodes: str) -> list[Recorded]:
        return [Recorded(repeat=number, node=node, events=rates(5.0)) for number, node in enumerate(nodes)]

    (same,) = summarise(record(tmp_path / "same", *steps("n1", "n1", "n1"))).benchmarks
    (apart,) = summarise(record(tmp_path / "apart", *steps("n1", "n2", "n3"))).benchmarks
    assert ("nodes-differ" in same.doubts, "nodes-differ" in apart.doubts) == (False, True)
    assert (apart.instances, apart.replicates, apart.score) == (1, 3, same.score)


def test_every_replicate_on_the_same_nodes_is_no_doubt_for_doubt(tmp_path: Path) -> None:
    steps = [Recorded(repeat=number, node=node, events=rates(5.0)) for number in range(3) for node in ("n1", "n2")]
    failed = replace(steps[-1], outcome="failed", events=())
    (bench,) = summarise(record(tmp_path, *steps[:-1], failed)).benchmarks
    assert "nodes-differ" not in bench.doubts
    assert bench.instances == 2


class OthersTook:
    """Stands for the check of the host, which has read what others took of the processors, as a share."""

    component = "others"

    def __init__(self, step: str, share: float) -> None:
        self.step, self.share = step, share

    def verdict(self, _: Measurement) -> Verdict:
        """Return what was read."""
        return Verdict(step=self.step, check="contended", verdict="warn", numbers={"slowed": self.share})

    def doubt_for(self, verdict: Verdict) -> str | None:
        """Return nothing: it has a size."""


@pytest.mark.parametrize(
    ("launches", "manifest", "counted"),
    [
        (4, {"aim": {"precision": 0.05}}, 3),
        (3, {"aim": {"precision": 0.05}}, 3),  # two others are too few
        (4, {"aim": {"precision": 0.4}}, 4),
        (4, {}, 4),  # nothing was measured again
        (4, {"aim": {"precision": 0.05}, "ab": {"pairs": {}}}, 4),
    ],
)
def test_a_launch_that_others_disturbed_is_in_the_records_and_not_in_the_number(
    tmp_path: Path, launches: int, manifest: dict[str, Any], counted: int
) -> None:
    steps = [Recorded(repeat=k, events=rates(*[rate] * 9)) for k, rate in enumerate((100.0, 70.0, 100.0, 100.0))]
    run = record(tmp_path, *steps[:launches], manifest=manifest)
    (bench,) = summarise(run, lambda step: [OthersTook(step, 0.3 if step.endswith("R1") else 0.0)]).benchmarks
    said = "digits.D0.R1: others may have taken 30%: measured again, and not in the number"
    assert (bench.replicates, bench.counts["passed"]) == (counted, launches)
    assert (said in bench.messages) == (counted < launches) == (bench.perf == pytest.approx(100.0))
    assert any(each["step"] == "digits.D0.R1" for each in bench.metrics)
