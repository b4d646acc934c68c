"""The tables of a run in addition to the main table: nodes, expenses, use of devices, windows, other metrics, A/B pairs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from milabench.analysis.node_comparison import node_comparison
from milabench.analysis.paired_comparison import AB
from milabench.analysis.sample_statistics import median
from milabench.analysis.serving_model import POINT_METRICS
from milabench.analysis.steady_state import agree
from milabench.analysis.summary_model import Expense, ReplicateResult, Summary
from milabench.analysis.throughput import Throughput
from milabench.report.comparison_text import interval_text, ratio_text
from milabench.report.document import Table, headed_table, shown_tables
from milabench.report.labels import format_number, percent_cell, percents
from milabench.report.model import in_milliseconds, ordered
from milabench.shown import grouped

_LONG_STALL = 0.02  # of a window; a longer one is worth naming
_METRICS_ELSEWHERE = ("rate", "first_step", "steps_rate", "between_epochs", "pause")


def node_tables(summary: Summary) -> tuple[Table, ...]:
    """Return each node's number, and its ratio to the first node with interval and verdict. Empty for a run of a single node."""
    rows = []
    for row in node_comparison(summary):
        for side, contrast in zip(row.sides, (None, *row.contrasts), strict=True):
            cells = (row.bench, side.system, str(len(side.values)), format_number(side.value), side.units)
            compared = contrast and (ratio_text(contrast.ratio), interval_text(contrast.ci95), contrast.verdict)
            rows.append((*cells, *(compared or ("", "", ""))))
    return shown_tables("by node", "bench | node | #n | #perf | units | #x first node | 95 % interval | verdict", rows)


EXPENSES_TITLE = "energy, cost, carbon"


def expense_tables(named: Sequence[tuple[str, Summary]]) -> tuple[Table, ...]:
    """Return the expenses of each benchmark's work, of systems by name. Empty where they were not computed.

    Relative intervals are equal for an item, a million items and a run, and equal for a year of a node and of all nodes.
    """
    rows = []
    for system, summary in named:
        groups = grouped(((each.bench, each.quantity, each.source), each) for each in summary.expenses)
        for (bench, quantity, source), group in groups.items():
            first, of_year = group[0], group[-1]
            cells = dict.fromkeys(("run", "node year", "year"), "")
            cells |= {each.per: f"{format_number(each.value)} {each.units}" for each in group}
            # Of a launch without a window only what the whole of it took is known.
            is_whole = first.per == "run"
            item, of_item, million = ("", "", "") if is_whole else (first.per, *(cells[each.per] for each in group[:2]))
            rows.append(
                (
                    *(system, bench, quantity, ", ".join(first.parts), item, of_item, million, _share(first)),
                    *(cells["run"], cells["node year"], "" if is_whole else str(of_year.nodes), cells["year"]),
                    *("" if is_whole else _share(of_year), first.power, first.level, source),
                )
            )
    columns = (
        "?system | bench | what | made of | item | #per item | #per 1M items | ?#± % | ?#per run | #per node and year"
        "| #nodes | #all nodes, a year | ?#± % of it | power by | level | source"
    )
    return shown_tables(EXPENSES_TITLE, columns, rows, spare=("source", "made of", "per run", "± % of it", "item"))


def _share(expense: Expense) -> str:
    """Return the half-width of an interval on the logarithmic scale in per cent. `not known` where there is none."""
    if expense.ci95 is None:
        return "not known"
    return f"{100 * (math.sqrt(expense.ci95[1] / expense.ci95[0]) - 1):.2g}"


def compute_tables(summary: Summary) -> tuple[Table, ...]:
    """Return how much of its devices each benchmark uses, where the operations of its items are known. Else nothing."""
    rows = [
        (
            bench.bench,
            use.precision,
            format_number(use.achieved / 1e12),
            "" if use.peak is None else format_number(use.peak / 1e12),
            percent_cell(use.mfu),
            "" if use.measured_peak is None else format_number(use.measured_peak / 1e12),
            percent_cell(use.mfu_measured),
            use.measured_by,
        )
        for bench in ordered(summary.benchmarks)
        if (use := bench.compute) is not None
    ]
    columns = (
        "bench | precision | #Tflop/s | ?#published peak | ?#MFU % | ?#measured peak | ?#of measured % | ?measured by"
    )
    title = "use of each device: Tflop/s of the model, and the peak of dense products in its precision"
    return shown_tables(title, columns, rows, spare=("measured by", "measured peak", "published peak"))


def milabench13_tables(summary: Summary) -> tuple[Table, ...]:
    """Return the figures of milabench 1.3 next to ours, where its score is asked for of its own records. Else nothing."""
    rows = [
        (
            bench.bench,
            *map(str, (figures.n, figures.failed, figures.ngpu)),
            format_number(figures.rate),
            format_number(bench.perf),
            percent_cell(bench.perf / figures.rate - 1 if bench.perf and figures.rate else None),
            format_number(figures.score),
            "" if bench.weight is None else f"{bench.weight:g}",
        )
        for bench in ordered(summary.benchmarks)
        if (figures := bench.milabench13) is not None and figures.n
    ]
    if not summary.score.is_compat:
        return ()
    columns = "bench | #n | #fail | #ngpu | #rate | #perf | #difference % | #score | #weight"
    title = "figures of milabench 1.3: rate is the mean over all steps, perf is ours, over the time after warm-up"
    return shown_tables(title, columns, rows, spare=("ngpu", "weight"))


def launch_time_tables(summary: Summary) -> tuple[Table, ...]:
    """Return the shortest and longest time of the repeats of commands, and a histogram. Empty without any."""
    rows = []
    for bench in ordered(summary.benchmarks):
        times = [process.throughput.value for process in bench.processes if process.throughput.basis == "metric"]
        if bench.units == "s" and len(times) > 1:
            factor, units = in_milliseconds(bench)
            cells = (format_number(factor * value) for value in (min(times), max(times)))
            rows.append((bench.bench, *cells, units, histogram(times)))
    return shown_tables("times of repeats", "bench | #min | #max | units | min to max", rows)


def histogram(values: Sequence[float], bars: int = 12) -> str:
    """Return a bar for each part between the smallest and the largest value, by the number of values in it. ` ` is zero."""
    least, width = min(values), (max(values) - min(values)) / bars
    if width <= 0:
        return "█"
    counts = Counter(min(bars - 1, int((value - least) / width)) for value in values)
    most = max(counts.values())
    return "".join(" ▁▂▃▄▅▆▇█"[math.ceil(8 * counts[bar] / most)] for bar in range(bars))


def window_tables(summary: Summary) -> tuple[Table, ...]:
    """Return the windows behind the numbers: for each benchmark, the repeat with the longest. Empty where there are none."""
    cells = [(bench.bench, *_window_cells(bench.processes)) for bench in ordered(summary.benchmarks)]
    rows = [row for row in cells if any(row[1:])]
    columns = "bench | ?warm-up | ?longest stall | ?pauses, not in perf | ?rate within steps | ?between steps"
    return shown_tables("windows: for each benchmark, the repeat with the longest window", columns, rows)


def _window_cells(processes: Sequence[ReplicateResult]) -> tuple[str, ...]:
    rates = [process.throughput for process in processes]
    longer = [rate for rate in rates if rate.left_out > 0]
    stalls = [
        (stall.seconds, stall.step, process)
        for process in processes
        if (stall := process.throughput.stall) is not None
        and stall.seconds > _LONG_STALL * _window_s(process.throughput)
    ]
    pauses: dict[str, float] = {}
    for rate in rates:
        pauses |= {name: max(share, pauses.get(name, 0.0)) for name, share in rate.pauses.items()}
    apart = [(rate.steps_rate / rate.value, rate) for rate in rates if rate.steps_rate is not None]
    apart = [(ratio, rate) for ratio, rate in apart if not agree(ratio, 1.0)]
    warm_up = longest = within = between = ""
    if longer:
        most = max(longer, key=lambda rate: rate.left_out_share)
        warm_up = f"{most.warm_up_steps} of {most.all_steps} steps; {most.left_out_share:.1%} of the window"
    if stalls:
        seconds, step, process = max(stalls, key=lambda stall: stall[0])
        longest = f"{seconds:.3g} s at step {step} of {launch_name(process)}"
    if apart:
        _, most = max(apart, key=lambda pair: pair[0])
        within = f"{format_number(most.steps_rate)} {most.units}"
        between = f"{most.between_steps:.1%} of the time" if most.between_steps else ""
    return warm_up, longest, ", ".join(f"{name} {share:.1%}" for name, share in pauses.items()), within, between


def _window_s(rate: Throughput) -> float:
    return max((total.seconds for total in rate.totals), default=0.0)


def launch_name(process: ReplicateResult) -> str:
    """Return the step of a repeat. For a job, its first step and the number of other steps."""
    others = len(process.steps) - 1
    return process.steps[0] + (f" and {others} more" if others else "")


def uncertainty_tables(summary: Summary) -> tuple[Table, ...]:
    """Return the components of each number's uncertainty, the largest first. Empty where none is known."""
    rows = [
        (
            bench.bench,
            each.title,
            "?" if each.size is None else percents(each.size),
            "; ".join(filter(None, (each.how, each.where))),
        )
        for bench in ordered(summary.benchmarks)
        for each in (bench.uncertainty.components if bench.uncertainty is not None else ())
    ]
    return shown_tables("uncertainty", "bench | component | #size | basis", rows)


def metric_tables(summary: Summary) -> tuple[Table, ...]:
    """Return all metrics except the rate and the metrics of a curve, as medians over processes. Empty without other metrics."""
    rows = []
    for bench in ordered(summary.benchmarks):
        groups: dict[tuple[str, str], list[float]] = {}
        elsewhere = {*_METRICS_ELSEWHERE, *(POINT_METRICS if bench.serving is not None else ())}
        for metric in bench.metrics:
            if metric["metric"] in elsewhere:
                continue
            params = metric.get("params") or {}
            qualifiers = [metric.get("case"), metric.get("part"), *(f"{key}={value}" for key, value in params.items())]
            name = " ".join(str(part) for part in (metric["metric"], *qualifiers) if part)
            value, units = float(metric["value"]), str(metric["units"])
            if units in ("B", "bytes"):
                value, units = value / 2**20, "MiB"
            groups.setdefault((name, units), []).append(value)
        for name in ("p50", "p90", "p95", "p99"):
            latencies = [process.throughput.latency.get(name) for process in bench.processes]
            milliseconds = [1000 * value for value in latencies if value is not None]
            # A median over some of the processes would be compared with one over all.
            if milliseconds and len(milliseconds) == len(latencies):
                groups[f"step {name}", "ms"] = milliseconds
        for (name, units), values in groups.items():
            rows.append((bench.bench, name, format_number(median(values)), units, str(len(values))))
    return shown_tables("other metrics", "bench | metric | #median | units | #processes", rows)


PAIR_LEGEND = (
    "B/A: geometric mean over pairs, above 1 where B is better; 95 % interval: Student's t on the logarithms of the pairs; "
    "verdict: beyond 1 %, or within 1 % by two one-sided tests, both with Holm's correction over all rows"
)


def pair_table(ab: AB, title: str = "") -> Table:
    """Return a row for each benchmark of an A/B run: number of pairs, B over A (> 1 means B is better), verdict."""
    rows = []
    for pair in ab.pairs:
        if pair.ratio is None:
            rows.append((pair.bench, "0", "", "", "INCONCLUSIVE", pair.why))
            continue
        interval = interval_text(pair.ci95) or "below three pairs"
        noise = "" if pair.noise is None else f"the same on both sides: the noise is {percents(pair.noise)}"
        suspect = f"suspect ({', '.join(pair.doubts)})" if pair.doubts else ""
        remark = "; ".join(filter(None, (pair.why or pair.note, noise, suspect)))
        rows.append((pair.bench, str(pair.pairs), f"{pair.ratio:.4f}", interval, pair.verdict, remark))
    columns = "bench | #pairs | #B/A | 95 % interval | verdict | remark"
    return headed_table(title, columns, rows, spare=("pairs", "remark"))
