"""The list of checks. A new check is a class in a module of this package and a line in `CHECKS`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from milabench.checks.check import Check, StepContext
from milabench.checks.devices import EnergyCheck, ForeignCheck, PowerCheck, SensorCheck, ThrottleCheck, UsageCheck
from milabench.checks.host import ContendedCheck
from milabench.checks.program import ErrorCheck, LossCheck, PlacementCheck, VersionsCheck
from milabench.checks.rate import RateCheck
from milabench.errors import UsageError

# In the order in which their verdicts are shown.
CHECKS: tuple[type[Check], ...] = (
    ErrorCheck,
    RateCheck,
    LossCheck,
    PlacementCheck,
    UsageCheck,
    ThrottleCheck,
    PowerCheck,
    ForeignCheck,
    ContendedCheck,
    SensorCheck,
    EnergyCheck,
    VersionsCheck,
)
NAMES = tuple(check.name for check in CHECKS)


def parse_checks(text: str) -> tuple[str, ...]:
    """Return the names of the checks in `all`, `none` or `name,...`. Raises UsageError for an unknown name."""
    if text == "all":
        return NAMES
    if text == "none":
        return ()
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in NAMES:
            raise UsageError(f"--validations: unknown check '{name}'. Known: all, none, {', '.join(NAMES)}")
    return tuple(name for name in NAMES if name in names)


def checks_for(context: StepContext, names: Iterable[str], settings: Mapping[str, object]) -> tuple[Check, ...]:
    """Return the checks of a step by their names.

    `settings` is the suite's `validation`, an entry per check. An entry that is `false` leaves its check out.
    """
    by_name = {check.name: check for check in CHECKS}
    checks = []
    for name in names:
        check, own = by_name[name], settings.get(name)
        if own is False or (check.needs_settings and not isinstance(own, Mapping)):
            continue
        checks.append(check(context, own if isinstance(own, Mapping) else {}))
    return tuple(checks)
