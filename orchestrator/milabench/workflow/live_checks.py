"""Reads the steps of a run while it goes on: their numbers and the findings of the checks, from their records."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import sys
import time
from collections import deque
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from milabench.errors import RecordError
from milabench.events.run_files import attempt_stem
from milabench.events.rundir import open_run, read_batches
from milabench.plan.model import Plan, Step

if TYPE_CHECKING:
    from milabench.analysis.measure import Measurement
    from milabench.analysis.step_results import ChecksOf


READERS = (
    *("milabench.workflow.run_checks", "milabench.workflow.summaries", "milabench.analysis.summary"),
    *("milabench.analysis.rate_so_far", "milabench.report.model", "milabench.events.batch_decoder"),
)
SWITCH_S = 0.0005
TURN_S = 0.05  # of reading, after which others have a turn


class LiveChecks:
    """Reads the records of finished steps, once: returns their numbers, and keeps the checks' findings to be shown."""

    def __init__(self, plan: Plan, path: Path) -> None:
        self._stems: dict[str, str] = {}
        self._checks: ChecksOf | None = None
        self._path = path
        self._findings: list[str] = []
        self._read: dict[tuple[str, int], tuple[Measurement, list[str]]] = {}  # until they are shown
        self.on_plan(plan)

    def on_plan(self, plan: Plan) -> None:
        """Take the steps of the plan, or of its extension, into account."""
        self._stems |= {step.id: step.stem or step.id for step in plan.steps}
        self._checks = None  # the manifest has changed

    def measured(self, step: str, attempt: int) -> Measurement | None:
        """Return the numbers of an attempt at a step, and check it. None for records that cannot be read."""
        if (step, attempt) not in self._read:
            with contextlib.suppress(RecordError):  # the summary at the end of the run reports unreadable records
                deque(self._reading(step, attempt), maxlen=0)
        measured, findings = self._read.pop((step, attempt), (None, []))
        self._findings += findings
        return measured

    async def missing_metrics(self, step: Step, attempt: int) -> str:
        """Return which of the metrics that a step's configuration extracts from its output are absent. Empty when none are.

        A log may have gigabytes: the loop goes on meanwhile. Records that cannot be read are reported by their writer.
        """
        # Reading them now costs time between two steps: only where something must be found in them.
        if not step.config.get("metrics"):
            return ""
        turn = time.monotonic()
        with contextlib.suppress(RecordError):
            for _ in self._reading(step.id, attempt):
                if time.monotonic() - turn > TURN_S:
                    await asyncio.sleep(0)
                    turn = time.monotonic()
            measured, _ = self._read[step.id, attempt]
            return "; ".join(series.problem for series in measured.logs if series.problem)
        return ""

    def _reading(self, step: str, attempt: int) -> Iterator[None]:
        """Read the records of an attempt, event by event. `_read` holds the numbers and the findings afterwards."""
        from milabench.analysis.measure import MeasurementFold
        from milabench.workflow.run_checks import checks_of

        if self._checks is None:
            self._checks = checks_of(open_run(self._path))
        fold = MeasurementFold()
        records = self._path / f"{attempt_stem(self._stems[step], attempt)}.data"
        for event in read_batches(records, step):
            fold.observe(event)
            yield
        measured = fold.result(step)
        findings = [
            f"{step}: {verdict.check}: {verdict.verdict}: {verdict.message}"
            for check in self._checks(step)
            if (verdict := check.verdict(measured)).verdict != "pass"
        ]
        self._read[step, attempt] = measured.without_single_values(), findings

    def findings(self) -> list[str]:
        """Return the findings of the checks since the last call."""
        findings, self._findings = self._findings, []
        return findings


@cache
def import_readers_in_background() -> None:
    """Import the readers of records in a thread, once: after the last step a person would wait for it.

    To be called when the first step has been started, and imports itself. Before that it would keep us from starting it.
    """
    # A thread that waits for the interpreter's lock gets it after this time, by default after 5 ms: agents go first.
    sys.setswitchinterval(SWITCH_S)
    Thread(target=lambda: [importlib.import_module(name) for name in READERS]).start()
