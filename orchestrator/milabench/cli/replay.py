"""`milabench replay`: the view of a run again, from its records."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from milabench.cli.options import display_option

if TYPE_CHECKING:
    from milabench.display.selection import Display
    from milabench.events.model import Event
    from milabench.events.rundir import Run
    from milabench.plan.model import Plan


@click.command("replay", help="Show a run again as it went on, from its records. Default: the latest run.")
@click.argument("run", required=False)
@click.option("--base", type=click.Path(path_type=Path), envvar="MILABENCH_BASE", help="Default: ./results.")
@click.option(
    "--speed", type=click.FloatRange(0), default=10.0, show_default=True, help="Times as fast as it was; 0: at once."
)
@click.option("-v", "--verbose", is_flag=True, help="Show what the steps said, too.")
@display_option
def command(run: str | None, base: Path | None, speed: float, verbose: bool, display: str) -> int:
    """Hand the command line's values on; see the help text above."""
    from milabench.display.selection import choose_display
    from milabench.workflow.run_lookup import resolve_run

    found = resolve_run(base, run).run
    tape = ReplayClock(speed)
    shown = choose_display(display, sys.stderr, is_verbose=verbose, clock=tape.now)
    try:
        play(found, shown, tape.reach)
    finally:
        shown.close()
    return 0


class ReplayClock:
    """The clock of a replay: at the times of the records, which come `speed` times as fast as they did."""

    def __init__(self, speed: float, sleep: Callable[[float], object] = time.sleep) -> None:
        self._speed = speed
        self._sleep = sleep
        self._first = self._now = 0.0

    def now(self) -> float:
        """The time that is shown, in seconds since the first record."""
        return self._now - self._first

    def reach(self, t: float | None) -> None:
        """Wait until this record's turn; nothing for one without a time, and where the clock jumped back."""
        if t is None or t <= self._now:
            return
        if not self._now:
            self._first = t
        elif self._speed:
            self._sleep((t - self._now) / self._speed)
        self._now = t


def play(run: Run, shown: Display, reach: Callable[[float | None], None]) -> None:
    """Hand the events of a run to a display; last, how those ended that left no records."""
    from milabench.events.attempts import attempts, last_word
    from milabench.events.model import End
    from milabench.events.replay import replay

    began = [entry.get("t") for entry in run.journal[:1]]
    reach(began[0] if began and isinstance(began[0], int | float) else None)
    shown.on_plan(plan_of(run))
    ended: set[str] = set()
    for event in replay(run):
        reach(event.t)
        show_event(event, shown)
        if isinstance(event, End):
            ended.add(event.step)
    for step, tried in attempts(run.journal).items():
        last = last_word(tried)
        if last is not None and step not in ended:
            shown.on_end(step, last.outcome or "missing", last.detail)
    for step in run.files.keys() - ended - attempts(run.journal).keys():
        shown.on_end(step, "missing", "did not start")


def show_event(event: Event, shown: Display) -> None:
    """One event, for a display."""
    from milabench.events.model import Data, End, Line, Start
    from milabench.events.wire import encode

    match event:
        case Start():
            shown.on_start(event.step)
        case Data(data={"rate": _}) | Data(data={"progress": _}):
            shown.on_progress(event.step, observation_progress(event.data))
        case Line():
            shown.on_line(event.step, encode(event))
        case End():
            told = ": ".join(part for part in (event.why or "", event.detail) if part)
            shown.on_end(event.step, event.outcome, "" if event.outcome == "passed" else told)
        case _:
            pass


def observation_progress(data: Mapping[str, Any]) -> dict[str, Any]:
    """What a display shows of an observation."""
    return {key: data[key] for key in ("task", "rate", "units", "progress") if data.get(key) is not None}


def plan_of(run: Run) -> Plan:
    """As much of a run's plan as a display needs."""
    from milabench.analysis.step_results import planned_steps
    from milabench.events.json_access import as_mapping
    from milabench.plan.model import Plan, SkippedBench, Step

    skipped = as_mapping(run.manifest.get("plan")).get("skipped")
    return Plan(
        phase="prepare" if run.phase == "prepare" else "install" if run.phase == "install" else "run",
        steps=tuple(Step(id=each.id, bench=each.bench, phase="run", argv=()) for each in planned_steps(run)),
        skipped=tuple(
            SkippedBench(bench=str(as_mapping(each).get("bench")), why=str(as_mapping(each).get("why")))
            for each in (skipped if isinstance(skipped, list) else ())
        ),
    )
