"""The page of one run: what a reader must know first, then every number, then how each was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from milabench.analysis.summary_model import BenchSummary, Summary
from milabench.analysis.traces import Trace
from milabench.report import model
from milabench.report.html.details import (
    Fineness,
    by_bench,
    device_spread,
    process_table,
    rate_distributions,
    step_timelines,
    steps_named,
)
from milabench.report.html.markup import Child, Markup, el
from milabench.report.html.plots import Bar, Dots, Ratio, bars, dots, figure, forest
from milabench.report.html.tables import Cell, TableRow, badge, document_table, html_table, pairs, text_rows
from milabench.report.run_document import metric_tables, node_tables, pair_table

_OPEN_UP_TO = 2  # benchmarks, whose details are open from the beginning
_FIRST = ("bench", "validity", "perf", "units", "95 % interval", "n", "ngpu")  # columns, the others after them
_KINDS = {"valid": "good", "suspect": "doubt", "invalid": "bad", "skipped": "none", "no rate": "doubt"}


def sentence(summary: Summary) -> str:
    """Return the run in one sentence: what passed, on which devices, the score and its caveats."""
    benches = [bench for bench in summary.benchmarks if bench.outcome != "skipped"]
    passed = sum(bench.outcome == "passed" for bench in benches)
    devices = dict(model.system_lines(summary)).get("devices", "")
    clauses = [f"{passed} of {len(benches)} benchmarks passed" + (f" on {devices}" if devices else "")]
    if summary.ab is None and summary.score.value is not None:
        clauses.append(f"score {model.score_line(summary)}")
    else:
        clauses.append(f"score: {model.score_line(summary)}")
    suspect = sum(bench.validity == "suspect" for bench in benches)
    invalid = sum(bench.validity == "invalid" for bench in benches)
    clauses += [f"{count} {word}" for count, word in ((suspect, "suspect"), (invalid, "invalid")) if count]
    if not summary.is_ended:
        clauses.append("the run is incomplete or still running: this is what is known so far")
    if summary.profile == "quick":
        clauses.append("measured with the quick profile, so that every number is an indication only")
    return "; ".join(clauses) + "."


def run_article(
    summary: Summary, traced: Sequence[Trace], how: Fineness, key: str
) -> tuple[Markup, list[tuple[str, str]]]:
    """Return the article of a run and its link targets; `key` is the prefix of every id."""
    sections: list[tuple[str, str, Child]] = [
        ("table", "Benchmarks", _benchmarks(summary, key)),
        ("spread", "Spread", _spread(summary)),
        ("memory", "Memory, overlap", _memory(summary)),
        ("details", "Each benchmark", _details(summary, traced, how, key)),
        ("system", "System", _system(summary)),
        ("records", "Records", _records(summary)),
    ]
    body = [el("section", el("h2", name), content, id=f"{key}{section_id}") for section_id, name, content in sections]
    head = el(
        "header",
        el("h1", f"milabench run {summary.run}", id=f"{key}top"),
        el("p", sentence(summary), class_="lead"),
        _tiles(summary),
        _alerts(summary),
    )
    return el("article", head, body), [(f"{key}{section_id}", name) for section_id, name, _ in sections]


def _tiles(summary: Summary) -> Markup:
    benches = summary.benchmarks
    counted, planned = summary.score.complete
    failed = sum(model.not_passed(bench) for bench in benches)
    doubtful = sum(bench.validity in ("suspect", "invalid") for bench in benches)
    score = "none" if summary.ab is not None else model.format_number(summary.score.value) or "none"
    interval = summary.score.ci95
    reach = (
        f"95 % from {model.format_number(interval[0])} to {model.format_number(interval[1])}"
        if interval
        else "no interval"
    )
    what = f"relative to {summary.score.reference}" if summary.score.reference else "raw rates, no reference"
    tiles = [
        ("score", score, f"{reach}; {what}", "good" if counted == planned and counted else "doubt"),
        ("counted in the score", f"{counted} of {planned}", "benchmarks" if counted == planned else "INCOMPLETE",
         "good" if counted == planned and counted else "bad"),
        ("steps that did not pass", failed, "see below" if failed else "none", "bad" if failed else "good"),
        ("suspect or invalid", doubtful, "shown, marked, never hidden" if doubtful else "none",
         "doubt" if doubtful else "good"),
        ("verdict", summary.verdict, "run ended" if summary.is_ended else "CUT OFF or still going",
         "good" if summary.verdict == "passed" and summary.is_ended else "bad"),
    ]  # fmt: skip
    return el("ul", [el("li", name, el("b", value), el("small", detail), class_=kind) for name, value, detail, kind in tiles],
              class_="tiles")  # fmt: skip


def alert(title: str, kind: str, entries: Sequence[Child], count: int | None = None) -> Markup | None:
    """Return a prominent list with its count; None when it is empty."""
    if not entries:
        return None
    return el(
        "section",
        el("h2", f"{title} ({len(entries) if count is None else count})"),
        el("ul", [el("li", entry) for entry in entries]),
        class_=f"alerts {kind}",
    )


def bold_names(entries: Sequence[tuple[str, str]]) -> list[Child]:
    """Return each name in bold with its text."""
    return [[el("strong", name), ": ", text] for name, text in entries]


def _alerts(summary: Summary) -> Markup:
    failures: list[Child] = [
        [
            *(el("strong", failure.step), ": ", model.step_reason(failure)),
            el("code", f"log: {failure.log}") if failure.log else None,
            el("code", f"again: {model.rerun_line(summary, bench.bench)}"),
        ]
        for bench, failure in model.failure_entries(summary)
    ]
    doubts: list[tuple[str, str]] = [
        (bench.bench, f"{bench.validity}: {', '.join(bench.reasons)}")
        for bench in model.ordered(summary.benchmarks)
        if bench.validity in ("suspect", "invalid")
    ]
    return el(
        "div",
        alert("Failures", "bad", failures),
        alert("Suspect numbers", "doubt", bold_names(_together(doubts)), len(doubts)),
        alert("Skipped, on purpose", "none", bold_names(model.skips(summary))),
        alert(
            "Passed at a later attempt", "doubt", bold_names([(step, text) for step, text, _ in model.flaky(summary)])
        ),
        class_="lists",
    )


def _together(entries: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Merge entries with the same text."""
    groups: dict[str, list[str]] = {}
    for name, text in entries:
        groups.setdefault(text, []).append(name)
    return [(", ".join(names), text) for text, names in groups.items()]


def state(bench: BenchSummary) -> str:
    """Return one word for a benchmark: its outcome, or its validity."""
    if bench.outcome != "passed":
        return bench.outcome
    return bench.validity or "no rate"


def state_badge(bench: BenchSummary) -> Markup:
    """Return the state with its reasons, as a badge."""
    return badge(model.validity_text(bench), _KINDS.get(state(bench), "bad"))


def _benchmarks(summary: Summary, key: str) -> list[Child]:
    ids = _ids(summary, key)
    benches = model.ordered(summary.benchmarks)
    columns = {column.heading: (column.is_text, column.cell) for column in model.columns(benches)}
    columns["95 % interval"] = (False, _interval)
    columns["devices%"] = (False, lambda bench: model.percent(bench.spread_devices))
    order = [*_FIRST, *(name for name in columns if name not in _FIRST)]
    empty = [name for name in order if not any(columns[name][1](bench) for bench in benches)]
    shown = [name for name in order if name not in empty]
    rows = []
    for bench in benches:
        cells = {name: Cell(shown=columns[name][1](bench)) for name in shown}
        cells["bench"] = Cell(shown=el("a", bench.bench, href=f"#{ids[bench.bench]}"))
        cells["validity"] = Cell(shown=state_badge(bench))
        rows.append(TableRow(cells=tuple(cells[name] for name in shown), state=state(bench)))
    children: list[Child] = [html_table("benchmarks", shown, [columns[name][0] for name in shown], rows, is_alone=True)]
    extra = "devices%: between the means of devices; 95 % interval: of perf over launches, from 3 on"
    text = ". ".join((*model.LEGEND, extra)) + "."
    if empty and benches:
        text += f" Known of no benchmark here, and not shown: {', '.join(empty)}."
    children.append(el("p", text, class_="note"))
    if summary.ab is not None:
        children += _pairs(summary)
    return [*children, *map(document_table, node_tables(summary))]


def _interval(bench: BenchSummary) -> str:
    return "" if bench.ci95 is None else f"{model.format_number(bench.ci95[0])} … {model.format_number(bench.ci95[1])}"


def _pairs(summary: Summary) -> list[Child]:
    assert summary.ab is not None
    ratios = [
        Ratio(label=pair.bench, value=None, note=pair.why)
        if pair.result is None
        else Ratio(label=pair.bench, value=pair.result.ratio, interval=pair.result.ci95, verdict=pair.result.verdict)
        for pair in summary.ab.pairs
    ]
    sides = "; ".join(f"{side}: {suite}" for side, suite in zip("AB", summary.ab.suites, strict=False))
    return [
        figure("B over A, pair by pair", forest("B over A", ratios), sides),
        document_table(pair_table(summary.ab, "A and B")),
        el("p", model.PAIR_LEGEND, class_="note"),
    ]


def _spread(summary: Summary) -> Child:
    rows = []
    for bench in model.ordered(summary.benchmarks):
        perf = bench.perf
        if perf is None or len(bench.processes) < 2:
            continue
        values = tuple(100 * (process.throughput.value / perf - 1) for process in bench.processes)
        interval = None if bench.ci95 is None else (100 * (bench.ci95[0] / perf - 1), 100 * (bench.ci95[1] / perf - 1))
        note = f"n = {len(values)}" + (f", sd {100 * bench.spread:.2f} %" if bench.spread is not None else "")
        rows.append(Dots(label=bench.bench, values=values, interval=interval, centre=0.0, note=note))
    if not rows:
        return el("p", "Not shown: every benchmark ran as one process, so that nothing is known of how launches or devices "
                  "differ. Run with --repeat 3 or more.", class_="note")  # fmt: skip
    alone = [bench.bench for bench in summary.benchmarks if bench.perf is not None and len(bench.processes) == 1]
    note = "Dots: processes (launches on devices). Whisker: 95 % interval of the mean over launches, from 3 on."
    note += f" One process only, and not shown: {', '.join(alone)}." if alone else ""
    drawing = dots("processes around the mean of their benchmark", rows, units="% from the mean", is_relative=True)
    return figure("Every process, relative to the mean of its benchmark", drawing, note)


def _memory(summary: Summary) -> list[Child]:
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
    children: list[Child] = []
    if rows:
        frame = "frame: memory of a device" if most else "no device memory to compare with: these ran on the processor"
        children.append(figure("Peak memory of a process", bars("peak memory", rows, units="MiB"), frame))
    else:
        children.append(el("p", "Peak memory is not shown: no step recorded any.", class_="note"))
    together = [
        Bar(label=bench.bench, value=100 * bench.overlap, most=100.0, text=f"{bench.overlap:.1%}")
        for bench in benches
        if bench.overlap is not None
    ]
    if together:
        drawing = bars("overlap of instances", together, units="%", limit=95.0)
        children.append(figure("Overlap: the share of the time in which all instances measured", drawing,
                            "Below 95 % (dashed line) a number is suspect."))  # fmt: skip
    else:
        children.append(el("p", "Overlap is not shown: no benchmark ran concurrent instances.", class_="note"))
    return children


def _device_memory(summary: Summary) -> float | None:
    """Return the memory of the smallest device, MiB; None where benchmarks ran on the processor."""
    nodes = summary.system.get("nodes")
    rows = [
        float(device["memory_MiB"])
        for node in (nodes if isinstance(nodes, list) else [])
        for device in (node.get("devices") or [] if isinstance(node, dict) else [])
        if isinstance(device, dict)
        and device.get("arch") != "cpu"
        and isinstance(device.get("memory_MiB"), int | float)
    ]
    return min(rows, default=None) or None


def _ids(summary: Summary, key: str) -> dict[str, str]:
    return {bench.bench: f"{key}b{position}" for position, bench in enumerate(model.ordered(summary.benchmarks))}


def _details(summary: Summary, traced: Sequence[Trace], how: Fineness, key: str) -> list[Child]:
    traces_by_bench, ids = by_bench(traced), _ids(summary, key)
    is_open = len(summary.benchmarks) <= _OPEN_UP_TO
    return [
        el(
            "details",
            el(
                "summary",
                el("h3", bench.bench),
                state_badge(bench),
                el(
                    "span",
                    f" {model.format_number(bench.perf)} {bench.units}" if bench.perf is not None else "",
                    class_="told",
                ),
            ),
            pairs(_facts(bench)),
            _why_nothing(bench) or step_timelines(traces_by_bench.get(bench.bench, ()), how),
            _steps(bench, traces_by_bench.get(bench.bench, ()), how),
            id=ids[bench.bench],
            open=is_open,
        )
        for bench in model.ordered(summary.benchmarks)
    ]


def _why_nothing(bench: BenchSummary) -> Markup | None:
    if bench.outcome != "skipped":
        return None
    return el(
        "p", f"Nothing to show: it was skipped. {'; '.join(skip.detail for skip in bench.skipped)}", class_="note"
    )


def _steps(bench: BenchSummary, traced: Sequence[Trace], how: Fineness) -> list[Child]:
    if bench.outcome == "skipped":
        return []
    steps = steps_named([trace for trace in traced if trace.ranks], how)
    drawn = rate_distributions(steps, bench.bench) if steps else None
    return [drawn, device_spread([("", "a", bench)], bench.units) if bench.processes else None, process_table(bench)]


def _facts(bench: BenchSummary) -> list[tuple[Child, Child]]:
    interval = bench.ci95
    facts = {
        "rate of one instance": f"{model.format_number(bench.perf)} {bench.units}"
        if bench.perf is not None
        else "none",
        "95 % interval": f"{model.format_number(interval[0])} … {model.format_number(interval[1])}"
        if interval
        else f"none below 3 launches (has {bench.replicates})",
        "steps": ", ".join(f"{count} {name}" for name, count in bench.counts.items() if count),
        "concurrent instances": str(bench.instances or "none"),
        "devices": str(bench.ngpu) if bench.ngpu else "processor",
        "spread between steps": f"{model.percent(bench.spread_within)} %"
        if bench.spread_within is not None
        else "not known",
        "first step": f"{bench.first_step_s:.2f} s" if bench.first_step_s is not None else "not recorded",
        "peak memory": f"{bench.memory_peak_mib:.0f} MiB" if bench.memory_peak_mib is not None else "not recorded",
        "energy (board sensors)": f"{model.format_number(bench.energy_j)} J"
        if bench.energy_j is not None
        else "not recorded",
        "overlap": f"{bench.overlap:.1%}" if bench.overlap is not None else "one instance",
        "waited for data": _waited(bench),
        "weight": f"{bench.weight:g}" if bench.weight is not None else "none",
    }
    return list(facts.items())


def _waited(bench: BenchSummary) -> str:
    shares = [float(metric["value"]) for metric in bench.metrics if metric["metric"] == "data_wait"]
    return f"{max(shares):.1%}" if shares else "not recorded"


def _system(summary: Summary) -> list[Child]:
    lines = [(name, text) for name, text in model.system_lines(summary) if name != "run"]
    caption = "the run, its machine and its software"
    children: list[Child] = [html_table(caption, ("what", "value"), (True, True), text_rows(lines), can_filter=False)]
    if summary.accelerators:
        rows = text_rows(list(device_facts(summary.accelerators).items()))
        children.append(
            html_table(
                "devices, as their driver told at the start", ("what", "value"), (True, True), rows, can_filter=False
            )
        )
    return children


def device_facts(devices: Sequence[Mapping[str, object]]) -> dict[str, str]:
    """Return the drivers' facts, one value where all devices agree, else device by device."""
    facts = {}
    for name in dict.fromkeys(name for device in devices for name in device):
        values = ["" if device.get(name) is None else str(device[name]) for device in devices]
        facts[name] = (
            values[0] if len(set(values)) == 1 else ", ".join(f"{at}: {value}" for at, value in enumerate(values))
        )
    return {name: value for name, value in facts.items() if value not in ("", "[]")}


def _records(summary: Summary) -> list[Child]:
    children: list[Child] = []
    for caption, headings, entries in (
        ("replicates", ("bench", "how often"), model.replicate_lines(summary)),
        ("validations", ("step", "verdicts"), model.validations(summary)),
        ("messages", ("bench", "message"), model.messages(summary)),
    ):
        if entries:
            children.append(html_table(caption, headings, (True, True), text_rows(entries)))
    for table in metric_tables(summary):
        heading = el("summary", el("h3", "Other metrics"), el("span", f"{len(table.rows)}", class_="told"))
        children.append(el("details", heading, document_table(table)))
    return children or [el("p", "No checks, messages or further metrics were recorded.", class_="note")]
