"""Shows a run that another process carries out, as it goes on: from its journal and records alone, also from another machine."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from milabench.cli.logs import LOOK_EVERY_S
from milabench.cli.replay import observation_progress, plan_of
from milabench.display.selection import Display, choose_display
from milabench.events.model import Data
from milabench.events.rundir import JOURNAL, Run, open_run
from milabench.events.tail import Appended
from milabench.events.wire import decode, parse_object
from milabench.execute.interrupts import interrupts
from milabench.execute.run_lock import Orchestrator, holder_of

_LATEST = 1 << 16  # bytes of a step's records that are looked at when it is under way already

Ending = Literal["ended", "died", "left"]
"""Why a view ended: the orchestrator came to its end; it is gone without; or we were asked to end, and it goes on."""


def follow(path: Path, whom: Orchestrator, *, display: str) -> Ending:
    """Show a run until this orchestrator of it has ended, however that was, or we are asked to end."""
    asked: list[None] = []
    run, clock = open_run(path), JournalClock()
    clock.reach(run.journal[0].get("t") if run.journal else None)
    with (
        interrupts().heard_by(lambda: asked.append(None)),
        contextlib.closing(choose_display(display, sys.stderr, clock=clock.now)) as shown,
    ):
        view = RunView(run, shown, clock)
        while not asked:
            holder = holder_of(path)  # before looking: what was written until then is read
            view.look()
            if view.ended == whom.marker:
                return "ended"
            if holder is None or holder.marker != whom.marker:
                return "died"
            time.sleep(LOOK_EVERY_S)
    return "left"


class JournalClock:
    """The time that is shown, in unix seconds: that of the journal's entry that is told, else the present. It never goes back."""

    def __init__(self) -> None:
        self._latest = 0.0
        self._is_past = False

    def reach(self, t: object) -> None:
        """Stand at the time of an entry, where it has one."""
        self._is_past = True
        if isinstance(t, int | float):
            self._latest = max(self._latest, t)

    def go_on(self) -> None:
        """Be the present again."""
        self._is_past = False

    def now(self) -> float:
        """For a display."""
        if not self._is_past:
            self._latest = max(self._latest, time.time())
        return self._latest


class RunView:
    """Tells a display what was written since the last look; `ended` is the marker of the last orchestrator that ended."""

    def __init__(self, run: Run, shown: Display, clock: JournalClock) -> None:
        self.ended = ""
        self._run = run
        self._shown = shown
        self._clock = clock
        self._marker = ""
        self._journal = Appended(run.path / JOURNAL)
        self._records: dict[str, Appended] = {}
        self._is_current = False
        shown.on_plan(plan_of(run))

    def look(self) -> None:
        """Tell what is new, and how far the steps are that run."""
        for line in self._journal.lines():
            with contextlib.suppress(ValueError):  # cut off by a crash; the entry after it says where the run went on
                entry = parse_object(line)
                self._clock.reach(entry.get("t"))
                self._tell(entry)
        self._clock.go_on()
        self._is_current = True
        for step in self._records:
            self._tell_progress(step)
        self._shown.tick()

    def _tell(self, entry: Mapping[str, Any]) -> None:
        match entry:
            case {"run": "started"}:
                self._marker = str(entry.get("marker"))
            case {"run": "ended"}:
                self.ended = self._marker
            case {"step": str(step), "state": "planned"} if step not in self._run.files:  # beyond a pilot
                self._run = open_run(self._run.path)
                self._shown.on_plan(replace(plan_of(self._run), skipped=()))
            case {"step": str(step), "state": "started"}:
                self._shown.on_start(step)
                self._records[step] = self._latest_records(step, entry.get("attempt"))
            case {"step": str(step), "state": "ended", "outcome": str(outcome)}:
                if self._is_current and step in self._records:
                    self._tell_progress(step)
                self._records.pop(step, None)
                told = (entry.get("why"), entry.get("detail"))
                self._shown.on_end(step, outcome, ": ".join(str(part) for part in told if part))
            case _:
                pass

    def _latest_records(self, step: str, attempt: object) -> Appended:
        path = self._run.path / f"{self._run.stem(step, attempt if isinstance(attempt, int) else 1)}.data"
        try:
            size = path.stat().st_size
        except OSError:
            size = 0
        return Appended(path, start=max(0, size - _LATEST))

    def _tell_progress(self, step: str) -> None:
        """The latest rate and progress of a step, if there are new ones; the display shows no others."""
        found: dict[str, Any] = {}
        for line in reversed(self._records[step].lines()):
            if b'"rate"' not in line and b'"progress"' not in line:
                continue
            with contextlib.suppress(ValueError):
                event = decode(line, step)
                if isinstance(event, Data):
                    found = {**observation_progress(event.data), **found}
            if "rate" in found and "progress" in found:
                break
        if found:
            self._shown.on_progress(step, found)
