"""The checks of a run's steps, from its manifest: which were asked for, and with which thresholds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from milabench.checks.check import Check, StepContext
from milabench.checks.registry import NAMES, checks_for, parse_checks
from milabench.events.rundir import Run

_RANKS = "--nproc-per-node="


class RunChecks:
    """Gives each step of a run its checks, new at every call.

    `asked` is `all`, `none` or `name,...`; without it, what was asked for when the run was made, else all. Raises UsageError
    for an unknown name.
    """

    def __init__(self, manifest: Mapping[str, Any], asked: str | None = None) -> None:
        recorded = manifest.get("validations")
        names = [name for name in recorded if name in NAMES] if isinstance(recorded, list) else list(NAMES)
        self._names: Sequence[str] = parse_checks(asked) if asked is not None else names
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
        context = StepContext(
            step=step,
            devices=tuple(number for number in devices or () if isinstance(number, int))
            if self._has_accelerators
            else (),
            ranks=_ranks(planned.get("argv")),
        )
        return checks_for(context, self._names, settings if isinstance(settings, Mapping) else {})


def checks_of(run: Run, asked: str | None = None) -> RunChecks:
    """The checks of a run that is on disk."""
    return RunChecks(run.manifest, asked)


def _ranks(argv: Any) -> int | None:
    """How many processes torchrun was told to start on the step's node."""
    for word in argv if isinstance(argv, list) else ():
        if isinstance(word, str) and word.startswith(_RANKS) and word.removeprefix(_RANKS).isdigit():
            return int(word.removeprefix(_RANKS))
    return None
