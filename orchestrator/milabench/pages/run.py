"""The page of a run: the facts to know first, then every number, then how each was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from milabench.analysis.paired_comparison import AB
from milabench.analysis.summary_model import BenchSummary, ComputeUse, Summary, some_names
from milabench.analysis.traces import Trace
from milabench.pages import details
from milabench.pages.markup import Child, Markup, badge, el, html_table, note, pairs
from milabench.pages.page import alert, article, curve_section, foldable, tile
from milabench.pages.plots import SERIES, Bar, Dots, Ratio, bars, dots, figure, forest
from milabench.report import model, run_tables
from milabench.report.columns import LEGEND, PAGE_LEGEND, REFERENCE_LEGEND, interval_cell, page_table
from milabench.report.document import words_table
from milabench.report.labels import format_number, percent_cell
from milabench.report.system_lines import system_lines
from milabench.shown import grouped

_OPEN_UP_TO = 2  # benchmarks, whose details are open from the beginning
_KINDS = {
    "valid": "good",
    "imprecise": "doubt",
    "suspect": "doubt",
    "invalid": "bad",
    "skipped": "none",
    "no rate": "doubt",
}


def sentence(summary: Summary) -> str:
    """Return the run in a few sentences: its result as the text report words it, its devices and its score."""
    result = f"{model.result_text(summary)}."
    if summary.ab is not None:
        return f"{summary.ab.sentence}. {result}"
    devices = dict(system_lines(summary)).get("devices", "")
    sentences = [result, f"Measured on {devices}." if devices else "", f"Score: {model.score_line(summary)}."]
    if not summary.is_ended:
        sentences.append("The run is incomplete or still running: the page has the results so far.")
    return " ".join(filter(None, sentences))


def run_article(
    summary: Summary, traced: Sequence[Trace], how: details.Fineness, key: str
) -> tuple[Markup, list[tuple[str, str]]]:
    """Return the article of a run and its link targets. `key` is the prefix of every id."""
    return article(
        f"milabench run {summary.run}",
        sentence(summary),
        _tiles(summary),
        _alerts(summary),
        (
            ("table", "Benchmarks", _benchmarks(summary, key)),
            *curve_section(summary),
            ("spread", "Spread", _spread(summary)),
            *((("memory", "Memory, overlap", memory),) if (memory := _memory(summary)) else ()),
            *((("expenses", "Energy, cost, carbon", expense_content([("", summary)])),) if summary.expenses else ()),
            ("details", "Each benchmark", _details(summary, traced, how, key)),
            ("system", "System", _system(summary)),
            ("records", "Records", _records(summary)),
        ),
        key,
    )


def _tiles(summary: Summary) -> list[Markup]:
    counted, planned = summary.score.complete
    is_complete = counted == planned and counted > 0
    failed = sum(model.not_passed(bench) for bench in summary.benchmarks)
    doubtful = sum(bench.validity in ("suspect", "invalid") for bench in summary.benchmarks)
    shown = model.shown_score(summary)
    covered = "benchmarks" if counted == planned else "INCOMPLETE"
    marked = "shown, marked, never hidden" if doubtful else "none"
    ending = "run ended" if summary.is_ended else "CUT OFF or still going"
    is_good = summary.verdict == "passed" and summary.is_ended
    if summary.ab is not None:
        verdict, pairs = summary.ab.verdict, summary.ab.pairs
        kind = {"SLOWER": "bad", "INCONCLUSIVE": "doubt"}.get(verdict, "good")
        paired = f"{len(pairs)} benchmark{'s' * (len(pairs) != 1)} on both sides"
        heads = [tile("B compared with A", verdict, paired, kind=kind)]
    else:
        is_sound = is_complete and not doubtful
        score = format_number(shown) or "none"
        heads = [
            tile("score", score, _score_note(summary), kind="good" if is_sound else "doubt"),
            tile("counted in the score", f"{counted} of {planned}", covered, kind="good" if is_complete else "bad"),
        ]
    return [
        *heads,
        tile("steps that did not pass", failed, "see below" if failed else "none", kind="bad" if failed else "good"),
        tile("suspect or invalid", doubtful, marked, kind="doubt" if doubtful else "good"),
        tile(
            "steps" if summary.ab is not None else "verdict",
            summary.verdict,
            ending,
            kind="bad" if not is_good else "doubt" if doubtful else "good",
        ),
    ]


def _score_note(summary: Summary) -> str:
    """Return how far the score reaches: its interval, its reference, and the source of its weights where not the suite's."""
    score = summary.score
    interval = score.ci95 if model.shown_score(summary) is not None else None
    reach = f"95 % from {' to '.join(map(format_number, interval))}" if interval else "no interval"
    what = f"{reach}, relative to {score.reference}" if score.reference else "none without a reference"
    return what + (f", weights of {score.weights_of}" if score.weights_of else "")


def _alerts(summary: Summary) -> list[Child]:
    doubts: list[tuple[str, str]] = [
        (
            bench.bench,
            f"{bench.validity}: {'; '.join(f'{name}: {text}' for name, text in model.warnings_of(bench).items())}",
        )
        for bench in model.ordered(summary.benchmarks)
        if bench.validity in ("suspect", "invalid")
    ]
    imprecise = [
        (bench.bench, bench.imprecision.words)
        for bench in model.ordered(summary.benchmarks)
        if bench.imprecision is not None
    ]
    return [
        alert("Jobs that have not done their part", "bad", model.unfinished_jobs(summary)),
        alert("Failures", "bad", model.grouped_failures(summary), len(model.failures(summary))),
        alert("Suspect numbers", "doubt", _together(doubts), len(doubts)),
        alert("Imprecise numbers", "doubt", imprecise),
        alert("Skipped, on purpose", "none", model.skips(summary)),
        alert("Passed at a later attempt", "doubt", model.flaky(summary)),
    ]


def _together(entries: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Merge entries with the same text."""
    return [(", ".join(names), text) for text, names in grouped((text, name) for name, text in entries).items()]


def state(bench: BenchSummary) -> str:
    """Return a word for a benchmark: its outcome, or its validity."""
    return (bench.validity or "no rate") if bench.outcome == "passed" else bench.outcome


def state_badge(bench: BenchSummary) -> Markup:
    """Return the state with its reasons, as a badge."""
    return badge(model.validity_text(bench), _KINDS.get(state(bench), "bad"))


def _benchmarks(summary: Summary, key: str) -> list[Child]:
    ids = _ids(summary, key)
    benches = model.ordered(summary.benchmarks)
    table, unknown = page_table(benches)
    links = [el("a", bench.bench, href=f"#{ids[bench.bench]}") for bench in benches]
    shown = {0: links, 1: [state_badge(bench) for bench in benches]}
    table = replace(table, title="benchmarks")
    children: list[Child] = [html_table(table, shown=shown, states=[state(b) for b in benches], is_alone=True)]
    of_reference = (REFERENCE_LEGEND,) if summary.score.reference else ()
    text = ". ".join((*LEGEND, *PAGE_LEGEND, *of_reference)) + "."
    if unknown and benches:
        text += f" Columns without data are hidden: {', '.join(unknown)}."
    children.append(note(text))
    for title, entries in (
        ("Without a ratio to the reference", model.without_ratio(summary)),
        ("Benchmarks represent", model.benchmark_lines(summary)),
    ):
        children += [el("h3", title), pairs(entries)] if entries else []
    if summary.ab is not None:
        children += _pairs(summary.ab)
    tables = (
        *run_tables.milabench13_tables(summary),
        *run_tables.launch_time_tables(summary),
        *run_tables.compute_tables(summary),
        *run_tables.window_tables(summary),
        *run_tables.node_tables(summary),
    )
    return [
        *children,
        *map(html_table, tables),
        *(
            foldable("Components of the uncertainty", "", html_table(table))
            for table in run_tables.uncertainty_tables(summary)
        ),
    ]


def expense_content(named: Sequence[tuple[str, Summary]]) -> list[Child]:
    """Return the table of energy, cost and carbon."""
    return [html_table(table, is_alone=True) for table in run_tables.expense_tables(named)]


def _pairs(ab: AB) -> list[Child]:
    ratios = [
        Ratio(label=pair.bench, value=pair.ratio, interval=pair.ci95, verdict=pair.verdict, note=pair.why)
        for pair in ab.pairs
    ]
    sides = "; ".join(f"{side}: {suite}" for side, suite in zip("AB", ab.suites, strict=False))
    sides += f". Differs: {ab.differs}" if ab.differs else ""
    return [
        figure("B over A, pair by pair", forest("B over A", ratios), sides),
        html_table(run_tables.pair_table(ab, "A and B")),
        note(run_tables.PAIR_LEGEND),
    ]


def _spread(summary: Summary) -> Child:
    rows = []
    for bench in model.ordered(summary.benchmarks):
        perf = bench.perf
        if perf is None or len(bench.processes) < 2:
            continue
        values = tuple(100 * (process.throughput.value / perf - 1) for process in bench.processes)
        low, high = bench.interval or (None, None)
        interval = None if low is None or high is None else (100 * (low / perf - 1), 100 * (high / perf - 1))
        size = f"n = {len(values)}" + (f", sd {100 * bench.spread:.2f} %" if bench.spread is not None else "")
        rows.append(Dots(label=bench.bench, values=values, interval=interval, centre=0.0, note=size))
    if not rows:
        return note(
            "Not shown: every benchmark ran as a single process, so differences between repeats or devices are not known. "
            "Run with --repeat 3 or more."
        )
    alone = [bench.bench for bench in summary.benchmarks if bench.perf is not None and len(bench.processes) == 1]
    text = "Dots: processes (repeats on devices). Whisker: 95 % interval that contains the undisturbed number, from 3 repeats on."
    text += f" Not shown, a single process: {', '.join(alone)}." if alone else ""
    drawing = dots("processes around the mean of their benchmark", rows, units="% from the mean", is_relative=True)
    return figure("Every process, relative to the mean of its benchmark", drawing, text)


def _memory(summary: Summary) -> list[Child]:
    """Return drawings of peak memory and overlap. Empty where no step recorded any."""
    benches = model.ordered(summary.benchmarks)
    most = _device_memory(summary)
    rows = [
        Bar(
            label=bench.bench,
            value=bench.memory_peak_mib,
            most=most,
            text=f"{bench.memory_peak_mib:.0f} MiB" + (f", {bench.memory_peak_mib / most:.1%}" if most else ""),
        )
        for bench in benches
        if bench.memory_peak_mib is not None
    ]
    frame = "frame: memory of a device" if most else "no device memory to compare with: these ran on the processor"
    together = [
        Bar(label=bench.bench, value=100 * bench.overlap, most=100.0, text=f"{bench.overlap:.1%}")
        for bench in benches
        if bench.overlap is not None
    ]
    children: list[Child] = []
    if rows:
        children.append(figure("Peak memory of a process", bars("peak memory", rows, units="MiB"), frame))
    if together:
        drawing = bars("overlap of instances", together, units="%", limit=95.0)
        title = "Overlap: the share of the time in which all instances measured"
        children.append(figure(title, drawing, "Below 95 % (dashed line) a number is suspect."))
    return children


def _device_memory(summary: Summary) -> float | None:
    """Return the memory of the smallest device, MiB. None where benchmarks ran on the processor."""
    # What a processor has for device memory is the host's: no frame to hold one process against.
    sizes = [device.get("memory_MiB") for device in summary.devices if device.get("arch") != "cpu"]
    return min((float(size) for size in sizes if isinstance(size, int | float)), default=None) or None


def _ids(summary: Summary, key: str) -> dict[str, str]:
    return {bench.bench: f"{key}b{position}" for position, bench in enumerate(model.ordered(summary.benchmarks))}


def _details(summary: Summary, traced: Sequence[Trace], how: details.Fineness, key: str) -> list[Child]:
    traces_by_bench, ids = details.by_bench(traced), _ids(summary, key)
    return [
        foldable(
            bench.bench,
            f" {format_number(bench.perf)} {bench.units}" if bench.perf is not None else "",
            pairs(_facts(bench)),
            _drawings(bench, traces_by_bench.get(bench.bench, ()), how),
            id_=ids[bench.bench],
            is_open=len(summary.benchmarks) <= _OPEN_UP_TO,
            sign=state_badge(bench),
        )
        for bench in model.ordered(summary.benchmarks)
    ]


def _drawings(bench: BenchSummary, traced: Sequence[Trace], how: details.Fineness) -> list[Child]:
    if bench.outcome == "skipped":
        return [note(f"Nothing to show: it was skipped. {'; '.join(skip.detail for skip in bench.skipped)}")]
    chosen = details.selected_steps([trace for trace in traced if trace.ranks], max(1, how.steps))
    steps = [(trace.step, SERIES[position % len(SERIES)], trace) for position, trace in enumerate(chosen)]
    return [
        details.step_timelines(traced, how),
        details.rate_distributions(steps, bench.bench) if steps else None,
        details.device_spread([("", "a", bench)], bench.units) if bench.processes else None,
        details.process_table(bench),
    ]


def _facts(bench: BenchSummary) -> list[tuple[Child, Child]]:
    waits = [float(metric["value"]) for metric in bench.metrics if metric["metric"] == "data_wait"]
    within, first, energy = bench.spread_within, bench.first_step_s, bench.energy_j
    return [
        *([("represents", bench.about)] if bench.about else []),
        ("rate of each copy", "none" if bench.perf is None else f"{format_number(bench.perf)} {bench.units}"),
        *([] if bench.serving is None else [("best point", bench.serving.best or "none")]),
        ("95 % interval", interval_cell(bench) or f"none below 3 repeats (has {bench.replicates})"),
        ("steps", ", ".join(f"{count} {name}" for name, count in bench.counts.items() if count)),
        ("concurrent instances", bench.instances or "none"),
        ("devices", bench.ngpu or "processor"),
        ("spread between steps", "not known" if within is None else f"{percent_cell(within)} %"),
        ("first step", "not recorded" if first is None else f"{first:.2f} s"),
        ("peak memory", "not recorded" if bench.memory_peak_mib is None else f"{bench.memory_peak_mib:.0f} MiB"),
        ("energy (board sensors)", "not recorded" if energy is None else f"{format_number(energy)} J"),
        ("overlap", "a single instance" if bench.overlap is None else f"{bench.overlap:.1%}"),
        *([] if bench.compute is None else [("use of the device", _use_text(bench.compute))]),
        ("waited for data", f"{max(waits):.1%}" if waits else "not recorded"),
        ("weight", "none" if bench.weight is None else f"{bench.weight:g}"),
    ]


def _use_text(use: ComputeUse) -> str:
    """Return the operations a second of a device, and their share of its peaks."""
    shares = (
        f"{use.mfu:.1%} of the published peak ({use.peak_source})" if use.mfu is not None else "",
        f"{use.mfu_measured:.1%} of the rate that {use.measured_by} reached" if use.mfu_measured is not None else "",
    )
    return "; ".join([f"{use.achieved / 1e12:.4g} Tflop/s in {use.precision}", *filter(None, shares)])


def _system(summary: Summary) -> list[Child]:
    lines = [(name, text) for name, text in system_lines(summary) if name != "run"]
    facts = device_facts(summary.accelerators).items()
    tables = (("the run, its machine and its software", lines), ("devices, as their driver told at the start", facts))
    return [
        html_table(words_table(caption, ("what", "value"), rows), can_filter=False) for caption, rows in tables if rows
    ]


def device_facts(devices: Sequence[Mapping[str, object]]) -> dict[str, str]:
    """Return the drivers' facts, a single value where all devices agree, else device by device."""
    facts = {}
    for name in dict.fromkeys(name for device in devices for name in device):
        values = ["" if device.get(name) is None else str(device[name]) for device in devices]
        facts[name] = (
            values[0] if len(set(values)) == 1 else ", ".join(f"{at}: {value}" for at, value in enumerate(values))
        )
    return {name: value for name, value in facts.items() if value not in ("", "[]")}


def _checks(summary: Summary) -> list[tuple[str, str]]:
    """Return the verdicts of the checks, the steps with the same verdicts together, the most frequent verdicts last."""
    groups = grouped((verdicts, step) for step, verdicts in model.validations(summary))
    return [
        (some_names(steps), verdicts) for verdicts, steps in sorted(groups.items(), key=lambda group: len(group[1]))
    ]


def _records(summary: Summary) -> list[Child]:
    entries = (
        ("repeats", ("bench", "how often"), model.replicate_lines(summary)),
        ("checks", ("steps", "verdicts"), _checks(summary)),
        ("messages", ("benchmarks", "message"), model.grouped_messages(summary)),
    )
    children: list[Child] = [html_table(words_table(*entry)) for entry in entries if entry[-1]]
    for table in run_tables.metric_tables(summary):
        children.append(foldable("Other metrics", f"{len(table.rows)}", html_table(table)))
    children = children or [note("No checks, messages or further metrics were recorded.")]
    return [*children, note(f"Next: {model.next_line(summary)}.")]
