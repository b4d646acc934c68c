"""The view of a run that another process executes, update by update."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from milabench.display.base import Display
from milabench.events.run_writer import RunWriter
from milabench.events.rundir import open_run
from milabench.following.run_view import JournalClock, RunView
from milabench.plan.model import Plan


class RecordingDisplay(Display):
    """Keeps the calls since it was last asked."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def on_plan(self, plan: Plan) -> None:
        self.calls.append(("plan", *(step.id for step in plan.steps)))

    def on_start(self, step: str) -> None:
        self.calls.append(("start", step))

    def on_progress(self, step: str, last: Mapping[str, Any]) -> None:
        self.calls.append(("progress", step, dict(last)))

    def on_end(self, step: str, outcome: str, reason: str, number: str = "") -> None:
        self.calls.append(("end", step, outcome, reason, number))

    def since(self) -> list[tuple[object, ...]]:
        calls, self.calls = self.calls, []
        return calls


def step_record(second: float, items: float = 10, *, lasted_s: float = 0.5, warmup: bool = False) -> bytes:
    """A step that began at a second."""
    about = {
        "task": "train",
        "rate": items / lasted_s,
        "elapsed": lasted_s,
        "n": items,
        "units": "items/s",
        "clock": "host",
    }
    place = {"t0_ns": int(second * 1e9), "host_ns": int(lasted_s * 1e9), "time": second, "batch_id": 1}
    return record(**about, **place, **({"warmup": True} if warmup else {}))


def record(**data: object) -> bytes:
    return json.dumps({"event": "data", "data": data, "pipe": "data", "t": 5.0}).encode() + b"\n"


def plan(*ids: str) -> dict[str, Any]:
    return {
        "phase": "run",
        "plan": {"steps": [{"id": name, "bench": name} for name in ids]},
        "files": {name: name for name in ids},
    }


@pytest.fixture
def writer(tmp_path: Path) -> RunWriter:
    writer = RunWriter(tmp_path)
    writer.write_manifest(plan("a", "b"))
    writer.journal({"run": "started", "marker": "first"})
    return writer


def started(step: str, attempt: int = 1) -> dict[str, object]:
    return {"step": step, "attempt": attempt, "state": "started"}


def ended(step: str, outcome: str, attempt: int = 1, **more: str) -> dict[str, object]:
    return {"step": step, "attempt": attempt, "state": "ended", "outcome": outcome, **more}


def test_each_update_shows_what_is_new(writer: RunWriter) -> None:
    display = RecordingDisplay()
    view = RunView(open_run(writer.path), display, JournalClock())
    view.update()
    assert display.since() == [("plan", "a", "b")]
    writer.journal(started("a"))
    writer.append("a", record(task="train", progress=[1, 9]) + step_record(0, 90, warmup=True))
    view.update()
    latest = {"task": "train", "rate": 180.0, "units": "items/s", "is_warmup": True, "progress": [1, 9]}
    assert display.since() == [("start", "a"), ("progress", "a", latest)]
    # The window: from the end of the warm-up at 0.5 s on, with the gaps that a rate within steps would leave out.
    writer.append("a", step_record(1) + step_record(2) + b'{"event":"data","data":{"ra')
    view.update()
    latest |= {"rate": 10.0, "is_warmup": False}
    assert display.since() == [("progress", "a", latest)]
    view.update()
    assert display.since() == []
    writer.append("a", b'te":null}}\n' + step_record(3) + step_record(5))
    view.update()
    latest["rate"] = 8.0
    assert display.since() == [("progress", "a", latest)]
    pause = {"name": "validation", "start_ns": int(3.5e9), "stop_ns": int(5e9)}
    writer.append("a", record(task="main", pause=pause))
    view.update()
    latest["rate"] = pytest.approx(40 / 3.5)
    assert display.since() == [("progress", "a", latest)]
    writer.journal(ended("a", "failed", why="exit", detail="exit code 3"))
    view.update()
    assert display.since() == [("end", "a", "failed", "exit: exit code 3", "")]


def test_the_point_in_hand_of_a_sweep_is_shown_and_nothing_of_its_other_records(writer: RunWriter) -> None:
    display = RecordingDisplay()
    view = RunView(open_run(writer.path), display, JournalClock())
    writer.journal(started("a"))
    writer.append("a", record(progress=[1, 7], case="concurrency=1") + record(metric="kv_cache", value=1, case="x"))
    view.update()
    assert display.since()[-1] == ("progress", "a", {"progress": [1, 7], "case": "concurrency=1"})
    writer.append("a", record(request={"point": "concurrency=1"}) + record(progress=[2, 7], case="concurrency=2"))
    view.update()
    assert display.since() == [("progress", "a", {"progress": [2, 7], "case": "concurrency=2"})]


def test_of_an_ended_step_only_the_end_is_shown_and_of_a_running_one_its_progress(writer: RunWriter) -> None:
    for step in "ab":
        writer.journal(started(step))
        writer.append(step, b"x" * 100_000 + b"\n" + record(progress=[8, 9]))
    writer.journal(ended("a", "passed"))
    display = RecordingDisplay()
    RunView(open_run(writer.path), display, JournalClock()).update()
    assert display.since() == [
        ("plan", "a", "b"),
        ("start", "a"),
        ("start", "b"),
        ("end", "a", "passed", "", ""),
        ("progress", "b", {"progress": [8, 9]}),
    ]


def test_a_step_that_ends_while_it_is_watched_ends_with_its_number_and_one_before_is_not_read(
    writer: RunWriter,
) -> None:
    window = record(task="train", window={"start_ns": 0, "stop_ns": 4 * 10**9, "why": "complete"})
    for step in "ab":
        writer.journal(started(step))
        writer.append(step, step_record(0, warmup=True) + step_record(1) + step_record(2.5) + window)
    writer.journal(ended("a", "passed"))
    display = RecordingDisplay()
    view = RunView(open_run(writer.path), display, JournalClock())
    view.update()
    assert ("end", "a", "passed", "", "") in display.since()
    writer.journal(ended("b", "passed"))
    view.update()
    # 20 items from the end of the warm-up, at 0.5 s, to 3 s.
    assert display.since() == [("end", "b", "passed", "", "8.0000 items/s")]


def test_a_later_attempt_is_followed_in_its_own_file(writer: RunWriter) -> None:
    display = RecordingDisplay()
    view = RunView(open_run(writer.path), display, JournalClock())
    writer.journal_all([started("a"), ended("a", "failed"), started("a", 2)])
    writer.append("a~2", record(progress=[1, 2]))
    view.update()
    assert display.since()[-1] == ("progress", "a", {"progress": [1, 2]})


def test_an_extended_plan_is_shown_again(writer: RunWriter) -> None:
    display = RecordingDisplay()
    view = RunView(open_run(writer.path), display, JournalClock())
    view.update()
    display.since()
    writer.write_manifest(plan("a", "b", "c", "d"))
    writer.journal_all([{"step": step, "attempt": 1, "state": "planned"} for step in "cd"])
    view.update()
    assert display.since() == [("plan", "a", "b", "c", "d")]


def test_the_end_of_a_run_is_that_of_the_orchestrator_that_began_last(writer: RunWriter) -> None:
    view = RunView(open_run(writer.path), Display(), JournalClock())
    writer.journal({"run": "ended", "verdict": "failed"})
    writer.journal({"run": "started", "marker": "second"})
    view.update()
    assert view.ended == "first"
    writer.journal({"run": "ended", "verdict": "passed"})
    view.update()
    assert view.ended == "second"


def test_the_clock_is_that_of_the_entries_and_never_goes_back() -> None:
    clock = JournalClock()
    clock.reach(100.0)
    clock.reach(None)
    clock.reach(40.0)
    assert clock.now() == 100.0
    clock.go_on()
    assert clock.now() > 1e9
