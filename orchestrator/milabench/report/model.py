"""What every report shows, as text: the table's cells, the description of the system, the failures and how to rerun them."""

from __future__ import annotations

import math
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from milabench.analysis.host_load import busy_text, clock_text
from milabench.analysis.paired_comparison import AB
from milabench.analysis.replicates import LEAST
from milabench.analysis.sample_statistics import median
from milabench.analysis.serving_curve import curve_messages
from milabench.analysis.serving_model import METRICS
from milabench.analysis.steady_state import agree
from milabench.analysis.summary_model import (
    BenchSummary,
    Expense,
    Failure,
    ReplicateResult,
    Summary,
    mappings,
    some_names,
    validity_words,
)
from milabench.analysis.throughput import Throughput
from milabench.events.shims import note_of
from milabench.report.document import Entry, Statement, Table, words_table
from milabench.report.labels import aim_text, percents, replicates_text
from milabench.shown import suite_word

# Options of `run` that the command which reruns one benchmark replaces or leaves out.
_SELECTING = ("--select", "--exclude", "--run-name")
# What the select language takes for a name as it is; anything else is quoted in it.
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.+-]+")
_RERUN_FLAGS = ("use_current_env", "submit", "distribute")
_RERUN_OPTIONS = (
    "config_file",
    "system_file",
    "base",
    "max_benchmarks",
    "size",
    "arch",
    "engine",
    "profile",
    "repeat",
    "precision",
    "budget",
)
_METRICS_ELSEWHERE = ("rate", "first_step", "steps_rate", "between_epochs", "pause")


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of the main table: its heading, and the cell of a benchmark (empty where there is nothing to show)."""

    heading: str
    cell: Callable[[BenchSummary], str]
    is_text: bool = False


def format_number(value: float | None) -> str:
    """Return a number in at least four digits, short enough to read; empty when there is none."""
    if value is None:
        return ""
    size = abs(value)
    if value == 0:
        return "0"
    if size >= 1e7 or size < 1e-3:
        return f"{value:.4g}"
    if size >= 1000:
        return f"{value:.1f}"
    return f"{value:.2f}" if size >= 10 else f"{value:.4f}"


def percent(fraction: float | None) -> str:
    """Return a fraction in per cent, without the sign; empty when there is none."""
    return "" if fraction is None else f"{100 * fraction:.1f}"


def validity_text(bench: BenchSummary) -> str:
    """Return whether the number of a benchmark is trustworthy, or why there is none that counts."""
    if bench.outcome != "passed":
        return bench.outcome
    flaky = ", flaky" if bench.flaky else ""
    if bench.validity is None:
        return f"{_why_no_number(bench)}{flaky}"
    return validity_words(bench.validity, bench.reasons) + flaky


def _why_no_number(bench: BenchSummary) -> str:
    """Return why a benchmark that passed has no number; of a sweep, that no point is the best."""
    if (curve := bench.serving) is None or curve.best:
        return "no rate"
    is_measured = any(point.state == "measured" for point in curve.points)
    return "no point meets the SLO" if is_measured and curve.slo else "no point in every launch"


def not_passed(bench: BenchSummary) -> int:
    """Return how many of a benchmark's steps failed, were cancelled or never ended."""
    return sum(bench.counts.get(outcome, 0) for outcome in ("failed", "cancelled", "missing"))


COLUMNS: tuple[Column, ...] = (
    Column(heading="bench", cell=lambda b: b.bench, is_text=True),
    Column(heading="fail", cell=lambda b: str(not_passed(b))),
    Column(heading="processes", cell=lambda b: str(len(b.processes))),
    Column(heading="ngpu", cell=lambda b: str(b.ngpu)),
    Column(heading="perf", cell=lambda b: format_number(b.perf)),
    Column(heading="units", cell=lambda b: b.units, is_text=True),
    Column(heading="all instances", cell=lambda b: format_number(b.score) if _has_several(b) else ""),
    Column(heading="sem %", cell=lambda b: percent(b.sem)),
    Column(heading="std %", cell=lambda b: percent(b.spread)),
    Column(heading="within %", cell=lambda b: percent(b.spread_within)),
    Column(heading="mde %", cell=lambda b: percent(b.mde)),
    Column(heading="peak memory MiB", cell=lambda b: "" if b.memory_peak_mib is None else f"{b.memory_peak_mib:.0f}"),
    Column(heading="first step s", cell=lambda b: "" if b.first_step_s is None else f"{b.first_step_s:.2f}"),
    Column(heading="weight", cell=lambda b: "" if b.weight is None else f"{b.weight:g}"),
    Column(heading="validity", cell=validity_text, is_text=True),
    Column(heading="x reference", cell=lambda b: beside_text(b, 4)),
    Column(heading="reference's validity", cell=lambda b: b.reference_validity, is_text=True),
)


def is_beside_doubt(bench: BenchSummary) -> bool:
    """Return whether a benchmark is held beside a number of the reference that is not valid."""
    return bench.ratio is not None and bench.reference_validity != "valid"


def beside_text(bench: BenchSummary, digits: int) -> str:
    """Return the ratio to the reference, with a sign where the reference's number is not valid; empty when there is none."""
    return "" if bench.ratio is None else f"{bench.ratio:.{digits}f} {'?' if is_beside_doubt(bench) else ' '}"


def _has_several(bench: BenchSummary) -> bool:
    """Return whether several instances ran at the same time, whose rates can be added up."""
    return bench.instances > 1 and bench.direction == "higher"


# By the stage of a job: when it was last heard of, for a report says what the records do.
_NOT_ENDED = {"submitted": "has not begun", "pending": "has not begun", "running": "has not ended"}
JOBS_TITLE = "jobs that have not done their part"
CUT_OFF = Statement(text="this run is incomplete or still running: what follows is what is known")

OPTIONAL = ("all instances", "mde %", "x reference", "reference's validity")
"""Columns that are only shown where some benchmark has something in them."""

LEGEND = (
    "fail: steps that did not pass; perf: rate of one instance (a device, a job), geometric mean over processes, in units;"
    " all instances: what those that ran concurrently reached, in units",
    "sem %: over launches (from 3 on); std %: over processes; within %: between the steps of a process",
    "mde %: the difference that two runs like this one would find in 80 of 100 cases",
)
SPARE = (
    *("weight", "first step s", "peak memory MiB", "ngpu", "within %", "std %", "processes", "mde %", "fail"),
    *("reference's validity", "all instances", "sem %"),
)
"""Columns that a narrow terminal can do without, the least important first."""

REFERENCE_LEGEND = (
    "x reference: perf over the reference's, of all instances; > 1 means better; lower-is-better metrics are inverted;"
    " ?: the reference's number is not valid"
)


def ordered(benches: Sequence[BenchSummary]) -> list[BenchSummary]:
    """Return the benchmarks by name, those without any number last: the order of a run is shuffled and says nothing."""
    return sorted(benches, key=lambda bench: (bench.outcome == "skipped", bench.bench))


def main_table(
    benches: Sequence[BenchSummary],
    first: Sequence[str] = (),
    more: Sequence[Column] = (),
) -> Table:
    """Return a row for each benchmark; `more` columns are added, and those with these headings are the `first`."""
    # Stable: columns that are not among the first ones stay in their order.
    ranks = {heading: rank for rank, heading in enumerate(first)}
    wanted = sorted((*COLUMNS, *more), key=lambda column: ranks.get(column.heading, len(ranks)))
    return replace(table_of(wanted, benches), spare=SPARE)


def table_of(columns: Sequence[Column], benches: Sequence[BenchSummary]) -> Table:
    """Return a row for each benchmark with these columns."""
    return Table(
        headings=tuple(column.heading for column in columns),
        is_text=tuple(column.is_text for column in columns),
        rows=tuple(tuple(column.cell(bench) for column in columns) for bench in ordered(benches)),
    )


def system_lines(summary: Summary) -> list[tuple[str, str]]:
    """Return the run, its machines and its software, as name and value."""
    lines = [("run", summary.run)]
    if summary.created:
        lines.append(("created", summary.created))
    if summary.capsule:
        lines.append(("capsule", summary.capsule))
    profile = summary.profile or "not recorded"
    lines.append(("profile", f"{profile}: every number is an indication only" if profile == "quick" else profile))
    if summary.sizes:
        lines.append(("size", ", ".join(summary.sizes)))
    if summary.node_names:
        lines.append(("nodes", some_names(summary.node_names)))
    lines += _lines_of_nodes(summary.nodes)
    if not summary.nodes:
        lines.append(("system", "not recorded"))
    software = {"milabench": summary.version, **summary.software}
    shims = software.pop("shims", "")
    versions = ", ".join(f"{name} {version}" for name, version in software.items() if version)
    if versions:
        lines.append(("software", versions))
    if shims:
        lines.append(("shims", "; ".join(f"{shim}: {note_of(shim)}" for shim in shims.split(", "))))
    return lines + _overhead_lines(summary.overhead)


def unfinished_jobs(summary: Summary) -> list[Entry]:
    """Return each job that has not done its part of the run: its id, its nodes, and why not, in the scheduler's words."""
    entries = []
    for job in summary.jobs:
        if not job.unpassed or (job.stage == "ended" and not job.failure):
            continue
        where = f" on {some_names(job.nodes)}" if job.nodes else ""
        code = f", exit code {job.exit_code}" if job.exit_code and job.failure else ""
        what = job.failure or _NOT_ENDED.get(job.stage, "was not submitted")
        what += f" ({job.reason})" if job.reason and job.stage == "pending" else ""
        left = f"{len(job.unpassed)} of {len(job.steps)} steps did not pass"
        entries.append(Entry(name=f"job {job.job}" if job.job else job.share, text=f"{what}{where}{code}; {left}"))
    return entries


def _overhead_lines(overhead: Mapping[str, float]) -> list[tuple[str, str]]:
    """Return the CPU time of the harness while benchmarks ran, as a share of one core."""
    wall, control, agent = (overhead.get(name) for name in ("wall_s", "control_cpu_s", "agent_cpu_s"))
    if not wall or control is None or agent is None:
        return []
    share = f"{100 * (control + agent) / wall:.2f}"
    return [("harness", f"{share} % of a core: control plane {control:.2f} s, agent {agent:.2f} s, in {wall:.1f} s")]


def _lines_of_nodes(nodes: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Return what is known of the nodes, by kind; what not all have in common with the names of those that have it."""
    kinds: dict[str, dict[str, list[str]]] = {}
    for node in nodes:
        for kind, text in _node_lines(node):
            kinds.setdefault(kind, {}).setdefault(text, []).append(str(node.get("name", "")))
    return [
        (kind if len(names) == len(nodes) else f"{kind} ({some_names(names)})", text)
        for kind, texts in kinds.items()
        for text, names in texts.items()
    ]


def _node_lines(node: Mapping[str, Any]) -> list[tuple[str, str]]:
    cpu, lines = node.get("cpu"), []
    cpu = cpu if isinstance(cpu, Mapping) else {}
    if cpu.get("model") or cpu.get("count"):
        count = f"{cpu['count']} x " if cpu.get("count") else ""
        lines.append(("cpu", f"{count}{cpu.get('model') or 'unknown model'}"))
    memory = node.get("memory_MiB")
    if isinstance(memory, int | float) and memory:
        lines.append(("memory", f"{memory / 1024:.1f} GiB"))
    devices = mappings(node.get("devices"))
    if devices:
        lines.append(("devices", _devices(devices)))
    system = " ".join(str(part) for part in (node.get("os"), node.get("kernel")) if part)
    if system:
        lines.append(("os", system))
    if clock := clock_text(node):
        lines.append(("clock", f"{clock} when it began; its records are stamped by it"))
    if busy := busy_text(node):
        lines.append(("busy", f"{busy} when it began"))
    return lines


def _devices(devices: Iterable[Mapping[str, Any]]) -> str:
    """Return `8 x NVIDIA H100 (81559 MiB)` for each kind of device."""
    kinds = Counter[str]()
    for device in devices:
        kind = str(device.get("name") or "unknown")
        if device.get("arch") == "cpu":
            kind = f"processor slot ({kind})"
        elif device.get("memory_MiB"):
            kind += f" ({device['memory_MiB']} MiB)"
        kinds[kind] += 1
    return ", ".join(f"{count} x {kind}" for kind, count in kinds.items())


def node_tables(summary: Summary) -> tuple[Table, ...]:
    """Return the rates on each node, the median over its processes; empty for a run of one node."""
    rates: dict[str, dict[str, list[float]]] = {}
    for bench in ordered(summary.benchmarks):
        for process in bench.processes:
            node, slash, _ = process.slot.partition("/")
            if slash:
                rates.setdefault(bench.bench, {}).setdefault(node, []).append(process.throughput.value)
    nodes = sorted({node for by_node in rates.values() for node in by_node})
    if len(nodes) < 2:
        return ()
    units = {bench.bench: bench.units for bench in summary.benchmarks}
    rows = []
    for name, by_node in rates.items():
        medians = {node: median(rates_of_node) for node, rates_of_node in by_node.items()}
        least, most = min(medians.values()), max(medians.values())
        cells = [format_number(medians.get(node)) for node in nodes]
        rows.append((name, *cells, units[name], percent((most - least) / most if most > 0 else None)))
    is_text = (True, *(False for _ in nodes), True, False)
    return (Table(title="by node", headings=("bench", *nodes, "units", "apart %"), is_text=is_text, rows=tuple(rows)),)


EXPENSES_TITLE = "energy, cost, carbon"


def expense_tables(named: Sequence[tuple[str, Summary]]) -> tuple[Table, ...]:
    """Return what each benchmark's work takes, of systems by name; nothing where that was not computed.

    Intervals are relative: that for an item, a million of them and a run is the same, and that of a year for one node and all.
    """
    rows = []
    for system, summary in named:
        groups: dict[tuple[str, str, str], list[Expense]] = {}
        for expense in summary.expenses:
            groups.setdefault((expense.bench, expense.quantity, expense.source), []).append(expense)
        for (bench, quantity, source), group in groups.items():
            first, of_year = group[0], group[-1]
            cells = {
                "run": "",
                "node year": "",
                "year": "",
                **{each.per: f"{format_number(each.value)} {each.units}" for each in group},
            }
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
    if not rows:
        return ()
    columns = (
        *(("system", True), ("bench", True), ("what", True), ("made of", True), ("item", True), ("per item", False)),
        *(("per 1M items", False), ("± %", False), ("per run", False), ("per node and year", False)),
        *(("nodes", False), ("all nodes, a year", False), ("± % of it", False)),
        *(("power by", True), ("level", True), ("source", True)),
    )
    table = Table(
        title=EXPENSES_TITLE,
        headings=tuple(heading for heading, _ in columns),
        is_text=tuple(is_text for _, is_text in columns),
        rows=tuple(rows),
        spare=("source", "made of", "per run", "± % of it", "item"),
    )
    return (table.without_empty(("system", "per run", "± %", "± % of it"))[0],)


def _share(expense: Expense) -> str:
    """Return the half-width of an interval on the logarithmic scale in per cent; `not known` where there is none."""
    if expense.ci95 is None:
        return "not known"
    return f"{100 * (math.sqrt(expense.ci95[1] / expense.ci95[0]) - 1):.2g}"


def compute_tables(summary: Summary) -> tuple[Table, ...]:
    """Return how much of its devices each benchmark uses, where the operations of its items are known; else nothing."""
    rows = [
        (
            bench.bench,
            use.precision,
            format_number(use.achieved / 1e12),
            "" if use.peak is None else format_number(use.peak / 1e12),
            percent(use.mfu),
            "" if use.measured_peak is None else format_number(use.measured_peak / 1e12),
            percent(use.mfu_measured),
            use.measured_by,
        )
        for bench in ordered(summary.benchmarks)
        if (use := bench.compute) is not None
    ]
    if not rows:
        return ()
    headings = (
        *("bench", "precision", "Tflop/s", "published peak", "MFU %"),
        *("measured peak", "of measured %", "measured by"),
    )
    title = "use of each device: Tflop/s of the model beside the peak of dense products in its precision"
    is_text = (True, True, False, False, False, False, False, True)
    spare = ("measured by", "measured peak", "published peak")
    table = Table(title=title, headings=headings, is_text=is_text, rows=tuple(rows), spare=spare)
    return (table.without_empty(("published peak", "MFU %", "measured peak", "of measured %", "measured by"))[0],)


def milabench13_tables(summary: Summary) -> tuple[Table, ...]:
    """Return the figures of milabench 1.3 beside ours, where its score is asked for of its own records; else nothing."""
    rows = [
        (
            bench.bench,
            *map(str, (figures.n, figures.failed, figures.ngpu)),
            format_number(figures.rate),
            format_number(bench.perf),
            percent(bench.perf / figures.rate - 1 if bench.perf and figures.rate else None),
            format_number(figures.score),
            "" if bench.weight is None else f"{bench.weight:g}",
        )
        for bench in ordered(summary.benchmarks)
        if (figures := bench.milabench13) is not None and figures.n
    ]
    if not summary.score.is_compat or not rows:
        return ()
    headings = ("bench", "n", "fail", "ngpu", "rate", "perf", "difference %", "score", "weight")
    title = "figures of milabench 1.3: rate is the mean over all steps; perf is ours, over the time after warm-up"
    is_text = tuple(heading == "bench" for heading in headings)
    return (Table(title=title, headings=headings, is_text=is_text, rows=tuple(rows), spare=("ngpu", "weight")),)


def window_tables(summary: Summary) -> tuple[Table, ...]:
    """Return what is behind the numbers, of each benchmark the launch that has the most of it; empty where there is nothing."""
    cells = [(bench.bench, *_window_cells(bench.processes)) for bench in ordered(summary.benchmarks)]
    rows = [row for row in cells if any(row[1:])]
    headings = ("bench", "warm-up", "longest step", "pauses, not in perf", "rate within steps", "between steps")
    title = "windows: of each benchmark the launch that has the most of it"
    return (words_table(title, headings, rows).without_empty()[0],) if rows else ()


def _window_cells(processes: Sequence[ReplicateResult]) -> tuple[str, ...]:
    rates = [process.throughput for process in processes]
    longer = [rate for rate in rates if rate.steady is not None and rate.steady.settled_at > 0]
    # Where a window has few steps, each holds much of it: one that is like the others is not worth naming.
    long_steps = [
        (step.lasted_s, step.at_s, process)
        for process in processes
        if (step := process.throughput.long_step) is not None and step.lasted_s > 2 * _mean_step_s(process.throughput)
    ]
    pauses: dict[str, float] = {}
    for rate in rates:
        pauses |= {name: max(share, pauses.get(name, 0.0)) for name, share in rate.pauses.items()}
    apart = [(rate.steps_rate / rate.value, rate) for rate in rates if rate.steps_rate is not None]
    apart = [(ratio, rate) for ratio, rate in apart if not agree(ratio, 1.0)]
    warm_up = long_step = within = between = ""
    if longer:
        most = max(longer, key=lambda rate: rate.warm_up_steps / max(1, rate.all_steps))
        warm_up = f"{most.warm_up_steps} of {most.all_steps} steps"
    if long_steps:
        lasted_s, at_s, process = max(long_steps, key=lambda step: step[0])
        long_step = f"{lasted_s:.3g} s, {at_s:.3g} s into the window of {launch_name(process)}"
    if apart:
        _, most = max(apart, key=lambda pair: pair[0])
        within = f"{format_number(most.steps_rate)} {most.units}"
        between = f"{most.between_steps:.1%} of the time" if most.between_steps else ""
    return warm_up, long_step, ", ".join(f"{name} {share:.1%}" for name, share in pauses.items()), within, between


def _mean_step_s(rate: Throughput) -> float:
    slowest = max(rate.totals, key=lambda total: total.seconds)
    return slowest.seconds / max(1, slowest.observations)


def launch_name(process: ReplicateResult) -> str:
    """Return the step of a launch, of a job the first one and how many more there are."""
    others = len(process.steps) - 1
    return process.steps[0] + (f" and {others} more" if others else "")


def failures(summary: Summary) -> list[Entry]:
    """Return everything that should have passed and did not: why, its log, and the command that runs it again, if any does."""
    entries = []
    for bench in ordered(summary.benchmarks):
        rerun = () if summary.is_of_milabench13 else (("rerun", rerun_line(summary, bench.bench)),)
        for failure in bench.failures:
            entries.append(Entry(name=failure.step, text=step_reason(failure), details=(*_log(failure.log), *rerun)))
    return entries


def _log(path: str | None) -> tuple[tuple[str, str], ...]:
    return (("log", path),) if path else ()


def step_reason(failure: Failure) -> str:
    """Return why a step did not pass, on one line."""
    return f"{failure.why}: {failure.detail}" if failure.detail else failure.why


def skips(summary: Summary) -> list[tuple[str, str]]:
    """Return what was skipped on purpose (a step's id, or a benchmark), and why."""
    benches = ordered(summary.benchmarks)
    return [(skip.step or bench.bench, skip.detail) for bench in benches for skip in bench.skipped]


def flaky(summary: Summary) -> list[Entry]:
    """Return each step that passed although another attempt failed, with the log of the failure."""
    entries = []
    for bench in ordered(summary.benchmarks):
        for step in bench.flaky:
            for attempt in step.others:
                ending = ": ".join(filter(None, (attempt.why, attempt.detail))) or attempt.outcome
                text = f"passed at attempt {step.attempt}; attempt {attempt.number}: {ending}"
                entries.append(Entry(name=step.step, text=text, details=_log(attempt.log)))
    return entries


def validations(summary: Summary) -> list[tuple[str, str]]:
    """Return the checks' verdicts on each step: passed ones by name, the others with their message; and the overlap."""
    rows = []
    for bench in ordered(summary.benchmarks):
        steps: dict[str, list[Mapping[str, Any]]] = {}
        for check in bench.validations:
            steps.setdefault(check["step"], []).append(check)
        for step, verdicts in steps.items():
            passed = [check["check"] for check in verdicts if check["verdict"] == "pass"]
            others = [check for check in verdicts if check["verdict"] != "pass"]
            texts = [f"{check['verdict']} {check['check']} ({check['message']})" for check in others]
            rows.append((step, "; ".join([*texts, *([f"pass {', '.join(passed)}"] if passed else [])])))
        if bench.overlap is not None:
            rows.append((bench.bench, f"overlap of the instances' windows {bench.overlap:.1%}"))
    return rows


def messages(summary: Summary) -> list[tuple[str, str]]:
    """Return the messages of benchmarks and checks, but for those that stand below a curve."""
    rows = []
    for bench in ordered(summary.benchmarks):
        of_curve = set() if bench.serving is None else set(curve_messages(bench.serving))
        rows += [(bench.bench, text) for text in bench.messages if text not in of_curve]
    return rows


def metric_tables(summary: Summary) -> tuple[Table, ...]:
    """Return all metrics but the rate and those of a curve, the median over processes; empty without other metrics."""
    rows = []
    for bench in ordered(summary.benchmarks):
        groups: dict[tuple[str, str], list[float]] = {}
        elsewhere = {*_METRICS_ELSEWHERE, *(METRICS if bench.serving is not None else ())}
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
    headings, is_text = ("bench", "metric", "median", "units", "processes"), (True, True, False, True, False)
    table = Table(title="other metrics", headings=headings, is_text=is_text, rows=tuple(rows))
    return (table,) if rows else ()


def result_text(summary: Summary) -> str:
    """Return `6 passed, 0 valid (quick: a first look)`: how the steps ended, and how many benchmarks' numbers can be trusted."""
    endings = ", ".join(f"{count} {outcome}" for outcome, count in summary.counts.items() if count)
    judged = [bench.validity for bench in summary.benchmarks if bench.validity is not None]
    swept = [
        bench for bench in summary.benchmarks if bench.serving and bench.outcome == "passed" and bench.validity is None
    ]
    endings = "; ".join((endings, *(f"{bench.bench}: {_why_no_number(bench)}" for bench in swept)))
    if not judged:
        return endings
    valid = judged.count("valid")
    if summary.profile == "quick":
        return f"{endings}, {valid} valid (quick: a first look)"
    return f"{endings}; {valid} of {len(judged)} numbers valid"


def shown_score(summary: Summary) -> float | None:
    """Return the value of the score: there is none but relative to a reference, or of milabench 1.3."""
    score = summary.score
    # Reports in JSON by earlier versions have the mean of the raw rates.
    is_shown = summary.ab is None and (score.reference is not None or score.is_compat)
    return score.value if is_shown else None


def score_line(summary: Summary) -> str:
    """Return the score in a sentence: value, interval, coverage and reference."""
    score = summary.score
    if summary.ab is not None:
        return "none (A and B are compared in pairs, below)"
    covers = coverage(summary)
    weights = f"by the weights of {score.weights_of}" if score.weights_of else ""
    if score.reference is None and not score.is_compat:
        line = "none without a reference: `milabench report --reference RUN`"
        return f"{line} ({weights}; {covers})" if weights else line
    if score.value is None:
        return f"none ({', '.join(filter(None, (weights, f'relative to {score.reference}')))}; {covers})"
    if score.is_compat:
        caveat = "compat: the score of milabench 1.3, which depends on units and hides failures"
        return f"{format_number(score.value)} ({'; '.join(filter(None, (caveat, weights, covers)))})"
    interval = "" if score.ci95 is None else f" [{format_number(score.ci95[0])}, {format_number(score.ci95[1])}]"
    mean = "weighted geometric mean" if score.is_weighted else "unweighted geometric mean, all weights are zero"
    mean = f"{mean} {weights}".rstrip()
    return f"{format_number(score.value)}{interval} ({mean}, relative to {score.reference}; {covers})"


def coverage(summary: Summary) -> str:
    """Return how many benchmarks count in the score, and with which caveats."""
    counted, wanted = summary.score.complete
    covers = f"{counted} of {wanted} benchmarks" + ("" if counted == wanted else ", INCOMPLETE")
    return covers + (f", {summary.score.suspects} of them suspect" if summary.score.suspects else "")


def benchmark_lines(summary: Summary) -> list[tuple[str, str]]:
    """Return what each benchmark stands for, as far as that was recorded."""
    return [(bench.bench, bench.about) for bench in ordered(summary.benchmarks) if bench.about]


def without_ratio(summary: Summary) -> list[tuple[str, str]]:
    """Return the benchmarks whose number has no ratio to the reference, and why."""
    return [(bench.bench, bench.no_ratio) for bench in ordered(summary.benchmarks) if bench.no_ratio]


def next_line(summary: Summary) -> str:
    """Return the command that this run most lacks, and what it would bring."""
    launches = max((len(bench.processes) for bench in summary.benchmarks), default=0)
    if not summary.is_ended:
        return f"`milabench resume {summary.run}`: continues this run"
    other = f"`milabench compare {summary.run} OTHER`: compares with another run"
    if summary.is_of_milabench13:
        old = f"`milabench report {summary.run} --score compat`: with the figures of milabench 1.3, which made this run"
        return other if summary.score.is_compat else old
    if any(not_passed(bench) for bench in summary.benchmarks):
        return f"`milabench resume {summary.run}`: runs again what did not pass"
    if summary.profile == "quick":
        return f"`{rerun_line(summary, profile='default')}`: for valid numbers"
    if launches and launches < LEAST:
        return f"`{rerun_line(summary, repeat=LEAST)}`: how far launches differ"
    if any("contended" in bench.reasons for bench in summary.benchmarks):
        return f"`{rerun_line(summary)}`: again, on an idle machine"
    if summary.ab is None and summary.score.reference is None:
        return other
    return f"`milabench report {summary.run} -o report.html`: a page to send"


def replicate_lines(summary: Summary) -> list[tuple[str, str]]:
    """Return how often each benchmark was run, why, and the precision that was reached."""
    if not summary.aim:
        return []
    if not summary.replicates:
        return [(aim_text(summary.aim), "not decided yet: the pilot is not over; `milabench resume` goes on")]
    reached = {bench.bench: bench.ci95 for bench in summary.benchmarks}
    if summary.ab is not None:
        reached = {pair.bench: pair.result.ci95 for pair in summary.ab.pairs if pair.result is not None}
    rows = []
    for name, decision in sorted(summary.replicates.items()):
        interval = reached.get(name)
        # The half-width on the logarithmic scale, on which the target was set.
        half = "" if interval is None else f"; reached {percents(math.sqrt(interval[1] / interval[0]) - 1)}"
        rows.append((name, replicates_text(decision, summary.aim) + half))
    return rows


PAIR_LEGEND = (
    "B/A: geometric mean over pairs, above 1 where B is better; 95 % interval: Student's t on the logarithms of the pairs; "
    "verdict: beyond 1 %, or within it by two one-sided tests, both by Holm's correction over all rows"
)


def pair_table(ab: AB, title: str = "") -> Table:
    """Return a row for each benchmark of an A/B run: number of pairs, B over A (> 1 means B is better), verdict."""
    rows = []
    for pair in ab.pairs:
        result = pair.result
        if result is None:
            rows.append((pair.bench, "0", "", "", "INCONCLUSIVE", pair.why))
            continue
        interval = "below three pairs" if result.ci95 is None else f"[{result.ci95[0]:.4f}, {result.ci95[1]:.4f}]"
        noise = "" if pair.noise is None else f"the same on both sides: the noise is {percents(pair.noise)}"
        suspect = f"suspect ({', '.join(pair.reasons)})" if pair.reasons else ""
        remark = "; ".join(filter(None, (pair.why or result.note, noise, suspect)))
        rows.append((pair.bench, str(result.pairs), f"{result.ratio:.4f}", interval, result.verdict, remark))
    headings = ("bench", "pairs", "B/A", "95 % interval", "verdict", "remark")
    is_text = (True, False, False, True, True, True)
    return Table(title=title, headings=headings, is_text=is_text, rows=tuple(rows), spare=("pairs", "remark"))


def rerun_line(summary: Summary, bench: str | None = None, **changes: str | int) -> str:
    """Return the command that reruns all or one benchmark with this run's options, or with `changes` to them, from any folder.

    Of an old run, which did not keep them, the original command.
    """
    is_by_jobs = bool(summary.jobs) and not summary.options.get("distribute")
    recorded = {**summary.options, "submit": is_by_jobs, **changes}
    given = _options(recorded) if summary.options else _given(summary.argv)
    if not summary.options:
        given += [word for name, value in changes.items() for word in (f"--{name}", str(value))]
    words = ["milabench", "run", *given]
    if bench is None:
        return shlex.join(words)
    for pair in summary.ab.pairs if summary.ab is not None and summary.options.get("ab") else ():
        bench = pair.bench if bench in (pair.a, pair.b) else bench
    # shlex quotes for the shell; these quotes are for the language of --select, inside.
    name = bench if _PLAIN_NAME.fullmatch(bench) else f"'{bench}'"
    return shlex.join([*words, "--select", name])


def _options(options: Mapping[str, Any]) -> list[str]:
    sides = options.get("ab")
    words = ["--ab", *map(str, sides)] if isinstance(sides, list) else []
    for key in _RERUN_OPTIONS:
        if key == "config_file" and words:
            continue  # the suites are those of the two sides
        if options.get(key) is not None:
            value = str(options[key])
            flag = f"--{key.removesuffix('_file').replace('_', '-')}"
            words += [flag, suite_word(value) if key == "config_file" else value]
    for key, flag in (("overrides", "--override"), ("slurm_args", "--slurm-arg")):
        given = options.get(key)
        words += [word for value in (given if isinstance(given, list) else ()) for word in (flag, str(value))]
    return [*words, *(f"--{key.replace('_', '-')}" for key in _RERUN_FLAGS if options.get(key))]


def _given(argv: Sequence[str]) -> list[str]:
    """Return the original arguments after `run`, without those that select benchmarks."""
    words = list(argv[argv.index("run") + 1 :]) if "run" in argv else []
    kept: list[str] = []
    rest = iter(words)
    for word in rest:
        if word in _SELECTING:
            next(rest, "")  # its value
        elif not word.startswith(tuple(f"{option}=" for option in _SELECTING)):
            kept.append(word)
    return kept
