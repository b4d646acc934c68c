"""The time, energy and money of a declared amount of work on a system. Added up, never averaged (Hoefler and Belli 2015)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from milabench.analysis.intervals import Interval
from milabench.analysis.two_samples import Estimate, LogMean, weighted_variances
from milabench.events.values import positive

HOURS_PER_YEAR = 8766.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Costs of a system: its `price` is written off over `years` of use. `electricity` is money for a kWh at the meter.

    `power_w` is the system's power at work, used where no energy was measured. `pue` is the building's power for each
    watt of the system, 1 when it is not known.
    """

    price: float | None = None
    years: float | None = None
    power_w: float | None = None
    pue: float = 1.0
    electricity: float | None = None
    currency: str = ""


def costs_of(declared: Mapping[str, object]) -> Costs:
    """Return the costs in a manifest or a file of them. A value that is not a number above zero counts as unknown."""
    return Costs(
        price=positive(declared.get("price")),
        years=positive(declared.get("years")),
        power_w=positive(declared.get("power_W")),
        pue=positive(declared.get("pue")) or 1.0,
        electricity=positive(declared.get("electricity")),
        currency=str(declared.get("currency") or ""),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTask:
    """A benchmark's part of a mix: items to do, the rate (items a second), its logarithm (`level`), J an item.

    `level` is None below three repeats.
    """

    work: float
    rate: float
    level: LogMean | None
    joules_per_item: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobMix:
    """The needs of the same declared work on a system, over the benchmarks that count on all systems.

    `time_h` with `time_ci95` (delta method; None when a benchmark has fewer than three repeats). `energy_kwh` as measured by
    board sensors, else from the declared power (`energy_from`). `cost` in `currency`: the share of the price by time, and
    the energy with PUE. `per_watt` and `per_money` are the index over the first system, per watt and per money. None where
    their needs are not known, and `missing` names it.
    """

    system: str
    time_h: float
    time_ci95: Interval | None = None
    energy_kwh: float | None = None
    energy_from: Literal["measured", "declared", ""] = ""
    cost: float | None = None
    currency: str = ""
    per_watt: float | None = None
    per_money: float | None = None
    missing: tuple[str, ...] = ()


def job_mix(system: str, tasks: Sequence[JobTask], costs: Costs) -> JobMix | None:
    """Return time, energy and cost of some work. None without a task."""
    if not tasks:
        return None
    hours = [task.work / task.rate / 3600 for task in tasks]
    time_h = math.fsum(hours)
    measured = [task.joules_per_item * task.work for task in tasks if task.joules_per_item is not None]
    energy: float | None = None
    source: Literal["measured", "declared", ""] = ""
    if len(measured) == len(tasks):
        energy, source = math.fsum(measured) / 3.6e6, "measured"
    elif costs.power_w is not None:
        energy, source = costs.power_w / 1000 * time_h, "declared"
    needs = {"price": costs.price, "years": costs.years, "electricity": costs.electricity, "power_W": energy}
    missing = tuple(name for name, value in needs.items() if value is None)
    cost = None
    if costs.price is not None and costs.years is not None and costs.electricity is not None and energy is not None:
        # The price is a cost of time, not of work: an idle machine is written off too, but that is no part of a job.
        written_off = costs.price * time_h / (costs.years * HOURS_PER_YEAR)
        cost = written_off + energy * costs.pue * costs.electricity
    return JobMix(
        system=system,
        time_h=time_h,
        time_ci95=_interval(time_h, hours, tasks),
        energy_kwh=energy,
        energy_from=source,
        cost=cost,
        currency=costs.currency,
        missing=missing,
    )


def _interval(time_h: float, hours: Sequence[float], tasks: Sequence[JobTask]) -> Interval | None:
    levels = [task.level for task in tasks if task.level is not None]
    if len(levels) < len(tasks):
        return None
    estimate = Estimate.of_variances(0.0, weighted_variances(levels, [part / time_h for part in hours]))
    low, high = estimate.ratio_interval()
    return time_h * low, time_h * high
