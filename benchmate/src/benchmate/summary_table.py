"""The table of results on stderr, where no agent listens: rates from totals, never means of rates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from benchmate.records import as_number, text_of

MAX_DURATIONS = 4096
"""Durations kept for the median of a task."""


class TaskTotals:
    """Totals of the observations of a task. Warm-up is counted, not summed."""

    def __init__(self) -> None:
        self.units = ""
        self.warmup = self.steps = 0
        self.items = 0.0
        self.start_ns = 0
        """Where the window began: at its own record, or with the end of the step before the first that counts."""
        self.stop_ns = 0
        self.durations: list[float] = []
        self.stride = 1

    def add(self, data: Mapping[str, Any]) -> None:
        """Take an observation."""
        self.units = data["units"]
        steps = data.get("steps", 1)
        self.stop_ns = data["t0_ns"] + data["host_ns"]
        if data.get("warmup"):
            self.warmup += steps
            self.start_ns = max(self.start_ns, self.stop_ns)
            return
        step = self.steps
        self.steps += steps
        self.items += data["n"]
        self.start_ns = self.start_ns or data["t0_ns"]
        if step % self.stride == 0:
            self.durations.append(data["elapsed"] / steps)
            # Every other one goes, so that what is kept stays evenly spread over the run.
            if len(self.durations) > MAX_DURATIONS:
                del self.durations[1::2]
                self.stride *= 2

    def row(self, task: str, pauses: Sequence[tuple[int, int]] = ()) -> tuple[str, ...]:
        """Return the cells of the table. The rate is items over the seconds of the window, without its pauses."""
        paused_ns = sum(max(0, min(stop, self.stop_ns) - max(start, self.start_ns)) for start, stop in pauses)
        seconds = (self.stop_ns - self.start_ns - paused_ns) / 1e9 if self.steps else 0.0
        counts = (str(self.steps), str(self.warmup), f"{seconds:.3f}")
        rate = self.items / seconds if seconds > 0 else math.nan
        step = f"{_median(self.durations) * 1e3:.4g} ms" if self.durations else "-"
        return (task, *counts, _number(rate), self.units, step)


class SummaryTable:
    """Folds records into a line per task, and lists the other measurements below."""

    def __init__(self) -> None:
        self._tasks: dict[str, TaskTotals] = {}
        self._pauses: dict[str, list[tuple[int, int]]] = {}
        self._losses: dict[str, list[float]] = {}
        self._given_rates: dict[tuple[str, str], tuple[list[float], list[float]]] = {}
        """Rates that a program computed itself, which say neither items nor seconds: of the window, and of the warm-up."""
        self._others: list[str] = []

    def add(self, event: str, data: Mapping[str, Any]) -> None:
        """Take a record. Records without meaning for a person are left out."""
        if event == "message":
            self._others.append(f"note: {data.get('message')}")
        elif event == "error":
            self._others.append(f"error: {data.get('type')}: {data.get('message')}")
        elif event == "fail":
            self._others.append(f"FAILED: {data['why']}: {data['detail']}")
        elif event != "data":
            return
        elif "rate" in data and "t0_ns" not in data:
            key = str(data.get("task", "train")), str(data.get("units", ""))
            self._given_rates.setdefault(key, ([], []))[bool(data.get("warmup"))].append(data["rate"])
        elif "rate" in data:
            self._tasks.setdefault(data["task"], TaskTotals()).add(data)
        elif "window" in data and "clock" not in data:
            totals = self._tasks.setdefault(data["task"], TaskTotals())
            totals.start_ns = max(totals.start_ns, data["window"]["start_ns"])
        elif "pause" in data:
            pause = data["pause"]
            self._pauses.setdefault(pause["name"], []).append((pause["start_ns"], pause["stop_ns"]))
        elif "loss" in data:
            first_and_last = self._losses.setdefault(str(data.get("task", "train")), [])
            first_and_last[1 if first_and_last else 0 :] = [data["loss"]]
        elif "metric" in data and "value" in data:
            part = f" ({data['part']})" if "part" in data else ""
            self._others.append(f"{data['metric']}{part}: {_value(data['value'], data.get('units', ''))}")

    def text(self) -> str:
        """Return the table. Empty when nothing was measured."""
        rows: list[tuple[str, ...]] = [("task", "steps", "warm-up", "seconds", "rate", "units", "step (median)")]
        pauses = [pause for named in self._pauses.values() for pause in named]
        rows += [totals.row(task, pauses) for task, totals in self._tasks.items()]
        lines = []
        if self._tasks:
            widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
            for row in rows:
                lines.append("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        for (task, units), (rates, warm_up) in self._given_rates.items():
            numbers = [rate for rate in map(as_number, rates) if rate is not None]
            middle = _number(_median(numbers)) if numbers else "-"
            counts = f"{len(rates)} by the program after {len(warm_up)} of warm-up"
            lines.append(f"rate ({task}): {counts}, median {middle} {units}".rstrip())
        for task, values in self._losses.items():
            lines.append(f"loss ({task}): {_loss(values[0])} -> {_loss(values[-1])}")
        for name, named in self._pauses.items():
            seconds = sum(stop - start for start, stop in named) / 1e9
            lines.append(f"pause ({name}): {len(named)} of {seconds:.3f} s together")
        return "\n".join(lines + self._others)


def _number(value: float) -> str:
    return "-" if not math.isfinite(value) else f"{value:,.4g}" if value < 1e4 else f"{value:,.0f}"


def _median(values: Sequence[float]) -> float:
    from statistics import median  # only now, when nothing is measured any more

    return median(values)


def _loss(value: object) -> str:
    number = as_number(value)
    return "-" if number is None else f"{number:.6g}"


def _value(value: object, units: str) -> str:
    number = as_number(value)
    if number is None:
        return text_of(value)
    if units == "B":
        return f"{number / 2**20:.1f} MiB"
    return f"{number:.6g} {units}".rstrip()
