"""Drawings of a benchmark: series, distributions, devices, repeats, and how many fit in a page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from milabench.analysis.sample_statistics import mean
from milabench.analysis.summary_model import BenchSummary
from milabench.analysis.traces import QUANTILES, Trace
from milabench.pages.markup import Markup, el, html_table, note
from milabench.pages.plots import DistributionLine, Dots, distribution, dots, figure
from milabench.pages.strips import curves_of, step_timeline, timeline_notes
from milabench.report.document import Table
from milabench.report.labels import format_number, percent_cell
from milabench.report.run_tables import launch_name
from milabench.shown import grouped

# Steps of a benchmark that are drawn, and buckets of a curve, the finest first.
_FINENESS = ((6, 200), (4, 140), (3, 90), (2, 60), (1, 40), (1, 24))
_MOST_BYTES = 1_000_000  # half of a page: tables and the other drawings need the rest of its 2 MB
# What a bucket of a curve adds to the page (two points, forth and back), and what a drawing has without its curves.
_BYTES_A_BUCKET = 22
_BYTES_A_DRAWING = 3500
_MOST_PLACES = 40
_RANKS = 2  # of a step, whose distributions are drawn


@dataclass(frozen=True, slots=True, kw_only=True)
class Fineness:
    """How many steps of a benchmark are drawn, on each system, and in how many buckets. No step where they do not fit."""

    steps: int
    buckets: int


def fineness(traced: Iterable[Sequence[Trace]]) -> Fineness:
    """Return the finest level of detail at which all steps of these runs fit in a page."""
    groups = [group for run in traced for group in by_bench(run).values()]
    for steps, buckets in _FINENESS:
        curves = sum(curves_of(trace) for group in groups for trace in group[:steps])
        drawings = sum(len(group[:steps]) for group in groups)
        if curves * buckets * _BYTES_A_BUCKET + drawings * _BYTES_A_DRAWING <= _MOST_BYTES:
            return Fineness(steps=steps, buckets=buckets)
    return Fineness(steps=0, buckets=0)


def by_bench(traced: Sequence[Trace]) -> dict[str, list[Trace]]:
    """Return the traces of each benchmark that measured anything, in the order of their steps."""
    return grouped((trace.bench, trace) for trace in traced if trace.ranks or trace.devices or trace.host)


def selected_steps(traced: Sequence[Trace], most: int) -> list[Trace]:
    """Return at most `most` steps of a benchmark: throttled ones, the slowest, the fastest, some between; in order."""
    if len(traced) <= most:
        return list(traced)
    if most == 0:
        return []
    by_rate = sorted(range(len(traced)), key=lambda index: middle_rate(traced[index]))
    throttled = [index for index in by_rate if any(device.held_back for device in traced[index].devices)]
    spread = [by_rate[round(position * (len(traced) - 1) / max(1, most - 1))] for position in range(most)]
    # Not only throttled steps: normal ones are shown beside them for comparison.
    candidates = list(dict.fromkeys([*throttled[: (most + 1) // 2], spread[-1], *spread]))
    return [traced[index] for index in sorted(candidates[:most])]


def middle_rate(trace: Trace) -> float:
    """Return the median rate of a step's first rank, 0 where it has none."""
    quantiles = [rank.quantiles for rank in trace.ranks if rank.quantiles]
    return quantiles[0][len(quantiles[0]) // 2] if quantiles else 0.0


def step_timelines(traced: Sequence[Trace], how: Fineness, name: str = "") -> list[Markup]:
    """Return a drawing with its notes for each selected step. `name` is the system's where there are several."""
    drawn = selected_steps(traced, how.steps)
    if not drawn:
        too_large = "left out: the page would be larger than 2 MB. Report fewer runs at once"
        why = too_large if traced else "nothing was recorded"
        return [note(f"{name + ': ' if name else ''}the course of its steps is not shown: {why}.")]
    children = [
        figure(
            ["Course of ", el("code", trace.step), f" on {name}" if name else None],
            step_timeline(trace, how.buckets),
            ". ".join(text[:1].upper() + text[1:] for text in timeline_notes(trace)) + ".",
        )
        for trace in drawn
    ]
    if len(drawn) < len(traced):
        which = "throttled ones, the fastest, the slowest, some between"
        children.append(note(f"{len(drawn)} of {len(traced)} steps are drawn: {which}."))
    return children


def rate_distributions(named: Sequence[tuple[str, str, Trace]], bench: str) -> Markup:
    """Return the distribution of the rates of some steps: (name, a value of SERIES, trace)."""
    lines = []
    for name, mark, trace in named:
        for rank in trace.ranks[:_RANKS]:
            label = f"{name} rank {rank.rank}" if len(trace.ranks) > 1 else name
            lines += [DistributionLine(label=label, values=rank.quantiles, mark=mark)] if rank.quantiles else []
    # Steps of one system have its colour and dash; all but the first are thinner.
    first = {line.mark: position for position, line in reversed(list(enumerate(lines)))}
    lines = [replace(line, is_thin=first[line.mark] < position) for position, line in enumerate(lines)]
    units = next((rank.units for _, _, trace in named for rank in trace.ranks), "")
    if not lines:
        return note("The distribution of its rates is not shown: no observation lies inside a window.")
    drawing, clipped = distribution(f"distribution of rates of {bench}", lines, QUANTILES, units=units)
    is_cut = any(len(trace.ranks) > _RANKS for _, _, trace in named)
    several = f" The first {_RANKS} ranks of a step are drawn." if is_cut else ""
    caption = "How its rates are distributed inside the window (share at or below)"
    return figure(caption, drawing, (clipped + several).strip())


def _places(name: str, mark: str, bench: BenchSummary) -> list[Dots]:
    """Return the rates at each place (device, job) of a system, repeat by repeat."""
    rates = grouped((process.slot or "whole job", process.throughput.value) for process in bench.processes)
    rows = []
    for place, values in sorted(rates.items(), key=lambda entry: (entry[0] != "whole job", entry[0])):
        text = f"{len(values)} launch{'es' * (len(values) != 1)}, mean {format_number(mean(values))}"
        label = f"{place} on {name}" if name else place
        rows.append(Dots(label=label, values=tuple(values), centre=mean(values), mark=mark, note=text))
    return rows


def device_spread(benches: Sequence[tuple[str, str, BenchSummary]], units: str) -> Markup:
    """Draw the spread over devices and repeats of a benchmark: (system or empty, a value of SERIES, benchmark)."""
    rows = [row for name, mark, bench in benches for row in _places(name, mark, bench)]
    if sum(len(row.values) for row in rows) < 2:
        return note("A single process: differences between repeats or devices are not known.")
    notes = []
    for name, _, bench in benches:
        spreads = (("between devices", bench.spread_devices), ("between repeats", bench.spread_processes))
        parts = [f"{what} {100 * value:.2f} %" for what, value in spreads if value is not None]
        notes += [f"{name + ': ' if name else ''}{', '.join(parts)}"] if parts else []
    if len(rows) > _MOST_PLACES:
        notes.append(f"the first {_MOST_PLACES} of {len(rows)} places are drawn")
    return figure(
        "Each device or job by repeat (bar: its mean)",
        dots("rate at each place", rows[:_MOST_PLACES], units=units),
        "Standard deviation " + "; ".join(notes) if notes else None,
    )


def process_table(bench: BenchSummary) -> Markup | None:
    """Return a table of all processes with their rates."""
    if not bench.processes:
        return None
    rates = f"rate, {bench.units}" if bench.units else "rate"
    headings = ("step", "place", "launch", rates, "steps", "within %", "p50 ms", "p99 ms", "basis", "doubts")
    is_text = (True, True, False, False, False, False, False, False, True, True)
    rows = []
    for process in bench.processes:
        rate = process.throughput
        latency: Mapping[str, float] = rate.latency
        rows.append(
            (
                launch_name(process),
                process.slot or "job",
                str(process.repeat),
                format_number(rate.value),
                str(rate.observations),
                percent_cell(rate.spread_within),
                *(format_number(1000 * latency[name]) if name in latency else "" for name in ("p50", "p99")),
                rate.basis,
                ", ".join(rate.doubts),
            )
        )
    table = Table(title=f"processes of {bench.bench}", headings=headings, is_text=is_text, rows=tuple(rows))
    return html_table(table.without_empty()[0], can_filter=len(rows) > 8)
