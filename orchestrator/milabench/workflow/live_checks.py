"""Reads the steps of a run while it goes on: their numbers, and what the checks say, from their records."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from milabench.errors import RecordError
from milabench.events.rundir import attempt_stem, open_run, read_batches
from milabench.plan.model import Plan

if TYPE_CHECKING:
    from milabench.analysis.measure import Measurement
    from milabench.analysis.step_results import ChecksOf


READERS = (
    *("milabench.workflow.run_checks", "milabench.workflow.summaries", "milabench.analysis.summary"),
    *("milabench.analysis.rate_so_far", "milabench.report.model"),
)
SWITCH_S = 0.0005


class LiveChecks:
    """Reads the records of steps that are over, once: returns what they measured, and keeps the checks' findings to be shown."""

    def __init__(self, plan: Plan, path: Path) -> None:
        self._stems: dict[str, str] = {}
        self._checks: ChecksOf | None = None
        self._path = path
        self._findings: list[str] = []
        self.on_plan(plan)

    def on_plan(self, plan: Plan) -> None:
        """Take the steps of the plan, or of its extension, into account."""
        self._stems |= {step.id: step.stem or step.id for step in plan.steps}
        self._checks = None  # the manifest has changed

    def measured(self, step: str, attempt: int) -> Measurement | None:
        """Return what an attempt at a step measured, and check it; None for records that cannot be read."""
        from milabench.analysis.measure import measure
        from milabench.analysis.step_results import tee
        from milabench.workflow.run_checks import checks_of

        try:
            if self._checks is None:
                self._checks = checks_of(open_run(self._path))
            checks = self._checks(step)
            records = self._path / f"{attempt_stem(self._stems[step], attempt)}.data"
            measured = measure(step, tee(read_batches(records, step), checks))
            verdicts = [check.verdict() for check in checks]
        except RecordError:
            return None  # the summary at the end of the run reports unreadable records
        self._findings += [
            f"{step}: {verdict.check}: {verdict.verdict}: {verdict.message}"
            for verdict in verdicts
            if verdict.verdict != "pass"
        ]
        return measured

    def findings(self) -> list[str]:
        """Return what the checks found since this was last called."""
        findings, self._findings = self._findings, []
        return findings


def import_readers_in_background() -> None:
    """Import what reads the records later, in a thread, while the agents start.

    After the last step a person would wait for it, and during a measurement it would disturb.
    """
    # A thread that waits for the interpreter's lock gets it after this time, by default after 5 ms: agents go first.
    sys.setswitchinterval(SWITCH_S)
    Thread(target=lambda: [importlib.import_module(name) for name in READERS]).start()
