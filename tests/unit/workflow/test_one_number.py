"""One rate for a launch: the display, the report, compare, history and replay say what follows from the records."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from milabench.events.model import Config, Data, Event
from milabench.events.rundir import Run, open_run
from tests.recorded_run import Recorded, data, record

Milabench = Callable[..., Any]
RUNS = Path(__file__).resolve().parents[2] / "runs"
NS = 1_000_000_000


def launch(
    *, step_s: float = 0.1, items: float = 8, gap_s: float = 0.0, pause_s: float = 0.0, steps: int = 60, **rank: Any
) -> tuple[Event, ...]:
    """Steps in epochs of ten, with a gap and a pause after each epoch; the first epoch is warm-up."""
    events: list[Event] = [Config(step="", data={"measure": {"window_steps": 40, "window_s": 2}})]
    now_ns = start_ns = 5 * NS
    for number in range(steps):
        if number == 10:
            start_ns = now_ns
        if number and number % 10 == 0:
            now_ns += int(gap_s * NS)
            if pause_s:
                span = {"name": "validation", "start_ns": now_ns, "stop_ns": now_ns + int(pause_s * NS)}
                events.append(data(task="main", pause=span))
                now_ns += int(pause_s * NS)
        lasted_ns = int(step_s * NS)
        place = {"t0_ns": now_ns, "host_ns": lasted_ns, "time": 1e9 + now_ns / NS, "clock": "host", "batch_id": number}
        observed = {"rate": items / step_s, "elapsed": step_s, "n": items, **({"warmup": True} if number < 10 else {})}
        events.append(data(task="train", units="items/s", **observed, **place, **rank))
        now_ns += lasted_ns
    window = {"start_ns": start_ns, "stop_ns": now_ns, "start": start_ns / NS, "stop": now_ns / NS, "why": "complete"}
    return (*events, data(task="train", window=window))


def written(run: Run, *steps: str) -> float:
    """The rate of some steps that are one launch, from the lines of their files and nothing of the product."""
    items, walls = 0.0, []
    for step in steps:
        lines = (run.path / f"{run.files[step]}.data").read_text().splitlines()
        found = [json.loads(line)["data"] for line in lines if '"event":"data"' in line or '"event": "data"' in line]
        windows = [one["window"] for one in found if "window" in one]
        start_ns, stop_ns = min(each["start_ns"] for each in windows), max(each["stop_ns"] for each in windows)
        pauses = [one["pause"] for one in found if "pause" in one]
        for rank in {one.get("rank", 0) for one in found if "rate" in one}:
            own = [one for one in found if "rate" in one and one.get("rank", 0) == rank and one["task"] == "train"]
            ends = [one["t0_ns"] + one["host_ns"] for one in own]
            middles = [one["t0_ns"] + one["host_ns"] // 2 for one in own]
            counted = [
                index
                for index, each in enumerate(own)
                if not each.get("warmup") and start_ns <= middles[index] <= stop_ns
            ]
            first, last = counted[0], counted[-1]
            begin = min(own[first]["t0_ns"], max(start_ns, ends[first - 1] if first else own[0]["t0_ns"]))
            paused = sum(max(0, min(ends[last], each["stop_ns"]) - max(begin, each["start_ns"])) for each in pauses)
            items += math.fsum(own[index]["n"] for index in counted)
            walls.append((ends[last] - begin - paused) / NS)
    return float(items / max(walls))


def shown(number: float) -> str:
    """A rate as a person reads it."""
    return f"{number:.1f}" if number >= 1000 else f"{number:.2f}" if number >= 10 else f"{number:.4f}"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return tmp_path / "base"


def reported(milabench: Milabench, run: Run) -> dict[tuple[str, ...], float]:
    """The number of each launch, by its steps, as the report has it."""
    report = json.loads(milabench("report", str(run.path), "--format", "json").out)
    rates = [metric for bench in report["benchmarks"] for metric in bench["metrics"] if metric["metric"] == "rate"]
    return {tuple(rate["steps"]): rate["value"] for rate in rates}


def test_the_number_of_a_run_with_gaps_and_pauses_is_the_same_everywhere(milabench: Milabench, base: Path) -> None:
    run = record(
        base,
        Recorded(bench="gaps", is_complete=False, events=launch(gap_s=0.6)),
        Recorded(bench="pauses", is_complete=False, events=launch(gap_s=0.1, pause_s=0.5)),
        name="one",
    )
    truth = {"gaps": written(run, "gaps.D0"), "pauses": written(run, "pauses.D0")}
    # 50 steps of 8 items in five epochs of a second, with 0.6 s or 0.1 s before each.
    assert truth == {"gaps": pytest.approx(400 / 8.0), "pauses": pytest.approx(400 / 5.5)}
    assert reported(milabench, run) == {(f"{name}.D0",): pytest.approx(rate, rel=1e-12) for name, rate in truth.items()}
    replayed = milabench("replay", str(run.path), "--speed", "0").err
    table = milabench("report", str(run.path)).out
    milabench("db", "add", str(run.path))
    compared = json.loads(milabench("compare", str(run.path), str(run.path), "--format", "json").out)["comparison"]
    by_name = {row["bench"]: row for row in compared["benchmarks"]}
    for name, rate in truth.items():
        assert f"{name}.D0: passed, {shown(rate)} items/s, " in replayed
        # The last line while it ran says the same: it was the rate so far.
        assert re.findall(rf"{name}.D0: .*, ([\d.]+) items/s so far", replayed)[-1:] in ([shown(rate)], [])
        assert re.search(rf"^{name} .* {shown(rate)} \| ± \? \| items/s", table, re.MULTILINE)
        assert by_name[name]["sides"][0]["value"] == pytest.approx(rate, rel=1e-12)
        (trend,) = json.loads(milabench("history", name, "--json").out)["trends"]
        assert [point["value"] for point in trend["points"]] == [pytest.approx(rate, rel=1e-12)]
        exported = milabench("report", str(run.path), "--format", "csv").out
        assert repr(reported(milabench, run)[f"{name}.D0",]) in exported
        page = milabench("report", str(run.path), "--format", "html").out
        assert shown(rate) in page


def test_a_job_has_one_number_and_each_instance_its_own(milabench: Milabench, base: Path) -> None:
    job = [
        Recorded(
            bench="job",
            tag="",
            node=node,
            method="multinode",
            group="job.R0",
            is_complete=False,
            events=(*launch(rank=2 * index), *launch(step_s=slow, rank=2 * index + 1)[1:]),
        )
        for index, (node, slow) in enumerate((("n0", 0.1), ("n1", 0.125)))
    ]
    own = [
        Recorded(bench="own", tag=f"D{i}", group="own.R0", is_complete=False, events=launch(step_s=0.1 + 0.01 * i))
        for i in range(2)
    ]
    run = record(base, *job, *own, name="job")
    ids = tuple(step.id for step in job)
    # Four ranks of 400 items; the slowest needs 6.25 s.
    assert written(run, *ids) == pytest.approx(4 * 400 / 6.25)
    numbers = reported(milabench, run)
    assert numbers == {
        ids: pytest.approx(4 * 400 / 6.25),
        ("own.D0",): pytest.approx(80.0),
        ("own.D1",): pytest.approx(written(run, "own.D1")),
    }
    replayed = milabench("replay", str(run.path), "--speed", "0").err
    assert f"{ids[0]} and 1 more: 256.00 items/s\n" in replayed
    # What is known when the last of them has ended is told then.
    assert "own.D0: 80.00 items/s\n" in replayed
    assert f"own.D1: passed, {shown(numbers['own.D1',])} items/s, " in replayed


@pytest.mark.parametrize("name", ["system_a", "system_b"])
def test_a_replay_of_a_recorded_run_ends_each_step_with_the_number_of_the_report(
    milabench: Milabench, tmp_path: Path, name: str
) -> None:
    shutil.copytree(RUNS / name, tmp_path / name)
    run = open_run(tmp_path / name)
    numbers = reported(milabench, run)
    assert len(numbers) == 12
    table = milabench("replay", str(run.path), "--speed", "0").err
    for (step,), number in numbers.items():
        if number < 1e7:
            assert re.search(rf"{re.escape(step)}: passed, {re.escape(shown(number))} .+, [\d.]+ s\n", table), step


def ended_by_itself(base: Path, name: str, *, asked: int = 40) -> Run:
    """A program that was over after two steps and 0.2 s of its window."""
    _, *events, window = launch(steps=12)
    assert isinstance(window, Data)
    early = data(task="train", window={**window.data["window"], "why": "loop-end"})
    events = [Config(step="", data={"measure": {"window_steps": asked, "window_s": 0}}), *events, early]
    return record(base, Recorded(bench="tiny", devices=(), is_complete=False, events=tuple(events)), name=name)


@pytest.mark.parametrize("asked", [2, 40])
@pytest.mark.parametrize("bound", ["1 items/s", "0.5 x reference"])
@pytest.mark.parametrize("confidence", ["none", "0.95"])
def test_a_window_of_two_steps_is_accepted_by_no_criterion(
    milabench: Milabench, base: Path, tmp_path: Path, bound: str, confidence: str, asked: int
) -> None:
    ended_by_itself(base, "tiny", asked=asked), ended_by_itself(base, "before", asked=asked)
    criteria = f"benchmarks: {{tiny: {{minimum: {bound}, confidence: {confidence}}}}}\n"
    (tmp_path / "a.yaml").write_text(criteria)
    said = milabench("accept", "tiny", "--criteria", "a.yaml", "--reference", "before")
    assert (said.code, said.out.split(":")[0]) == (8, "INCONCLUSIVE")
    # Where even a confidence could be reached, the doubt remains.
    assert ("its number is suspect (short)" in said.out) == (confidence == "none")


def test_one_launch_has_no_uncertainty(milabench: Milabench, base: Path) -> None:
    run, other = ended_by_itself(base, "tiny"), ended_by_itself(base, "other")
    (bench,) = json.loads(milabench("report", str(run.path), "--format", "json").out)["benchmarks"]
    assert (bench["validity"], bench["reasons"], bench["perf"]) == ("suspect", ["short"], pytest.approx(80.0))
    heading, _, row = milabench("report", "--full", str(run.path)).out.split("\n\n")[1].splitlines()
    cells = dict(zip(map(str.strip, heading.split("|")), map(str.strip, row.split("|")), strict=True))
    assert (cells["perf"], cells["±"], cells["std %"]) == ("80.00", "± ?", "")
    (found,) = csv.DictReader(io.StringIO(milabench("report", str(run.path), "--format", "csv").out))
    assert (found["uncertainty"], found["ci95_low"]) == ("", "")
    compared = milabench("compare", str(run.path), str(other.path)).out
    assert not re.search(r"\b0\.0+ ?%|±\d", compared), compared
