"""The content of reports of a comparison: tables, failures, differences, and the texts of their cells."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from milabench.analysis.comparison_model import (
    Comparison,
    ComparisonRow,
    Contrast,
    Index,
    SystemResult,
)
from milabench.analysis.comparison_words import why_no_interval
from milabench.analysis.intervals import Interval
from milabench.analysis.job_mix import JobMix
from milabench.analysis.serving_model import POINT_METRICS
from milabench.analysis.summary_model import Summary, some_names
from milabench.analysis.system_diff import Difference
from milabench.report import model
from milabench.report.document import Table, headed_table, shown_tables, words_table
from milabench.report.labels import format_number
from milabench.shown import grouped

_TOO_FEW_REPEATS = 0.5
"""From this relative difference on, the smallest difference that could be found only shows that there are too few repeats."""


def ratio_text(value: float | None) -> str:
    """Return a ratio with four digits after the point. Empty when there is none."""
    return "" if value is None else f"{value:.4f}"


def interval_text(interval: Interval | None) -> str:
    """Return `[low, high]` of a ratio. Empty when there is none."""
    return "" if interval is None else f"[{interval[0]:.4f}, {interval[1]:.4f}]"


def title(comparison: Comparison) -> str:
    """Return the names of the compared systems and of the first."""
    first, *names = (system.name for system in comparison.systems)
    return f"{', '.join(names)} compared with {first}"


def side_text(side: SystemResult) -> str:
    """Return the value of a side, its half-width in per cent and its mark. Without a value, the outcome."""
    if side.value is None:
        return side.outcome if side.outcome != "passed" else "no rate"
    # Half of the interval's width: on logarithms it is not symmetric, but nearly so where it is narrow enough to matter.
    half = "" if side.ci95 is None else f" ±{50 * (side.ci95[1] - side.ci95[0]) / side.value:.1f}%"
    return f"{format_number(side.value)}{half}{_mark(side)}"


def plain_side_text(side: SystemResult) -> str:
    """Return the value of a side and its mark. Without a value, the outcome."""
    return side_text(replace(side, ci95=None))


def _mark(side: SystemResult) -> str:
    mark = {"suspect": " ?", "invalid": " !"}.get(side.validity or "", "")
    return mark if side.outcome == "passed" else f"{mark} ({side.outcome})"


def verdict_text(contrast: Contrast | None) -> str:
    """Return the verdict. An inconclusive verdict has the repeats that would decide it."""
    if contrast is None:
        return "excluded"
    is_open = contrast.verdict == "INCONCLUSIVE"
    unit = {"launches": "repeats a side"}.get(contrast.needed_unit, contrast.needed_unit)
    needed = f" (~{contrast.needed} {unit})" if contrast.needed and is_open else ""
    return contrast.verdict + needed


def ratios(rows: Iterable[ComparisonRow]) -> list[tuple[ComparisonRow, SystemResult, Contrast | None]]:
    """Return a benchmark, a system and its ratio to the first system for every pair of the two, row by row."""
    return [(row, side, contrast) for row in rows for side, contrast in zip(row.sides[1:], row.contrasts, strict=True)]


def ratio_table(
    comparison: Comparison, *, is_whole: bool = False, is_compact: bool = False, is_plain: bool = False
) -> Table:
    """Return absolute values and ratios: a row for each benchmark and system but the first, the best ratio first.

    `is_whole` repeats shared cells in the rows of a benchmark, for readers that sort them. `is_compact` shows of all values only
    the two that the ratio of a row is made of. `is_plain`: without their intervals, of which the ratio has its own.
    """
    first, *others = (system.name for system in comparison.systems)
    names = (first, "its value") if is_compact else (first, *others)
    value_text = plain_side_text if is_plain else side_text
    of_ratio = ("system", "repeats", "sessions", "ratio", "95 % interval", "p (Holm)", "verdict", "scaling")
    is_text = (
        True,
        True,
        *(False for _ in names),
        *(each in ("system", "95 % interval", "verdict") for each in of_ratio),
    )
    rows = []
    empty = ("",) * (2 + len(names))
    for row, side, contrast in ratios(by_ratio(comparison.rows)):
        shared = empty
        if is_whole or side is row.sides[1]:
            shared = (row.bench, row.units, *map(value_text, (row.sides[0], side) if is_compact else row.sides))
        rows.append(
            (
                *shared,
                side.system if len(others) > 1 else "",
                f"{len(row.sides[0].values)}/{len(side.values)}",
                sessions_text((len(row.sides[0].sessions), len(side.sessions))),
                ratio_text(contrast.ratio if contrast else None),
                interval_text(contrast.ci95 if contrast else None),
                p_text(contrast),
                verdict_text(contrast),
                ratio_text(contrast.efficiency if contrast else None),
            )
        )
    headings = ("bench", "units", *names, *of_ratio)
    spare = ("p (Holm)", "scaling", "repeats", "sessions", *names[1:-1], "units", names[0], names[-1])
    whole = Table(title="benchmarks", headings=headings, is_text=is_text, rows=tuple(rows), spare=spare)
    return whole.without_empty(("system", "sessions", "scaling"))[0]


def sessions_text(counts: tuple[int, int]) -> str:
    """Return the number of runs that the repeats of either side come from. Empty where both come from a single run."""
    return f"{counts[0]}/{counts[1]}" if max(counts) > 1 else ""


def metric_label(metric: str) -> str:
    """Return the name of a curve's number in a narrow column. The area has no entry of its own."""
    return POINT_METRICS[metric].label.partition(" (")[0] if metric in POINT_METRICS else metric


def power_lines(comparison: Comparison) -> list[str]:
    """Return how small a difference these data would show, for each index."""
    return [
        f"{index_name(index)}: {_detectable_text(index.detectable)}"
        for index in comparison.indices
        if index.detectable is not None
    ]


def _detectable_text(difference: float) -> str:
    """Return the size of a difference that such data would show."""
    if difference >= _TOO_FEW_REPEATS:
        return "these repeats are too few to detect a difference of 50 %. Measure more"
    return f"with these repeats a difference of {difference:.2%} is detected every second time. More repeats detect smaller ones"


def index_name(index: Index) -> str:
    """Return the system of an index, and whose weights it has where they were given or suites differ in them."""
    return index.system + (f" (weights of {index.weights_of})" if index.weights_of else "")


def by_ratio(rows: Sequence[ComparisonRow]) -> list[ComparisonRow]:
    """Return the rows by the ratio of the last system, the fastest first. Those without a ratio last."""
    return sorted(rows, key=lambda row: (-row.contrasts[-1].ratio if row.contrasts[-1] else math.inf, row.bench))


def p_text(contrast: Contrast | None) -> str:
    """Return the corrected p-value of a difference beyond the margin."""
    if contrast is None or contrast.p_holm is None:
        return ""
    return "<0.0001" if contrast.p_holm < 0.0001 else f"{contrast.p_holm:.4f}"


def index_table(comparison: Comparison) -> Table:
    """Return the index of each system and the numbers it depends on."""
    rows = [
        (
            index_name(index),
            ratio_text(index.value),
            interval_text(index.ci95) or f"none: {why_no_interval(index)}",
            f"{index.complete[0]} of {index.complete[1]}"
            + ("" if index.complete[0] == index.complete[1] else ", INCOMPLETE")
            + (f", {index.suspects} suspect" if index.suspects else ""),
            index.verdict if index.value is not None else "",
            left_out(index),
            index.holds if index.verdict in ("FASTER", "SLOWER") else "",
        )
        for index in comparison.indices
    ]
    columns = "system | #index | 95 % interval | benchmarks | verdict | without one | weights"
    return headed_table("index", columns, rows, spare=("weights", "without one"))


def left_out(index: Index) -> str:
    """Return the range of the index when each benchmark is left out in turn, with those that move it most."""
    if len(index.without) < 2:
        return ""
    low, high = min(index.without, key=index.without.__getitem__), max(index.without, key=index.without.__getitem__)
    return f"{index.without[low]:.4f} (without {low}) to {index.without[high]:.4f} (without {high})"


def named_summaries(comparison: Comparison) -> list[tuple[str, Summary]]:
    """Return the summaries of all systems by name, of further sessions also by their runs' names."""
    return [
        (system.name if not system.later else f"{system.name} {session.summary.run}", session.summary)
        for system in comparison.systems
        for session in system.sessions
    ]


def job_tables(comparison: Comparison) -> tuple[Table, ...]:
    """Return a table of the time, energy and cost of the same work. Empty where no benchmark counts on all systems."""
    derived = "an hour of each benchmark on the first system, times its weight"
    title = f"time, energy and cost of {'the declared work' if comparison.has_work else derived}"
    columns = "system | #hours | ?95 % interval | ?#kWh | ?#cost | ?#index per watt | ?#index per money | ?not known"
    spare = ("not known", "index per money", "index per watt", "95 % interval")
    return shown_tables(title, columns, map(_job_row, comparison.job_mix), spare=spare)


def _job_row(mix: JobMix) -> tuple[str, ...]:
    source = f" ({mix.energy_from})" if mix.energy_kwh is not None else ""
    return (
        mix.system,
        f"{mix.time_h:.4g}",
        interval_text(mix.time_ci95),
        "" if mix.energy_kwh is None else f"{mix.energy_kwh:.4g}{source}",
        "" if mix.cost is None else f"{mix.cost:.4g} {mix.currency}".strip(),
        ratio_text(mix.per_watt),
        ratio_text(mix.per_money),
        ", ".join(mix.missing),
    )


def failed_entries(comparison: Comparison) -> list[tuple[str, str]]:
    """Return the failures, system by system, grouped by reason."""
    return [
        (f"{some_names(steps)} on {system.name}", text)
        for system in comparison.systems
        for text, steps in grouped((failure.reason, failure.name) for failure in system.failures).items()
    ]


def suspects(comparison: Comparison) -> list[tuple[str, str]]:
    """Return the marked numbers in words, grouped by reason."""
    marked = [
        ((system.name, f"{doubt}: {text}" if text else str(doubt)), run + bench.bench)
        for system in comparison.systems
        for run, bench in system.benches
        if bench.validity in ("suspect", "invalid")
        for doubt, text in model.warnings_of(bench, system.summary.profile).items()
        if doubt in bench.doubts
    ]
    named = ((text, f"{', '.join(names)} on {name}") for (name, text), names in grouped(marked).items())
    return [("; ".join(names), text) for text, names in grouped(named).items()]


def verdict_notes(comparison: Comparison) -> list[str]:
    """Return the notes on verdicts that need a note."""
    several = len(comparison.systems) > 2
    return [
        f"{row.bench}{f' on {side.system}' if several else ''}: {contrast.note}"
        for row, side, contrast in ratios(comparison.rows)
        if contrast is not None and contrast.note
    ]


def differences_table(comparison: Comparison, differences: Sequence[Difference]) -> Table:
    """Return the differences between the systems, the closest to the changed numbers first."""
    names = tuple(system.name for system in comparison.systems)
    rows = [
        (
            "*" if difference.is_near else "",
            difference.area,
            difference.name,
            *("-" if value is None else value for value in difference.values),
            ", ".join(difference.benches) if len(difference.benches) < len(comparison.rows) else "",
        )
        for difference in differences
    ]
    return words_table("differences, most likely causes first", ("", "area", "what", *names, "benchmarks"), rows)


def legend_lines(comparison: Comparison) -> list[str]:
    """Return the legend: how the numbers are computed."""
    what = "all its instances together" if comparison.per == "system" else "an instance"
    lines = [
        f"ratio: {what}, over the first system's, > 1 means better. For lower-is-better metrics the ratio is inverted."
        " interval: 95 %, Welch on logarithms of repeats, or of sessions where a side has several",
        f"FASTER, SLOWER: beyond {comparison.margin:.2%}. EQUIVALENT, DIFFERENT-BUT-SMALL: within it by two one-sided tests,"
        " both by Holm's correction over all rows",
        "index: weighted geometric mean of the ratios of the benchmarks that count on both. Its interval is for this suite",
        "repeats, sessions: on each side. ~: about this number would decide. ±: half the 95 % interval. ?: suspect, !: invalid",
    ]
    if comparison.curves:
        lines.append(
            "curves: the intervals of a number hold jointly, at 95 %, over all points. The verdicts on all points, numbers"
            " and areas form a separate family. The ratio of TPOT p90 is the ratio of a user's token rates"
        )
    noisy = [f"{row.bench} {row.margin:.2%}" for row in comparison.rows if row.margin > comparison.margin]
    return [*lines, f"more than the margin by the noise of an A/A run: {', '.join(noisy)}"] if noisy else lines
