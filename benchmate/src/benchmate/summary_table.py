"""The table of results on stderr, where no agent listens: rates from totals, never means of rates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

MAX_DURATIONS = 4096
"""Durations kept for the median of a task."""


def throughput(items: float, seconds: float) -> float | None:
    """Return items per second as the ratio of totals; None when no time has passed."""
    return items / seconds if seconds > 0 else None


def median(values: Sequence[float]) -> float | None:
    """Return the middle value, the mean of the two middle ones of an even number; None without any."""
    if not values:
        return None
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


@dataclass(slots=True)
class TaskTotals:
    """Totals of the observations of one task; warm-up is counted, not summed."""

    units: str = ""
    warmup: int = 0
    steps: int = 0
    items: float = 0.0
    seconds: float = 0.0
    durations: list[float] = field(default_factory=list)
    stride: int = 1

    def add(self, data: Mapping[str, Any]) -> None:
        """Take one observation."""
        self.units = data["units"]
        steps = data.get("steps", 1)
        if data.get("warmup"):
            self.warmup += steps
            return
        step = self.steps
        self.steps += steps
        self.items += data["n"]
        self.seconds += data["elapsed"]
        if step % self.stride == 0:
            self.durations.append(data["elapsed"] / steps)
            # Every other one goes, so that what is kept stays evenly spread over the run.
            if len(self.durations) > MAX_DURATIONS:
                del self.durations[1::2]
                self.stride *= 2


class SummaryTable:
    """Folds records into one line per task, and lists the other measurements below."""

    def __init__(self) -> None:
        self._tasks: dict[str, TaskTotals] = {}
        self._losses: dict[str, list[float]] = {}
        self._others: list[str] = []

    def add(self, event: str, data: Mapping[str, Any]) -> None:
        """Take one record; leave out those that mean nothing to a person."""
        if event == "message":
            self._others.append(f"note: {data['message']}")
        elif event == "error":
            self._others.append(f"error: {data['type']}: {data['message']}")
        elif event == "fail":
            self._others.append(f"FAILED: {data['why']}: {data['detail']}")
        elif event != "data":
            return
        elif "rate" in data:
            self._tasks.setdefault(data["task"], TaskTotals()).add(data)
        elif "loss" in data:
            first_and_last = self._losses.setdefault(data["task"], [])
            first_and_last[1 if first_and_last else 0 :] = [data["loss"]]
        elif "metric" in data:
            part = f" ({data['part']})" if "part" in data else ""
            self._others.append(f"{data['metric']}{part}: {_value(data['value'], data['units'])}")

    def text(self) -> str:
        """Return the table; empty when nothing was measured."""
        rows = [("task", "steps", "warm-up", "seconds", "rate", "units", "step (median)")]
        for task, totals in self._tasks.items():
            middle = median(totals.durations)
            rows.append(
                (
                    task,
                    str(totals.steps),
                    str(totals.warmup),
                    f"{totals.seconds:.3f}",
                    _number(throughput(totals.items, totals.seconds)),
                    totals.units,
                    "-" if middle is None else f"{middle * 1e3:.4g} ms",
                )
            )
        lines = []
        if self._tasks:
            widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
            for row in rows:
                lines.append("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        for task, values in self._losses.items():
            lines.append(f"loss ({task}): {values[0]:.6g} -> {values[-1]:.6g}")
        return "\n".join(lines + self._others)


def _number(value: float | None) -> str:
    return "-" if value is None or not math.isfinite(value) else f"{value:,.4g}" if value < 1e4 else f"{value:,.0f}"


def _value(value: float, units: str) -> str:
    if units == "B":
        return f"{value / 2**20:.1f} MiB"
    return f"{value:.6g} {units}".rstrip()
