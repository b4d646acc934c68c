"""A benchmark's runs in the order of time, system by system, and where its level changed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import attrgetter
from typing import Annotated

from msgspec import Struct

from milabench.analysis.json_codec import OPTIONAL, JsonKey
from milabench.events.stored_json import Number
from milabench.history.changepoints import LEAST_HISTORY, segments, shown_changes


class HistoryRow(Struct, kw_only=True):
    """A benchmark's number in a run, and on what it was measured. `low` and `high` bound the 95 % interval of its replicates."""

    run: str
    created: str | None = None
    host: str | None = None
    device: str | None = None
    size: str | None = None
    asked: str | None = None
    value: Number | None
    units: str | None = None
    direction: str | None = None
    low: Number | None = None
    high: Number | None = None
    validity: str | None = None
    outcome: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A run's number. `interval` is the 95 % interval of its replicates where there is one."""

    run: str
    created: str
    value: float
    interval: Annotated[tuple[float, float] | None, JsonKey("ci95")] = None
    validity: Annotated[str, JsonKey(write=lambda validity: validity or None)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """Runs between two changes: the first of them, their number and their level."""

    first: Annotated[str, JsonKey("from")]
    runs: int
    level: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelChange:
    """The level changed with a run, by `ratio` (new over old). `side` says whether for the better.

    `is_perhaps`: noise like this history's might cause such a change.
    """

    run: str
    created: str
    before: float
    after: float
    ratio: float
    side: str
    is_perhaps: Annotated[bool, JsonKey("perhaps", is_optional=True)] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """The history of a benchmark's number, of a size on a system. Its fields are the JSON of `history --json`.

    `asked` is its work, as JSON text. Empty where not recorded.
    """

    bench: str
    metric: str
    system: str
    size: Annotated[str, OPTIONAL] = ""
    asked: Annotated[str, OPTIONAL] = ""
    units: str
    direction: str
    points: tuple[Point, ...] = ()
    levels: tuple[Level, ...] = ()
    changes: tuple[LevelChange, ...] = ()

    @property
    def is_judged(self) -> bool:
        """Whether there are enough runs to look for changes."""
        return len(self.points) >= LEAST_HISTORY


def trends(bench: str, metric: str, rows: Iterable[HistoryRow], *, last: int | None = None) -> tuple[Trend, ...]:
    """Return the trend of each system, size, work and unit, over all runs or the `last` ones.

    Numbers that are invalid, not above zero, or of a benchmark that did not pass, whose processes differ from the other
    runs, are left out.
    """
    groups: dict[Trend, list[Point]] = {}
    for row in rows:
        is_whole = row.validity != "invalid" and row.outcome == "passed"
        if is_whole and row.value is not None and row.value > 0:
            interval = None if row.low is None or row.high is None else (row.low, row.high)
            created, validity = row.created or "", row.validity or ""
            point = Point(run=row.run, created=created, value=row.value, interval=interval, validity=validity)
            groups.setdefault(_series(bench, metric, row), []).append(point)
    result = []
    for series in sorted(groups, key=attrgetter("system", "size", "asked", "units", "direction")):
        members = groups[series]
        # Names begin with the time only by habit; they decide between runs of the same second.
        points = tuple(sorted(members, key=lambda point: (point.created, point.run))[-(last or len(members)) :])
        values = [point.value for point in points]
        parts = segments(values)
        levels = [Level(first=points[part.start].run, runs=part.stop - part.start, level=part.level) for part in parts]
        changes = [
            LevelChange(
                run=points[later.start].run,
                created=points[later.start].created,
                before=earlier.level,
                after=later.level,
                ratio=later.level / earlier.level,
                side=_side(later.level / earlier.level, series.direction),
                is_perhaps=not is_shown,
            )
            for (earlier, later), is_shown in zip(pairwise(parts), shown_changes(values, parts), strict=True)
        ]
        result.append(replace(series, points=points, levels=tuple(levels), changes=tuple(changes)))
    return tuple(result)


def _series(bench: str, metric: str, row: HistoryRow) -> Trend:
    """Return the trend that a row belongs to, without its points."""
    return Trend(
        bench=bench,
        metric=metric,
        system=", ".join(part for part in (row.host, row.device) if part) or "unknown system",
        size=row.size or "",
        asked=row.asked or "",
        units=row.units or "",
        direction=row.direction or "none",
    )


def _side(ratio: float, direction: str) -> str:
    if direction not in ("higher", "lower"):
        return "different"
    return "better" if (ratio > 1) == (direction == "higher") else "worse"
