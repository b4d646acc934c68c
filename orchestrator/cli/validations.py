"""The checks of a run's steps, from its manifest: which were asked for, and with which thresholds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.analysis.validity import seen_by
from orchestrator.checks.api import Check
from orchestrator.checks.choose import NAMES, checks_for, chosen
from orchestrator.errors import RecordError
from orchestrator.events.rundir import Run, attempt_stem, open_run, read_batches
from orchestrator.execute.api import Ended, Passed, Progress
from orchestrator.plan.model import Plan

_RANKS = "--nproc-per-node="


class RunChecks:
    """Gives each step of a run its checks, new at every call.

    `asked` is `all`, `none` or `name,...`; without it, what was asked for when the run was made, else all. Raises UsageError
    for an unknown name.
    """

    def __init__(self, manifest: Mapping[str, Any], asked: str | None = None) -> None:
        recorded = manifest.get("validations")
        names = [name for name in recorded if name in NAMES] if isinstance(recorded, list) else list(NAMES)
        self._names: Sequence[str] = chosen(asked) if asked is not None else names
        plan, system = manifest.get("plan"), manifest.get("system")
        steps = plan.get("steps") if isinstance(plan, Mapping) else None
        self._steps = {
            str(step.get("id")): step
            for step in (steps if isinstance(steps, list) else ())
            if isinstance(step, Mapping)
        }
        self._has_accelerators = isinstance(system, Mapping) and system.get("arch") != "cpu"

    def __call__(self, step: str) -> tuple[Check, ...]:
        """The checks of a step, by its id."""
        planned = self._steps.get(step, {})
        config, devices = planned.get("config"), planned.get("devices")
        settings = config.get("validation") if isinstance(config, Mapping) else None
        return checks_for(
            step,
            self._names,
            settings if isinstance(settings, Mapping) else {},
            devices=[one for one in devices or () if isinstance(one, int)] if self._has_accelerators else (),
            ranks=_ranks(planned.get("argv")),
        )


def checks_of(run: Run, asked: str | None = None) -> RunChecks:
    """The checks of a run that is on disk."""
    return RunChecks(run.manifest, asked)


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
        try:
            if self._checks is None:
                self._checks = checks_of(open_run(self._path))
            checks = self._checks(step)
            records = self._path / f"{attempt_stem(self._stems[step], attempt)}.data"
            for _ in seen_by(read_batches(records, step), checks):
                pass
            found = [check.verdict() for check in checks]
        except RecordError:
            return  # the end of the run says what became of its records
        for one in found:
            if one.verdict != "pass":
                self._say(f"{step}: {one.check}: {one.verdict}: {one.message}")


def _ranks(argv: Any) -> int | None:
    """How many processes torchrun was told to start on the step's node."""
    for word in argv if isinstance(argv, list) else ():
        if isinstance(word, str) and word.startswith(_RANKS) and word.removeprefix(_RANKS).isdigit():
            return int(word.removeprefix(_RANKS))
    return None
