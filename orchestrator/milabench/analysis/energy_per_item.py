"""The energy per item of work, in joules."""

from __future__ import annotations

import math
from collections.abc import Mapping

from milabench.analysis.lazy_list import may_hold
from milabench.analysis.summary_model import BenchSummary, ReplicateResult
from milabench.events.values import finite_number


def energies(bench: BenchSummary) -> dict[str, float]:
    """Return the energy of each step's devices in its window, in J, where reported; by board sensors, not at the wall."""
    by_step: dict[str, float] = {}
    if not may_hold(bench.metrics, "energy"):
        return by_step
    for metric in bench.metrics:
        value = finite_number(metric.get("value"))
        if metric.get("metric") == "energy" and metric.get("units") == "J" and value is not None:
            step = str(metric.get("step"))
            by_step[step] = by_step.get(step, 0.0) + value
    return by_step


def joules_per_item(process: ReplicateResult, step_energies: Mapping[str, float]) -> float | None:
    """Return the energy that an item took a replicate, in J; `step_energies` is what `energies` returns.

    Energy and items are those of the whole window, what was warm-up still included. None unless every step reported its energy
    and the items are known; a process that never left its warm-up has no window.
    """
    rate = process.throughput
    items = math.fsum([*(total.items for total in rate.totals), rate.left_out])
    if not items or rate.basis == "warm-up" or any(step not in step_energies for step in process.steps):
        return None
    joules = math.fsum(step_energies[step] for step in process.steps)
    return joules / items if joules > 0 else None


def item_of(units: str) -> str:
    """Return what a rate counts, in the singular: `image` for `images/s`."""
    item = units.removesuffix("/s")
    return item.removesuffix("s") if item.endswith("s") else item or "item"
