"""Checks the steps of a run while it goes on, from their records."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from milabench.errors import RecordError
from milabench.events.rundir import attempt_stem, open_run, read_batches
from milabench.execute.api import Ended, Progress
from milabench.plan.model import Plan

if TYPE_CHECKING:
    from milabench.analysis.step_results import ChecksOf


READERS = ("milabench.workflow.run_checks", "milabench.workflow.summaries", "milabench.analysis.summary")
SWITCH_S = 0.0005


class LiveChecks:
    """Reports the checks' findings as soon as a group of steps is over: from its records, while nothing is being measured."""

    def __init__(self, plan: Plan, path: Path, report: Callable[[str], object]) -> None:
        self._groups: dict[str, tuple[str, ...]] = {}
        self._stems: dict[str, str] = {}
        self._checks: ChecksOf | None = None
        self.on_plan(plan)
        self._path = path
        self._report = report
        self._ended: dict[str, Ended] = {}

    def on_plan(self, plan: Plan) -> None:
        """Take the groups of the plan, or of its extension, into account."""
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
            ended = self._ended.pop(step)
            if ended.outcome.name == "passed":
                self._check(step, ended.attempt)

    def _check(self, step: str, attempt: int) -> None:
        from milabench.analysis.step_results import tee
        from milabench.workflow.run_checks import checks_of

        try:
            if self._checks is None:
                self._checks = checks_of(open_run(self._path))
            checks = self._checks(step)
            records = self._path / f"{attempt_stem(self._stems[step], attempt)}.data"
            for _ in tee(read_batches(records, step), checks):
                pass
            verdicts = [check.verdict() for check in checks]
        except RecordError:
            return  # the summary at the end of the run reports unreadable records
        for verdict in verdicts:
            if verdict.verdict != "pass":
                self._report(f"{step}: {verdict.check}: {verdict.verdict}: {verdict.message}")


def import_readers_in_background() -> None:
    """Import what reads the records later, in a thread, while the agents start.

    After the last step a person would wait for it, and during a measurement it would disturb.
    """
    # A thread that waits for the interpreter's lock gets it after this time, by default after 5 ms: agents go first.
    sys.setswitchinterval(SWITCH_S)
    Thread(target=lambda: [importlib.import_module(name) for name in READERS]).start()
