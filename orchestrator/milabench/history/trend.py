"""A benchmark's runs in the order of time, system by system, and where its level changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from milabench.analysis.changepoints import LEAST_HISTORY, Segment, segments


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One run's number; `interval` is the 95 % interval of its replicates where there is one."""

    run: str
    created: str
    value: float
    interval: tuple[float, float] | None = None
    validity: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelChange:
    """The level changed with the run at `point`: by `ratio`; `side` says whether for the better."""

    point: Point
    before: float
    after: float
    side: str

    @property
    def ratio(self) -> float:
        """The new level over the old one."""
        return self.after / self.before


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """The history of one benchmark's number on one system."""

    bench: str
    metric: str
    system: str
    units: str
    direction: str
    points: tuple[Point, ...]
    levels: tuple[Segment, ...]

    @property
    def changes(self) -> tuple[LevelChange, ...]:
        """Where the level changed, in the order of time."""
        return tuple(
            LevelChange(
                point=self.points[later.start],
                before=earlier.level,
                after=later.level,
                side=_side(later.level / earlier.level, self.direction),
            )
            for earlier, later in pairwise(self.levels)
        )

    @property
    def is_judged(self) -> bool:
        """Whether there are enough runs to look for changes."""
        return len(self.points) >= LEAST_HISTORY

    def to_json(self) -> dict[str, Any]:
        """Return the value of `history --json`."""
        return {
            "bench": self.bench,
            "metric": self.metric,
            "system": self.system,
            "units": self.units,
            "direction": self.direction,
            "points": [
                {
                    "run": point.run,
                    "created": point.created,
                    "value": point.value,
                    "ci95": None if point.interval is None else list(point.interval),
                    "validity": point.validity or None,
                }
                for point in self.points
            ],
            "levels": [
                {"from": self.points[point.start].run, "runs": point.stop - point.start, "level": point.level}
                for point in self.levels
            ],
            "changes": [
                {
                    "run": point.point.run,
                    "created": point.point.created,
                    "before": point.before,
                    "after": point.after,
                    "ratio": point.ratio,
                    "side": point.side,
                }
                for point in self.changes
            ],
        }


def trends(bench: str, metric: str, rows: Sequence[Mapping[str, Any]], *, last: int | None = None) -> tuple[Trend, ...]:
    """Return the trend of each system and unit, over all runs or the `last` ones.

    Rows have run, created, host, device, value, units, direction, low, high, validity, outcome.

    Numbers that are invalid, not above zero, or of a benchmark that did not pass, whose processes are not those of the other
    runs, are left out.
    """
    groups: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        is_whole = row["validity"] != "invalid" and row["outcome"] == "passed"
        if is_whole and row["value"] is not None and row["value"] > 0:
            system = ", ".join(part for part in (row["host"], row["device"]) if part) or "unknown system"
            groups.setdefault((system, row["units"] or "", row["direction"] or "none"), []).append(row)
    result = []
    for (system, units, direction), members in sorted(groups.items()):
        ordered = sorted(members, key=lambda row: (row["created"] or "", row["run"]))[-(last or len(members)) :]
        points = tuple(
            Point(
                run=row["run"],
                created=row["created"] or "",
                value=row["value"],
                interval=None if row["low"] is None or row["high"] is None else (row["low"], row["high"]),
                validity=row["validity"] or "",
            )
            for row in ordered
        )
        result.append(
            Trend(
                bench=bench,
                metric=metric,
                system=system,
                units=units,
                direction=direction,
                points=points,
                levels=segments([point.value for point in points]),
            )
        )
    return tuple(result)


def _side(ratio: float, direction: str) -> str:
    if direction not in ("higher", "lower"):
        return "different"
    return "better" if (ratio > 1) == (direction == "higher") else "worse"
