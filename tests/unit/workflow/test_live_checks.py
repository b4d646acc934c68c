"""The records of a step that has ended, read while others go on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from milabench.events.model import Config, Line
from milabench.plan.model import Plan, Step
from milabench.workflow import live_checks
from milabench.workflow.live_checks import LiveChecks
from tests.recorded_run import Recorded, record

METRICS = {"speed": {"pattern": r"speed (\d+)", "direction": "higher"}, "gone": {"pattern": "gone (\\d+)"}}


def read_by(tmp_path: Path, *lines: str) -> tuple[LiveChecks, Step]:
    """The checks of a recorded run of one step that printed these lines."""
    events = (
        Config(step="", data={"metrics": METRICS}),
        *(Line(step="", t=1.0, text=f"{line}\n", pipe="stdout") for line in lines),
    )
    recorded = Recorded(events=events)
    run = record(tmp_path, recorded)
    step = Step(
        id=recorded.id,
        bench="digits",
        phase="run",
        argv=("true",),
        config={"metrics": METRICS},
        stem=run.stem(recorded.id),
    )
    return LiveChecks(Plan(phase="run", steps=(step,)), run.path), step


def test_others_go_on_while_the_log_of_a_step_is_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_checks, "TURN_S", 0.0)
    checks, step = read_by(tmp_path, "speed 1", "speed 2")

    async def run() -> tuple[int, str]:
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        beside = asyncio.create_task(others())
        missing = await checks.missing_metrics(step, 1)
        beside.cancel()
        return turns, missing

    turns, missing = asyncio.run(run())
    assert turns > 2
    assert missing.startswith("metric gone: no line of the output matched")


def test_a_log_that_was_searched_is_not_read_again_to_be_shown(tmp_path: Path) -> None:
    checks, step = read_by(tmp_path, "speed 1", "gone 2")
    assert asyncio.run(checks.missing_metrics(step, 1)) == ""
    (checks._path / f"{step.stem}.data").unlink()
    measured = checks.measured(step.id, 1)
    assert measured is not None
    assert measured.throughput is not None
    assert measured.throughput.value == 1.0


def test_a_step_without_metrics_is_not_read_before_it_is_shown(tmp_path: Path) -> None:
    checks, step = read_by(tmp_path, "speed 1")
    (checks._path / f"{step.stem}.data").unlink()
    bare = Step(id=step.id, bench="digits", phase="run", argv=("true",), stem=step.stem)
    assert asyncio.run(checks.missing_metrics(bare, 1)) == ""
