"""The window of a launch, read from its records, and the stamps of an independent clock within it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.single_records import single_records


@dataclass(frozen=True)
class Step:
    """A step by the program's own clock, in ns."""

    since: int
    until: int
    items: float


@dataclass(frozen=True)
class Stamps:
    """What one process wrote down: its steps in order, and what it did that it takes for no part of its work."""

    begun: int
    steps: Sequence[Step]
    pauses: Sequence[Step]
    stamps_late: bool

    def during(self, since: int, until: int) -> Achieved:
        """What was done in this time: the steps that ended in it, on the clock from the end of the step before the first.

        The instruments see the end of a step after the program does, or before it: where it `stamps_late`, a step counts by its
        middle, for the last one of a window is stamped only when the instruments have ended the program.
        """
        at = [(step.since + step.until) / 2 if self.stamps_late else step.until for step in self.steps]
        numbers = [number for number, moment in enumerate(at) if since < moment <= until]
        begin = self.steps[numbers[0] - 1].until if numbers[0] else self.begun
        end = self.steps[numbers[-1]].until
        paused = sum(max(0, min(end, one.until) - max(begin, one.since)) for one in self.pauses)
        return Achieved(sum(self.steps[number].items for number in numbers), (end - begin) / 1e9, paused / 1e9)


@dataclass(frozen=True)
class Achieved:
    """Items, and the seconds they took; of these so many were spent on what is no part of the work."""

    items: float
    seconds: float
    paused: float


def stamps_of(path: Path, stamps_late: bool) -> Stamps:
    """Read what a process wrote."""
    first, *rows = (line.split() for line in path.read_text().splitlines())
    lines = [(what, int(since), int(until)) for what, since, until in rows]
    return Stamps(
        begun=int(first[1]),
        steps=[Step(since, until, float(what)) for what, since, until in lines if what != "pause"],
        pauses=[Step(since, until, 0) for what, since, until in lines if what == "pause"],
        stamps_late=stamps_late,
    )


MEASURED = ("train", "inference")
"""The tasks whose rate a program is run for; a launch has one of them."""


@dataclass(frozen=True)
class Launch:
    """One launch: the file of its records, and its rate as the report gives it."""

    path: Path
    rate: Mapping[str, Any]

    def records(self, rank: int) -> tuple[dict[str, int], list[Mapping[str, Any]]]:
        """The window that a rank declared, and its observations, one by one."""
        records = single_records(self.path.read_bytes())
        lines = [record["data"] for record in records if record["event"] == "data"]
        lines = [data for data in lines if data.get("task") in MEASURED and ("t0_ns" in data or "window" in data)]
        windows = [data["window"] for data in lines if isinstance(data.get("window"), dict)]
        seen = [data for data in lines if "t0_ns" in data and data.get("rank", 0) == rank]
        seen.sort(key=lambda data: data["t0_ns"])
        first_ns = next(data["t0_ns"] for data in seen if not data.get("warmup"))
        # Nothing in the records says whose window it is but when it began.
        window = min(windows, key=lambda window: abs(window["start_ns"] - first_ns))
        return {"since": window["start_ns"], "until": window["stop_ns"]}, seen

    def counted(self, rank: int) -> dict[str, int]:
        """The time of the observations that are in the number: those after the warm-up that the report names."""
        _, chosen = self.warm_up_and_counted(rank)
        # Not from the end of the warm-up: an observation of several of its steps lacks the time between them.
        return {"since": chosen[0]["t0_ns"], "until": chosen[-1]["t0_ns"] + chosen[-1]["host_ns"]}

    def warm_up_and_counted(self, rank: int) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
        """The observations before those that are in the number, and these."""
        _, seen = self.records(rank)
        (total,) = [total for total in self.rate["totals"] if total["rank"] == rank]
        steps, first = 0, 0
        while steps < self.rate["warm_up_steps"]:
            steps += seen[first].get("steps", 1)
            first += 1
        return seen[:first], seen[first : first + total["observations"]]

    def program_window(self) -> dict[str, int]:
        """The time of the rates that the program measured itself, which have no observations of their own."""
        lines = (json.loads(line)["data"] for line in self.path.read_text().splitlines() if '"window"' in line)
        (window,) = (data["window"] for data in lines if isinstance(data.get("window"), dict))
        return {"since": window["start_ns"], "until": window["stop_ns"]}
