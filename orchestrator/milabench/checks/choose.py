"""Which checks a step gets, from the suite's `validation` and the names of those asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from milabench.checks.api import Check
from milabench.checks.error import ErrorCheck
from milabench.checks.foreign import ForeignCheck
from milabench.checks.loss import LossCheck
from milabench.checks.placement import PlacementCheck
from milabench.checks.rate import RateCheck
from milabench.checks.sensor import EnergyCheck, SensorCheck
from milabench.checks.throttle import PowerCheck, ThrottleCheck
from milabench.checks.usage import UsageCheck
from milabench.checks.versions import VersionsCheck
from milabench.events.readings import Readings


def checks_for(
    step: str,
    names: Iterable[str],
    settings: Mapping[str, Any],
    *,
    devices: Sequence[int] = (),
    ranks: int | None = None,
) -> tuple[Check, ...]:
    """The checks of a step, all of which look at the same readings.

    `settings` is the suite's `validation`, one entry a check; `usage` is only looked at where it has one, and an entry that is
    `false` leaves its check out. `devices` are the step's accelerators, `ranks` the processes that should report.
    """
    readings = Readings()
    held = tuple(devices)
    made: Mapping[str, Callable[[Mapping[str, Any]], Check]] = {
        "error": lambda _: ErrorCheck(step),
        "rate": lambda given: RateCheck(step, given),
        "loss": lambda given: LossCheck(step, given),
        "placement": lambda _: PlacementCheck(step, readings, held, ranks),
        "usage": lambda given: UsageCheck(step, readings, given, has_devices=bool(held)),
        "throttle": lambda _: ThrottleCheck(step, readings),
        "power": lambda _: PowerCheck(step, readings, held),
        "foreign": lambda _: ForeignCheck(step, readings),
        "sensor": lambda _: SensorCheck(step, readings, held),
        "energy": lambda _: EnergyCheck(step, readings),
        "versions": lambda _: VersionsCheck(step),
    }
    found = []
    for name in names:
        given = settings.get(name)
        if given is False or (name == "usage" and not isinstance(given, Mapping)):
            continue
        found.append(made[name](given if isinstance(given, Mapping) else {}))
    return tuple(found)
