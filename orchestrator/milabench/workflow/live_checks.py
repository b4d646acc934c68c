"""Judges the steps of a run while it goes on, from their records."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from milabench.errors import RecordError
from milabench.events.rundir import attempt_stem, open_run, read_batches
from milabench.execute.api import Ended, Passed, Progress
from milabench.plan.model import Plan

if TYPE_CHECKING:
    from milabench.workflow.run_checks import RunChecks


READERS = ("milabench.workflow.run_checks", "milabench.workflow.summaries", "milabench.analysis.summary")
SWITCH_S = 0.0005


class LiveChecks:
    """Says what checks find as soon as a group of steps is over: from its records, while nothing is being measured."""

    def __init__(self, plan: Plan, path: Path, say: Callable[[str], object]) -> None:
        self._groups: dict[str, tuple[str, ...]] = {}
        self._stems: dict[str, str] = {}
        self._checks: RunChecks | None = None
        self.on_plan(plan)
        self._path = path
        self._say = say
        self._ended: dict[str, Ended] = {}

    def on_plan(self, plan: Plan) -> None:
        """Learn which steps belong together, of the plan or of what is done beyond it."""
        self._groups |= {step.id: tuple(other.id for other in group) for group in plan.groups() for step in group}
        self._stems |= {step.id: step.stem or step.id for step in plan.steps}
        self._checks = None  # the manifest has changed

    def on_progress(self, progress: Progress) -> None:
        """Take the end of a step into account."""
        if not isinstance(progress, Ended):
            return
        self._ended[progress.step] = progress
        group = self._groups.get(progress.step, ())
        if any(step not in self._ended for step in group):
            return
        for step in group:
            outcome = self._ended.pop(step).outcome
            if isinstance(outcome, Passed):
                self._tell(step, outcome.attempt)

    def _tell(self, step: str, attempt: int) -> None:
        from milabench.analysis.validity import tee
        from milabench.workflow.run_checks import checks_of

        try:
            if self._checks is None:
                self._checks = checks_of(open_run(self._path))
            checks = self._checks(step)
            records = self._path / f"{attempt_stem(self._stems[step], attempt)}.data"
            for _ in tee(read_batches(records, step), checks):
                pass
            found = [check.verdict() for check in checks]
        except RecordError:
            return  # the end of the run says what became of its records
        for one in found:
            if one.verdict != "pass":
                self._say(f"{step}: {one.check}: {one.verdict}: {one.message}")


def import_readers_aside() -> None:
    """Import what looks at the records once they are there, while something else is waited for.

    After the last step somebody would wait for it, and while one is measured it would disturb.
    """
    # Whoever waits for the interpreter's lock gets it after this time, by default after 5 ms.
    sys.setswitchinterval(SWITCH_S)
    Thread(target=lambda: [importlib.import_module(name) for name in READERS]).start()
