"""The energy per item of work, in joules."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from milabench.analysis.measure import COUNTED
from milabench.analysis.summary_model import BenchSummary, ReplicateResult
from milabench.events.values import finite_number


class StepEnergy(NamedTuple):
    """Joules of a step's devices, and whether they are of the seconds that its rate counts, or of the whole window."""

    joules: float
    is_counted: bool


def energies(bench: BenchSummary) -> dict[str, StepEnergy]:
    """Return the energy of each step's devices, where reported. By board sensors, not at the wall."""
    by_step: dict[str, StepEnergy] = {}
    for metric in bench.metrics:
        value = finite_number(metric.get("value"))
        if metric.get("metric") == "energy" and metric.get("units") == "J" and value is not None:
            step = str(metric.get("step"))
            known = by_step.get(step, StepEnergy(0.0, True))
            by_step[step] = StepEnergy(known.joules + value, known.is_counted and metric.get("part") == COUNTED)
    return by_step


def joules_per_item(process: ReplicateResult, step_energies: Mapping[str, StepEnergy]) -> float | None:
    """Return the energy that an item took a replicate, in J. `step_energies` is the result of `energies`.

    Energy and items are of the same seconds: the counted ones, or where only the energy of the whole window is known, of
    the window, including warm-up. None unless every step reported its energy and the items are known. A process that
    never left its warm-up has no window.
    """
    rate = process.throughput
    if rate.basis == "warm-up" or any(step not in step_energies for step in process.steps):
        return None
    used = [step_energies[step] for step in process.steps]
    left_out = 0.0 if all(energy.is_counted for energy in used) else rate.left_out
    items = math.fsum([*(total.items for total in rate.totals), left_out])
    joules = math.fsum(energy.joules for energy in used)
    return joules / items if joules > 0 and items else None


def item_of(units: str) -> str:
    """Return the item of a rate, in the singular: `image` for `images/s`."""
    item = units.removesuffix("/s")
    return item.removesuffix("s") if item.endswith("s") else item or "item"
