"""The progress of a run from its journal alone, for lists of runs, without reading records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from milabench.events.attempts import Attempt, attempts
from milabench.events.rundir import Run
from milabench.events.shares import current_attempt
from milabench.events.values import as_mapping, mappings_in

OUTCOMES = ("passed", "failed", "skipped", "cancelled", "missing")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """How the steps of a run stand.

    `steps` has the counted attempt of each planned step, None before it begins. `benches` are the benchmarks of
    the plan. `began` and `ended` are unix seconds. `verdict` is the last orchestrator's verdict at its end, or follows
    from its jobs, empty while there is none.
    """

    name: str
    phase: str
    steps: Mapping[str, Attempt | None]
    benches: tuple[str, ...]
    began: float | None
    ended: float | None
    verdict: str

    @property
    def counts(self) -> dict[str, int]:
        """How many steps ended how. Those that began and did not end, or never began, are missing."""
        outcomes = [(attempt.outcome if attempt is not None else None) or "missing" for attempt in self.steps.values()]
        return {name: outcomes.count(name) for name in OUTCOMES if name in outcomes}

    @property
    def running(self) -> tuple[Attempt, ...]:
        """Steps that have begun and not ended. They run only while the orchestrator lives."""
        return tuple(attempt for attempt in self.steps.values() if attempt is not None and attempt.outcome is None)


def run_status(run: Run) -> RunStatus:
    """Return how far a run is."""
    attempts_of = attempts(run.journal)
    steps = {step: current_attempt(attempts_of.get(step, ())) for step in run.files}
    times = [float(t) for entry in run.journal if isinstance(t := entry.get("t"), int | float)]
    planned = as_mapping(run.manifest.get("plan")).get("steps")
    benches = [str(step.get("bench")) for step in mappings_in(planned)] if isinstance(planned, list) else run.files
    return RunStatus(
        name=run.name,
        phase=run.phase,
        steps=steps,
        benches=tuple(dict.fromkeys(benches)),
        began=min(times, default=None),
        ended=max(times, default=None),
        verdict=run.verdict,
    )
