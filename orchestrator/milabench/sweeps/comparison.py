"""Curves of a benchmark on several systems: at each point that both swept, and of the dominated area, a ratio and a verdict.

docs/explanation/methodology.md, 1.4: the intervals of a curve's points hold together, and all verdicts on curves form a family
of claims.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from milabench.analysis.comparison_model import (
    ComparisonRow,
    Contrast,
    CurveComparison,
    CurveRatio,
    System,
    SystemCurve,
    SystemResult,
    log_level,
)
from milabench.analysis.contrasts import contrast_of, with_verdicts
from milabench.analysis.sample_statistics import geometric_mean
from milabench.analysis.serving_model import AREA, AREA_UNITS, POINT_METRICS, CurvePoint, PointValue, ServingCurve
from milabench.analysis.sides import ACROSS_HINT, noise_of
from milabench.analysis.system_diff import differing_requests
from milabench.analysis.two_samples import SIGNIFICANCE
from milabench.events.values import SMALLEST_NUMBER

# The ratio of TPOT p90 is that of user_tps, which is 1000 / TPOT p90.
COMPARED = ("output_tps", "user_tps", "ttft_p90_ms")
# Reasons for doubt that stand on single points, whose notes say on which.
_OF_POINTS = (
    *("points-missing", "client-bound", "client-differs"),
    *("output-differs", "tokens-unknown", "request-errors", "tail"),
)


def compare_curves(systems: Sequence[System], *, margin: float, across: bool) -> tuple[CurveComparison, ...]:
    """Compare the curves of each benchmark that has a curve on the first system and on another.

    `margin` is the relative difference below which nothing is called faster or slower. `across` compares also where clients
    asked other requests of the servers.
    """
    names = sorted({bench.bench for _, bench in systems[0].benches if bench.serving is not None})
    sweeps = [sweep for name in names if (sweep := _sweep(name, systems, margin, across=across)) is not None]
    judged = iter(with_verdicts([row for _, rows in sweeps for row in rows.values()]))
    return tuple(replace(comparison, ratios=tuple(_ratios(rows, judged))) for comparison, rows in sweeps)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """The curves of a system, one for each session that has a curve. `why_not` says why they are not compared with the first's.

    `doubts` are the warnings about the whole benchmark, such as a machine that others used.
    """

    system: str
    curves: tuple[ServingCurve, ...]
    doubts: tuple[str, ...] = ()
    why_not: str = ""

    def notes(self, point: str) -> tuple[str, ...]:
        """Return the warnings about a number of a point, or without a point of the whole curve."""
        points = [p for curve in self.curves for p in curve.points if p.state == "measured" and point in ("", p.name)]
        # Of a measured point, `why` says in which of its launches it failed.
        return (*self.doubts, *(note for p in points for note in (*p.notes, p.why) if note))

    def points(self, name: str) -> list[CurvePoint]:
        """Return a point of the sweep, of each session that measured it."""
        return [p for curve in self.curves for p in curve.points if p.name == name and p.state == "measured"]

    @property
    def in_area(self) -> frozenset[str]:
        """The names of the points that the areas of its sessions are of."""
        return frozenset().union(*(curve.points_in_area for curve in self.curves))

    def state(self, name: str) -> str:
        """Return the state of a point in words."""
        found = [p for curve in self.curves for p in curve.points if p.name == name]
        if not found:
            return "is not in its sweep"
        first = next((p for p in found if p.state == "measured"), found[0])
        return f"{first.state}: {first.why}" if first.why else first.state

    def values(self, metric: str, point: str) -> list[tuple[float, ...]]:
        """Return the repeats' numbers, a session at a time."""
        if metric == AREA:
            numbers: Iterable[PointValue | None] = (curve.area for curve in self.curves)
        else:
            numbers = (p.values.get(metric) for p in self.points(point))
        return [number.launches or (number.value,) for number in numbers if number is not None]


_Rows = dict[tuple[str, str], ComparisonRow]
"""The compared numbers of a benchmark's curves, by metric and point."""


def _sweep(
    name: str, systems: Sequence[System], margin: float, *, across: bool
) -> tuple[CurveComparison, _Rows] | None:
    """Return the curves of a benchmark, and its rows before their verdicts, which need the curves of all benchmarks."""
    sides = [_side(systems[0], system, name, across=across) for system in systems]
    if not any(side.curves for side in sides[1:]):
        return None
    compared = [] if sides[0].why_not else [side for side in sides if not side.why_not]
    widest = max(margin, *(noise_of(system, name) for system in systems))
    comparison = CurveComparison(
        bench=name,
        margin=widest,
        curves=tuple(curve for system in systems for curve in _named_curves(system, name)),
        ratios=(),
        apart=(*((side.system, side.why_not) for side in sides if side.why_not), *_apart(compared)),
    )
    return comparison, _with_joint_intervals(_rows(name, widest, compared))


def _rows(name: str, margin: float, sides: Sequence[_Side]) -> _Rows:
    if not sides:
        return {}
    same = [replace(side, curves=side.curves if side.in_area == sides[0].in_area else ()) for side in sides]
    keys = [(metric, point) for metric in COMPARED for point in _points(sides)]
    return {key: _row(name, margin, sides, *key) for key in keys} | {(AREA, ""): _row(name, margin, same, AREA, "")}


def _points(sides: Sequence[_Side]) -> tuple[str, ...]:
    """Return the names of all points, in the order of the sweeps."""
    return tuple(dict.fromkeys(point.name for side in sides for curve in side.curves for point in curve.points))


def _apart(sides: Sequence[_Side]) -> Iterable[tuple[str, str]]:
    """Yield the points without a ratio on some side, and the area, each with why."""
    for point in _points(sides):
        if why := _why_apart(point, sides):
            yield point, why
    if unlike := [side.system for side in sides[1:] if side.in_area != sides[0].in_area]:
        yield AREA, f"{', '.join(unlike)}: is over different points than the area of {sides[0].system}"


def _side(first: System, system: System, name: str, *, across: bool) -> _Side:
    benches = [bench for _, bench in system.benches if bench.bench == name]
    curves = tuple(bench.serving for bench in benches if bench.serving is not None)
    why_not = "" if curves else "has no curve"
    if invalid := next((bench for bench in benches if bench.validity == "invalid"), None):
        why_not = f"invalid: {', '.join(invalid.doubts)}"
    elif not across and (unlike := differing_requests([first, system], name)):
        why_not = f"asks other requests than {first.name}: {unlike}{ACROSS_HINT}"
    doubts = tuple(doubt for bench in benches for doubt in bench.doubts if doubt not in _OF_POINTS)
    return _Side(system=system.name, curves=curves, doubts=doubts, why_not=why_not)


def _named_curves(system: System, name: str) -> Iterable[SystemCurve]:
    """Yield the curves of a system's sessions, named by their runs where there are several."""
    for run, bench in system.benches:
        if bench.bench == name and bench.serving is not None:
            yield SystemCurve(name=f"{system.name} {run}".rstrip() if run else system.name, curve=bench.serving)


def _why_apart(point: str, sides: Sequence[_Side]) -> str:
    """Return why a point has no ratio on a side. Empty where it has a ratio on each."""
    states = [side.state(point) for side in sides]
    if any(state != "measured" for state in states):
        return "; ".join(f"{side.system}: {state}" for side, state in zip(sides, states, strict=True))
    arrivals = [", ".join(sorted({p.arrivals for p in side.points(point)})) for side in sides]
    if len(set(arrivals)) > 1:
        named = (f"{side.system} {words or 'none'}" for side, words in zip(sides, arrivals, strict=True))
        return f"arrivals differ: {', '.join(named)}"
    return ""


def _row(name: str, margin: float, sides: Sequence[_Side], metric: str, point: str) -> ComparisonRow:
    """Return a number of a point in the form of a compared benchmark, without a verdict."""
    units = AREA_UNITS if metric == AREA else POINT_METRICS[metric].units
    direction = "higher" if metric == AREA else POINT_METRICS[metric].direction
    results = []
    for side in sides:
        sessions = side.values(metric, point)
        notes = side.notes(point)
        values = tuple(chain.from_iterable(sessions))
        counts = bool(values) and min(values) >= SMALLEST_NUMBER
        result = SystemResult(
            system=side.system,
            outcome="passed",
            units=units,
            direction=direction,
            values=values,
            sessions=tuple(map(len, sessions)),
            validity="suspect" if notes else "valid",
            doubts=notes,
            counts=counts,
            log_mean=log_level(sessions, direction) if counts else None,
        )
        results.append(replace(result, value=geometric_mean(result.replicates)) if counts else result)
    first = results[0]
    arrivals = [{p.arrivals for p in side.points(point)} for side in sides]
    contrasts = tuple(
        contrast_of(first, result) if own == arrivals[0] else None
        for result, own in zip(results[1:], arrivals[1:], strict=True)
    )
    return ComparisonRow(
        bench=name,
        units=units,
        direction=direction,
        weight=None,
        margin=margin,
        sides=tuple(results),
        contrasts=contrasts,
    )


def _with_joint_intervals(rows: _Rows) -> _Rows:
    """Return the rows with intervals that hold together over the points of a metric, on each system (Bonferroni)."""
    counts = Counter(
        (metric, index)
        for (metric, _), row in rows.items()
        for index, contrast in enumerate(row.contrasts)
        if contrast is not None and contrast.ci95 is not None
    )
    return {
        (metric, point): replace(
            row,
            contrasts=tuple(_widened(contrast, counts[metric, index]) for index, contrast in enumerate(row.contrasts)),
        )
        for (metric, point), row in rows.items()
    }


def _widened(contrast: Contrast | None, together: int) -> Contrast | None:
    if contrast is None or contrast.evidence is None:
        return contrast
    evidence = replace(contrast.evidence, together=together)
    return replace(contrast, ci95=evidence.interval(SIGNIFICANCE), evidence=evidence)


def _ratios(keys: Iterable[tuple[str, str]], rows: Iterator[ComparisonRow]) -> Iterable[CurveRatio]:
    for metric, point in keys:
        row = next(rows)
        for side, contrast in zip(row.sides[1:], row.contrasts, strict=True):
            if contrast is None or row.sides[0].value is None or side.value is None:
                continue
            yield CurveRatio(
                system=side.system,
                point=point,
                metric=metric,
                units=row.units,
                first=row.sides[0].value,
                value=side.value,
                launches=(len(row.sides[0].values), len(side.values)),
                sessions=(len(row.sides[0].sessions), len(side.sessions)),
                contrast=contrast,
            )
