"""The checks of a run's steps, from its manifest: which were requested, and with which thresholds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from milabench.analysis.step_results import ChecksOf
from milabench.checks.check import Check, StepContext
from milabench.checks.registry import NAMES, checks_for, parse_checks
from milabench.events.rundir import Run
from milabench.events.values import as_mapping

_RANKS = "--nproc-per-node="


def checks_of(run: Run, validations: str | None = None) -> ChecksOf:
    """Return the function that gives the checks of a step of a recorded run, by its id, new at every call.

    `validations` is `all`, `none` or `name,...`. By default the run's own request, else all. Raises UsageError
    for an unknown name.
    """
    recorded, system = run.manifest.get("validations"), run.manifest.get("system")
    has_accelerators = isinstance(system, Mapping) and system.get("arch") != "cpu"
    names: Sequence[str] = [name for name in recorded if name in NAMES] if isinstance(recorded, list) else list(NAMES)
    if validations is not None:
        names = parse_checks(validations)
    listed = as_mapping(run.manifest.get("plan")).get("steps")
    steps = {str(step.get("id")): step for step in map(as_mapping, listed if isinstance(listed, list) else ())}

    def of_step(step: str) -> tuple[Check, ...]:
        planned = steps.get(step, {})
        settings = as_mapping(as_mapping(planned.get("config")).get("validation"))
        numbers = tuple(device for device in planned.get("devices") or () if isinstance(device, int))
        context = StepContext(
            step=step,
            devices=numbers if has_accelerators else (),
            may_use_one=not planned.get("one_job"),
            ranks=_ranks(planned.get("argv")),
        )
        return checks_for(context, names, settings)

    return of_step


def _ranks(argv: object) -> int | None:
    """Return how many processes torchrun starts on the step's node."""
    for word in argv if isinstance(argv, list) else ():
        if isinstance(word, str) and word.startswith(_RANKS) and word.removeprefix(_RANKS).isdigit():
            return int(word.removeprefix(_RANKS))
    return None
