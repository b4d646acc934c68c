"""The checks of a run's steps, from its manifest: which were requested, and with which thresholds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from milabench.checks.check import Check, StepContext
from milabench.checks.registry import NAMES, checks_for, parse_checks
from milabench.events.rundir import Run

_RANKS = "--nproc-per-node="


class RunChecks:
    """Returns the checks of each step of a run, new at every call.

    `validations` is `all`, `none` or `name,...`; without it, what was requested for the run, else all. Raises UsageError
    for an unknown name.
    """

    def __init__(self, manifest: Mapping[str, Any], validations: str | None = None) -> None:
        recorded = manifest.get("validations")
        names = [name for name in recorded if name in NAMES] if isinstance(recorded, list) else list(NAMES)
        self._names: Sequence[str] = parse_checks(validations) if validations is not None else names
        plan, system = manifest.get("plan"), manifest.get("system")
        steps = plan.get("steps") if isinstance(plan, Mapping) else None
        self._steps = {
            str(step.get("id")): step
            for step in (steps if isinstance(steps, list) else ())
            if isinstance(step, Mapping)
        }
        self._has_accelerators = isinstance(system, Mapping) and system.get("arch") != "cpu"

    def __call__(self, step: str) -> tuple[Check, ...]:
        """Return the checks of a step, by its id."""
        planned = self._steps.get(step, {})
        config, devices = planned.get("config"), planned.get("devices")
        settings = config.get("validation") if isinstance(config, Mapping) else None
        numbers = tuple(device for device in devices or () if isinstance(device, int))
        context = StepContext(
            step=step,
            devices=numbers if self._has_accelerators else (),
            ranks=_ranks(planned.get("argv")),
        )
        return checks_for(context, self._names, settings if isinstance(settings, Mapping) else {})


def checks_of(run: Run, validations: str | None = None) -> RunChecks:
    """Return the checks of a recorded run."""
    return RunChecks(run.manifest, validations)


def _ranks(argv: Any) -> int | None:
    """Return how many processes torchrun starts on the step's node."""
    for word in argv if isinstance(argv, list) else ():
        if isinstance(word, str) and word.startswith(_RANKS) and word.removeprefix(_RANKS).isdigit():
            return int(word.removeprefix(_RANKS))
    return None
