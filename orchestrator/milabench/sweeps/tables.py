"""Sweeps over servers as tables: a row for each point, which of them is the best, how far the limits are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from milabench.analysis.serving_model import POINT_METRICS, CurvePoint, PointValue, ServingCurve
from milabench.records.latencies import LATENCY_QUANTILES, QUANTILES
from milabench.report.comparison_text import metric_label
from milabench.report.curves import CurveCase
from milabench.report.document import Table
from milabench.report.labels import format_number, percent_cell
from milabench.shown import grouped
from milabench.sweeps.curve import LEAST_POINTS, few_requests, why_no_best

LEGEND = (
    "tokens/s: output tokens of all users; ±: half-width of the 95 % interval over repeats, from 3 on;"
    " of a user: 1000 / TPOT p90; times in ms",
    "TTFT: from sending to the first token; TPOT: per token after it, of a request; ITL: between tokens;"
    " goodput: requests/s within the SLO",
)
BRIEF_LEGEND = ("columns: docs/how-to/measure-a-server.md",)
_HEADLINE = 90
"""The quantile of TTFT that a brief table and a narrow terminal keep."""
_SPARED = ("e2e", "tpot", "itl")
"""The latencies that a narrow terminal leaves out, in the order in which it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """A column of the table of points. `rank` says how early a narrow terminal does without, 0: never."""

    heading: str
    cell: Callable[[CurvePoint], str]
    rank: int = 0
    is_brief: bool = False
    is_text: bool = False


def points_table(bench: str, curve: ServingCurve, *, is_brief: bool = False, first: Sequence[str] = ()) -> Table:
    """Return a row for each point, in the order of the sweep. Columns without a number are left out, some are the `first`."""
    ranks = {heading: rank for rank, heading in enumerate(first)}
    wanted = sorted(_columns(curve), key=lambda column: ranks.get(column.heading, len(ranks)))
    columns = [column for column in wanted if column.is_brief or not is_brief]
    client = f"{curve.client} {curve.version}".strip()
    seed = "" if curve.seed is None else f"seed {curve.seed}"
    asked = ", ".join(filter(None, (client, seed)))
    spare = sorted((column for column in columns if column.rank), key=lambda column: column.rank)
    return Table(
        title=f"curve of {bench}" + (f", asked by {asked}" if asked else ""),
        headings=tuple(column.heading for column in columns),
        is_text=tuple(column.is_text for column in columns),
        rows=tuple(tuple(column.cell(point) for column in columns) for point in curve.points),
        spare=tuple(column.heading for column in spare),
    ).without_empty([column.heading for column in columns[1:]])[0]


def times_tables(bench: str, curve: ServingCurve) -> tuple[Table, ...]:
    """Return all quantiles of all times at each point, ms. Empty where no point was measured."""
    measured = [point for point in curve.points if point.values]
    headings = ("point", *(quantile.label for quantile in LATENCY_QUANTILES.values()))
    table = Table(
        title=f"times of {bench}, ms",
        headings=headings,
        is_text=(True, *(False for _ in LATENCY_QUANTILES)),
        rows=tuple((point.name, *(_number(name)(point) for name in LATENCY_QUANTILES)) for point in measured),
        spare=tuple(each.label for name in _SPARED for each in LATENCY_QUANTILES.values() if each.latency == name),
    )
    return (table.without_empty(headings[1:])[0],) if measured else ()


def curve_lines(bench: str, curve: ServingCurve) -> tuple[str, ...]:
    """Return which point is the best, how far the SLO is kept, the area, and that points are few."""
    lines = (_best_line(bench, curve), _slo_line(curve), _area_line(curve), _few_line(len(curve.points)))
    few = "" if not curve.best and curve.has_few_requests else few_requests(curve)  # in the first line else
    return tuple(filter(None, (*lines, few)))


def case_of_curve(bench: str, curve: ServingCurve) -> CurveCase:
    """Return a curve as a test case."""
    table = points_table(bench, curve, is_brief=True)
    points = (
        f"{name}: "
        + ", ".join(f"{heading} {cell}" for heading, cell in zip(table.headings[1:], cells, strict=True) if cell)
        for name, *cells in table.rows
    )
    missing = (f"{names}: {why}" for names, why in point_remarks(curve, has_notes=False))
    return CurveCase(about=curve_lines(bench, curve), points=tuple(points), missing=tuple(missing))


def slo_text(curve: ServingCurve) -> str:
    """Return `TTFT p90 <= 500 ms, TPOT p90 <= 50 ms`. Empty without limits."""
    units = {name: POINT_METRICS[name].units if name in POINT_METRICS else "" for name in curve.slo}
    return ", ".join(f"{metric_label(name)} <= {limit:g} {units[name]}".rstrip() for name, limit in curve.slo.items())


def point_remarks(curve: ServingCurve, *, has_notes: bool = True) -> list[tuple[str, str]]:
    """Return why points failed or were skipped, and the notes on those that were measured. Points that are alike together."""
    alike = grouped((text, point.name) for point in curve.points for text in _remarks(point, has_notes=has_notes))
    return [(", ".join(names), text) for text, names in alike.items()]


def _remarks(point: CurvePoint, *, has_notes: bool) -> Iterator[str]:
    if point.state != "measured" or point.why:
        yield ": ".join(filter(None, (_state(point), point.why)))
    if has_notes:
        yield from point.notes


def _state(point: CurvePoint) -> str:
    """Return `failed` or `skipped`. Empty for a point that every repeat measured."""
    if point.state != "measured":
        return point.state
    return "not in every repeat" if point.why else ""


def _columns(curve: ServingCurve) -> tuple[_Column, ...]:
    def remark(point: CurvePoint) -> str:
        kinds = (note.partition(":")[0] for note in point.notes)
        return ", ".join(filter(None, ("best" if point.name == curve.best else "", _state(point), *kinds)))

    def kept(point: CurvePoint) -> str:
        is_open = bool(curve.slo) and point.is_in_area
        return "?" if point.meets_slo is None and is_open else {None: "", True: "yes", False: "no"}[point.meets_slo]

    money = f"{curve.currency or 'cost'}/M tokens"
    return (
        _Column(heading="point", cell=lambda point: point.name, is_brief=True, is_text=True),
        _Column(heading="tokens/s", cell=_with_interval("output_tps"), is_brief=True),
        _Column(heading="all tokens/s", cell=_number("total_tps"), rank=4),
        _Column(heading="of a user", cell=_number("user_tps"), is_brief=True),
        _Column(heading="requests/s", cell=_number("request_rate"), rank=5),
        _Column(heading="goodput", cell=_number("goodput"), rank=6),
        *map(_ttft_column, QUANTILES),
        _Column(heading="TPOT p90", cell=_number("tpot_p90_ms"), rank=12, is_brief=True),
        _Column(heading="errors %", cell=_number("error_rate", percent_cell), rank=11, is_brief=True),
        _Column(heading="SLO", cell=kept, is_brief=True, is_text=True),
        _Column(heading="KV cache %", cell=_number("kv_cache", percent_cell), rank=3),
        _Column(heading="batch", cell=_number("running", "{:.1f}".format), rank=2),
        _Column(heading="waiting", cell=_number("waiting", "{:.1f}".format), rank=1),
        _Column(heading="J/M tokens", cell=_number("joules_per_mtok"), rank=9),
        _Column(heading=money, cell=_number("cost_per_mtok"), rank=10),
        _Column(heading="remarks", cell=remark, is_brief=True, is_text=True),
    )


def _ttft_column(q: float) -> _Column:
    is_headline = q == _HEADLINE
    cell = _number(f"ttft_p{q}_ms")
    return _Column(heading=f"TTFT p{q}", cell=cell, rank=13 if is_headline else 7, is_brief=is_headline)


def _number(name: str, text: Callable[[float], str] = format_number) -> Callable[[CurvePoint], str]:
    def cell(point: CurvePoint) -> str:
        return text(point.values[name].value) if name in point.values else "-" if name in point.few else ""

    return cell


def _with_interval(name: str) -> Callable[[CurvePoint], str]:
    def cell(point: CurvePoint) -> str:
        number = point.values.get(name)
        if number is None or number.ci95 is None or number.value <= 0:
            return _number(name)(point)
        return f"{format_number(number.value)} ±{50 * (number.ci95[1] - number.ci95[0]) / number.value:.1f}%"

    return cell


def _best_line(bench: str, curve: ServingCurve) -> str:
    if not curve.best and (curve.has_few_requests or not any(point.is_in_area for point in curve.points)):
        return f"best point of {bench}: none: {why_no_best(curve)}"
    if not curve.best:
        why = "meets the SLO" if curve.slo else "was measured in every repeat"
        return f"best point of {bench}: none {why}, so that it has no number"
    best = next((point for point in curve.points if point.name == curve.best), None)
    output = best.values.get("output_tps") if best is not None else None
    number = "" if output is None else f", {_spanned(output)} tokens/s, the number of the benchmark"
    return f"best point of {bench}: {curve.best}{number}"


def _slo_line(curve: ServingCurve) -> str:
    if not curve.slo:
        return "SLO: none stated, so that every point counts"
    limits = (("concurrency", curve.slo_concurrency), ("rate", curve.slo_rate))
    kept = [f"{name} {limit:g}" for name, limit in limits if limit is not None]
    if not kept and (other := [point.name for point in curve.points if point.meets_slo]):
        kept = other  # scenarios have no load
    if not any(point.state == "measured" for point in curve.points):
        return f"SLO: {slo_text(curve)}"
    none = "no point meets it" if any(point.meets_slo is False for point in curve.points) else "no point has a verdict"
    none = "no point is shown to meet it" if curve.has_few_requests else none
    return f"SLO: {slo_text(curve)}; " + (f"kept at up to {', '.join(kept)}" if kept else none)


def _area_line(curve: ServingCurve) -> str:
    return "" if curve.area is None else f"area below the steps: {_spanned(curve.area)} (tokens/s)^2"


def _few_line(points: int) -> str:
    if points >= LEAST_POINTS:
        return ""
    return f"{points} point{'' if points == 1 else 's'}: fewer than {LEAST_POINTS} do not show where a curve bends"


def _spanned(number: PointValue) -> str:
    interval = "" if number.ci95 is None else " [{}, {}]".format(*map(format_number, number.ci95))
    return format_number(number.value) + interval
