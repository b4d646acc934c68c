"""Replays a recorded run on a display."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from milabench.analysis.step_results import planned_steps
from milabench.display.base import Display
from milabench.events.attempts import attempts, last_word
from milabench.events.json_access import as_mapping
from milabench.events.model import Data, End, Event, Line, Start
from milabench.events.replay import replay
from milabench.events.rundir import Run
from milabench.events.wire import encode
from milabench.plan.model import Plan, SkippedBench, Step
from milabench.workflow.session import Reporter


def replay_run(run: Run, reporter: Reporter, *, speed: float = 10.0, is_verbose: bool = False) -> None:
    """Show a run from its records; `speed` is the playback speed, 0 for no delay."""
    clock = ReplayClock(speed)
    display = reporter.open_display(is_verbose=is_verbose, clock=clock.now)
    try:
        play(run, display, clock.reach)
    finally:
        display.close()


class ReplayClock:
    """The clock of a replay, at the times of the records; it runs at `speed` times the recorded speed."""

    def __init__(self, speed: float, sleep: Callable[[float], object] = time.sleep) -> None:
        self._speed = speed
        self._sleep = sleep
        self._first = self._now = 0.0

    def now(self) -> float:
        """Return the time that is shown, in seconds since the first record."""
        return self._now - self._first

    def reach(self, t: float | None) -> None:
        """Wait until the time of a record; not for one without a time, nor where the clock jumped back."""
        if t is None or t <= self._now:
            return
        if not self._now:
            self._first = t
        elif self._speed:
            self._sleep((t - self._now) / self._speed)
        self._now = t


def play(run: Run, display: Display, reach: Callable[[float | None], None]) -> None:
    """Pass the events of a run to a display; last, the ends of steps without records."""
    began = run.journal[0].get("t") if run.journal else None
    reach(began if isinstance(began, int | float) else None)
    display.on_plan(plan_of(run))
    ended: set[str] = set()
    for event in replay(run):
        reach(event.t)
        show_event(event, display)
        if isinstance(event, End):
            ended.add(event.step)
    by_step = attempts(run.journal)
    for step, tried in by_step.items():
        last = last_word(tried)
        if last is not None and step not in ended:
            display.on_end(step, last.outcome or "missing", last.detail)
    for step in run.files.keys() - ended - by_step.keys():
        display.on_end(step, "missing", "did not start")


def show_event(event: Event, display: Display) -> None:
    """Pass one event to a display."""
    match event:
        case Start():
            display.on_start(event.step)
        case Data(data={"rate": _}) | Data(data={"progress": _}):
            display.on_progress(event.step, observation_progress(event.data))
        case Line():
            display.on_line(event.step, encode(event))
        case End():
            reason = ": ".join(part for part in (event.why or "", event.detail) if part)
            display.on_end(event.step, event.outcome, "" if event.outcome == "passed" else reason)
        case _:
            pass


def observation_progress(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the progress that a display shows for an observation."""
    return {key: data[key] for key in ("task", "rate", "units", "progress") if data.get(key) is not None}


def plan_of(run: Run) -> Plan:
    """Return as much of a run's plan as a display needs."""
    skipped = as_mapping(run.manifest.get("plan")).get("skipped")
    return Plan(
        phase="prepare" if run.phase == "prepare" else "install" if run.phase == "install" else "run",
        steps=tuple(Step(id=step.id, bench=step.bench, phase="run", argv=()) for step in planned_steps(run)),
        skipped=tuple(
            SkippedBench(bench=str(as_mapping(entry).get("bench")), why=str(as_mapping(entry).get("why")))
            for entry in (skipped if isinstance(skipped, list) else ())
        ),
    )
