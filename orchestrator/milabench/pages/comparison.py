"""The page of a comparison: the sentence, its warnings, the ratios, the systems, then each benchmark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from milabench.analysis.comparison_model import Comparison, ComparisonRow, Contrast, System, SystemResult
from milabench.analysis.comparison_words import why_no_interval
from milabench.analysis.summary_model import BenchSummary, Summary
from milabench.analysis.system_diff import NO_DIFFERENCE, Differences
from milabench.analysis.traces import Trace
from milabench.pages import details
from milabench.pages.markup import Child, Markup, el, html_table, note
from milabench.pages.page import alert, article, curve_section, foldable, tile
from milabench.pages.plots import Bar, Dots, Ratio, bars, dots, figure, forest, marks, plot_legend, verdict_sign
from milabench.pages.run import device_facts, expense_content
from milabench.report import comparison_text
from milabench.report.document import Table, words_table
from milabench.report.labels import format_number
from milabench.report.registry import SYSTEMS_DRAWN
from milabench.report.system_lines import system_lines

Traced = Sequence[Sequence[Trace] | None]
_OPEN_UP_TO = 2
# Beyond these a page is slow to lay out, and nobody reads to its end.
_MOST_BARS = 200
_MOST_ROWS = 2000
_VERDICTS = ("FASTER", "SLOWER", "EQUIVALENT", "DIFFERENT-BUT-SMALL", "INCONCLUSIVE")
_WORST_FIRST = ("SLOWER", "excluded", "INCONCLUSIVE", "DIFFERENT-BUT-SMALL", "FASTER", "EQUIVALENT")
# Keys that name a device or a time rather than a property.
_NO_PROPERTY = ("index", "uuid", "pci", "processes", "memory_used_mib", "serial", "temperature", "hostname")


def comparison_article(
    comparison: Comparison, differences: Differences, traced: Traced, how: details.Fineness
) -> tuple[Markup, list[tuple[str, str]]]:
    """Return the article of the comparison and its link targets."""
    doubtful = sum(len(system.suspects) for system in comparison.systems)
    skips = [(f"{system.name}: {name}", reason) for system in comparison.systems for name, reason in system.skipped]
    alerts = [
        alert("Failures", "bad", comparison_text.failed_entries(comparison)),
        alert("Excluded from the index", "bad", comparison.excluded),
        alert("Suspect numbers", "doubt", comparison_text.suspects(comparison), doubtful),
        alert("Differences", "none", [("", comparison.differs)] if comparison.differs != NO_DIFFERENCE else []),
        alert("Before you compare", "doubt", [("", text) for text in comparison.warnings]),
        alert("Skipped, on purpose", "none", skips),
    ]
    summaries = comparison_text.named_summaries(comparison)
    sections: tuple[tuple[str, str, Child], ...] = (
        ("ratios", "Ratios", _ratios(comparison)),
        ("table", "Benchmarks", _benchmarks(comparison)),
        *curve_section(comparison),
        ("index", "Index", _index(comparison)),
        ("memory", "Resources", too_many(comparison) or _memory(comparison)),
        *((("expenses", "Energy, cost, carbon", spent),) if (spent := expense_content(summaries)) else ()),
        ("systems", "Systems", _systems(comparison)),
        ("why", "Differences", _why(comparison, differences)),
        ("details", "Each benchmark", too_many(comparison) or _details(comparison, traced, how)),
        ("method", "Method", map(note, comparison_text.legend_lines(comparison))),
    )
    return article(comparison_text.title(comparison), comparison.sentence, _tiles(comparison), alerts, sections)


def _is_many(comparison: Comparison) -> bool:
    return len(comparison.systems) > SYSTEMS_DRAWN


def too_many(comparison: Comparison) -> Markup | None:
    """Return the note that replaces drawings of too many systems. None for few."""
    if not _is_many(comparison):
        return None
    shown = f"Drawn for up to {SYSTEMS_DRAWN} systems, and these are {len(comparison.systems)}."
    return note(f"{shown} Compare fewer to see it.")


def _tiles(comparison: Comparison) -> list[Markup]:
    kinds = {"FASTER": "good", "SLOWER": "bad", "EQUIVALENT": "even", "DIFFERENT-BUT-SMALL": "even"}
    tiles = []
    for index in comparison.indices[:SYSTEMS_DRAWN]:
        counted, planned = index.complete
        low, high = index.ci95 or (None, None)
        reach = why_no_interval(index) if low is None else f"95 % from {low:.3f} to {high:.3f}"
        kind = {"FASTER": "good", "SLOWER": "bad"}.get(index.verdict, "doubt")
        value = "none" if index.value is None else f"{verdict_sign(index.verdict)} {index.value:.3f}"
        over = f"over {counted} of {planned} benchmarks{', INCOMPLETE' * (counted < planned)}"
        over = over if index.value is None else f"{index.verdict}; {over}"
        tiles.append(tile(f"index of {comparison_text.index_name(index)}", value, reach, over, kind=kind))
    verdicts = Counter[str](contrast.verdict for row in comparison.rows for contrast in row.contrasts if contrast)
    for verdict in _VERDICTS:
        if verdict in verdicts:
            count = f"{verdict_sign(verdict)} {verdicts[verdict]}"
            tiles.append(tile(verdict, count, "of the ratios", kind=kinds.get(verdict, "doubt")))
    return tiles


def _ratios(comparison: Comparison) -> Child:
    several, is_many = len(comparison.systems) > 2, _is_many(comparison)
    ids = _ids(comparison)
    drawn = []
    for row, side, contrast in comparison_text.ratios(() if is_many else comparison_text.by_ratio(comparison.rows)):
        drawn.append(
            Ratio(
                label=f"{row.bench} · {side.system}" if several else row.bench,
                value=contrast.ratio if contrast else None,
                interval=contrast.ci95 if contrast else None,
                margin=row.margin,
                verdict=contrast.verdict if contrast else "",
                note="" if contrast else f"excluded: {_why_no_ratio(comparison, row, side)}",
                is_suspect=contrast is not None and contrast.is_suspect,
                link=f"#{ids[row.bench]}",
            )
        )
    for index in comparison.indices:
        drawn.append(
            Ratio(
                label=f"index · {comparison_text.index_name(index)}" if several or index.weights_of else "index",
                value=index.value,
                interval=index.ci95,
                margin=comparison.margin,
                verdict=index.verdict,
                note="no benchmark in common counts",
                is_total=True,
            )
        )
    text = (
        f"Right of 1 is better than {comparison.systems[0].name}. For lower-is-better metrics the ratio is inverted. "
        f"Band: ±{comparison.margin:.2%}, in which nothing is called faster or slower. "
        "Whiskers: 95 % intervals. An arrow: the interval goes on. ▲ faster, ▼ slower, ■ equivalent, ◆ different but small, "
        "○ inconclusive. '?' marks a suspect number."
    )
    if is_many:
        lead = f"Of {len(comparison.systems)} systems only the index is drawn. The ratios are in the table below."
        text = f"{lead} {text}"
    caption = f"Ratios to {comparison.systems[0].name}, the fastest first"
    return figure(caption, forest("ratios of benchmarks with 95 % intervals", drawn), text)


def _why_no_ratio(comparison: Comparison, row: ComparisonRow, side: SystemResult) -> str:
    """Return why a system has no ratio to the first: the problem of either side, else the reason for the exclusion."""
    reasons = [f"{side.system} {side.why_not}" for side in (row.sides[0], side) if side.why_not]
    return "; ".join(reasons) or dict(comparison.excluded).get(row.bench, "no ratio")


def _benchmarks(comparison: Comparison) -> list[Child]:
    is_many, ids = _is_many(comparison), _ids(comparison)
    table = comparison_text.ratio_table(comparison, is_whole=True, is_compact=is_many)
    ratios = comparison_text.ratios(comparison_text.by_ratio(comparison.rows))
    states = [contrast.verdict if contrast else "excluded" for _, _, contrast in ratios]
    kept = list(range(len(ratios)))
    if len(ratios) > _MOST_ROWS:
        kept = sorted(kept, key=lambda at: _WORST_FIRST.index(states[at]))[:_MOST_ROWS]
    # Only the scaling stands behind the verdict, and only where it is known.
    verdict = len(table.headings) - (2 if table.headings[-1] == "scaling" else 1)
    shown = {verdict: [verdict_words(ratios[at][2]) for at in kept]}
    if not is_many:
        names = (ratios[at][0].bench for at in kept)
        shown[0] = [el("a", name, href=f"#{ids[name]}") for name in names]
    title = "benchmarks: absolute values first, then ratios"
    table = replace(table, title=title, rows=tuple(table.rows[at] for at in kept))
    children: list[Child] = [html_table(table, shown=shown, states=[states[at] for at in kept], is_alone=True)]
    if len(kept) < len(ratios):
        fit = f"{len(kept)} of {len(ratios)} ratios fit in the page"
        children.append(note(f"{fit}, the slower and the excluded ones first. --format csv has all."))
    remarks = comparison_text.verdict_notes(comparison)
    children += map(note, remarks[:20])
    if len(remarks) > 20:
        children.append(note(f"{len(remarks) - 20} more such remarks are in the text report."))
    return children


def verdict_words(contrast: Contrast | None) -> Child:
    """Return a verdict with its sign."""
    text = comparison_text.verdict_text(contrast)
    if contrast is None:
        return text
    sign = el("span", verdict_sign(contrast.verdict), aria_hidden="true")
    return [sign, " ", text, " (suspect)" if contrast.is_suspect else None]


def _index(comparison: Comparison) -> list[Child]:
    tables = (comparison_text.index_table(comparison), *comparison_text.job_tables(comparison))
    children: list[Child] = [html_table(table, can_filter=False) for table in tables]
    children += map(note, comparison_text.power_lines(comparison))
    for index in () if _is_many(comparison) else comparison.indices:
        if len(index.without) < 2:
            continue
        moved = sorted(index.without.items(), key=lambda entry: entry[1])
        shown = moved if len(moved) <= 20 else [*moved[:10], *moved[-10:]]
        rows = [Dots(label=f"without {name}", values=(value,), note=f"{value:.4f}") for name, value in shown]
        text = index.holds + ("" if len(moved) <= 20 else f". The ten that move it most each way, of {len(moved)}")
        name = comparison_text.index_name(index)
        drawing = dots(f"index of {name} without each benchmark", rows, units="index")
        title = f"Index of {name} when a benchmark is left out"
        children.append(foldable(title, "", figure("Leave one out", drawing, text)))
    return children


def _memory(comparison: Comparison) -> list[Child]:
    names = [system.name for system in comparison.systems]
    sign = marks(names)
    children: list[Child] = [plot_legend(sign)]
    rows = []
    for row in comparison.rows:
        peaks = [(side.memory_peak_mib, side.system) for side in row.sides if side.memory_peak_mib is not None]
        for peak, name in peaks:
            # The first bar of a benchmark names it; the others stand below.
            label = row.bench if name == peaks[0][1] else ""
            rows.append(Bar(label=label, value=peak, text=f"{peak:.0f} MiB, {name}", mark=sign[name]))
    if len(rows) > _MOST_BARS:
        children.append(note(f"Peak memory is not drawn: {len(rows)} bars are too many. The table below has all."))
    elif rows:
        children.append(figure("Peak memory of a process", bars("peak memory", rows, units="MiB")))
    quantities = ("memory MiB", "overlap %", "energy J", "first step s")
    headings = ("bench", *(f"{name}: {what}" for what in quantities for name in names))
    table, empty = Table(
        title="memory, overlap, energy, first step",
        headings=headings,
        is_text=(True, *(False for _ in headings[1:])),
        rows=tuple(_resource_cells(comparison, row) for row in comparison.rows),
    ).without_empty()
    if len(table.headings) == 1:
        return [note("No run recorded memory, overlap, energy or first steps.")]
    text = "An empty cell: not recorded, or (overlap) a single instance."
    text += f" Columns without data are hidden: {', '.join(empty)}." if empty else ""
    return [*children, html_table(table), note(text)]


def _resource_cells(comparison: Comparison, row: ComparisonRow) -> tuple[str, ...]:
    # Of several sessions the one that overlapped least.
    overlaps = [
        min((b.overlap for s in system.sessions if (b := _bench(s, row.bench)) and b.overlap is not None), default=None)
        for system in comparison.systems
    ]
    return (
        row.bench,
        *("" if side.memory_peak_mib is None else f"{side.memory_peak_mib:.0f}" for side in row.sides),
        *("" if overlap is None else f"{100 * overlap:.1f}" for overlap in overlaps),
        *(format_number(side.energy_j) for side in row.sides),
        *("" if side.first_step_s is None else f"{side.first_step_s:.2f}" for side in row.sides),
    )


def _systems(comparison: Comparison) -> Child:
    """Return a table of the systems' facts. Rows that differ have a sign, an underline and a background."""
    tables = [_facts(system) for system in comparison.systems]
    rows, states = [], []
    for what in dict.fromkeys(name for properties in tables for name in properties):
        values = [properties.get(what, "") for properties in tables]
        differs = len({", ".join(sorted(value.split(", "))) for value in values}) > 1
        rows.append((what, "≠ differs" if differs else "same", *(value or "not recorded" for value in values)))
        states.append("differing" if differs else "same")
    headings = ("what", "same?", *(system.name for system in comparison.systems))
    return html_table(words_table("systems compared", headings, rows), states=states, is_alone=True)


def _facts(system: System) -> dict[str, str]:
    summary: Summary = system.summary
    properties = {name: value for name, value in system_lines(summary) if name != "software"}
    if system.later:
        properties["sessions"] = ", ".join(session.summary.run for session in system.sessions)
    is_ended = all(session.summary.is_ended for session in system.sessions)
    properties["ended"] = "yes" if is_ended else "no: cut off, or still going"
    properties["steps"] = ", ".join(f"{count} {name}" for name, count in system.counts.items() if count)
    properties |= {"milabench": summary.version, **summary.software}
    for name, value in device_facts(summary.accelerators).items():
        if name not in _NO_PROPERTY:
            properties[f"device {name}"] = value
    return properties


def _why(comparison: Comparison, differences: Differences) -> Child:
    if differences is None:
        return note("The head of the page names the likeliest causes. For all that differs, ask for it with --why.")
    if not differences:
        return note("Nothing that was recorded differs between the systems.")
    table = comparison_text.differences_table(comparison, differences)
    near = {0: ["near" if difference.is_near else "" for difference in differences]}
    table = replace(table, headings=("near", *table.headings[1:]))
    return html_table(table, shown=near, states=[difference.area for difference in differences])


def _ids(comparison: Comparison) -> dict[str, str]:
    return {row.bench: f"b{position}" for position, row in enumerate(comparison.rows)}


def _details(comparison: Comparison, traced: Traced, how: details.Fineness) -> list[Child]:
    names = [system.name for system in comparison.systems]
    sign, ids = marks(names), _ids(comparison)
    steps = {name: details.by_bench(traces) for name, traces in zip(names, traced, strict=True) if traces is not None}
    lacking = [name for name in names if name not in steps]
    children: list[Child] = [plot_legend(sign)]
    if lacking:
        children.append(note(f"Known by a report alone, without records to draw: {', '.join(lacking)}."))
    for row in comparison_text.by_ratio(comparison.rows):
        benches = [
            (session.summary.run if system.later else system.name, sign[system.name], bench)
            for system in comparison.systems
            for session in system.sessions
            if (bench := _bench(session, row.bench)) is not None
        ]
        children.append(
            foldable(
                row.bench,
                _ratio_words(row),
                _launches(row, sign),
                _of_steps(row.bench, [(name, traces.get(row.bench, [])) for name, traces in steps.items()], how, sign),
                details.device_spread(benches, row.units) if any(bench.processes for _, _, bench in benches) else None,
                id_=ids[row.bench],
                is_open=len(comparison.rows) <= _OPEN_UP_TO,
            )
        )
    return children


def _of_steps(
    bench: str, drawn: Sequence[tuple[str, Sequence[Trace]]], how: details.Fineness, sign: dict[str, str]
) -> list[Child]:
    named_steps = [
        (f"{name}: {trace.step}", sign[name], trace)
        for name, group in drawn
        for trace in details.selected_steps([t for t in group if t.ranks], min(2, how.steps))
    ]
    children: list[Child] = [details.rate_distributions(named_steps, bench)] if named_steps else []
    for name, group in drawn:
        children += details.step_timelines(group, how, name)
    return children


def _bench(system: System, name: str) -> BenchSummary | None:
    return next((bench for bench in system.summary.benchmarks if bench.bench == name), None)


def _ratio_words(row: ComparisonRow) -> str:
    phrases = []
    for _, side, contrast in comparison_text.ratios([row]):
        text = f"{contrast.ratio:.4f} {verdict_sign(contrast.verdict)} {contrast.verdict}" if contrast else "excluded"
        phrases.append(f"{side.system}: {text}")
    return " " + "; ".join(phrases)


def _launches(row: ComparisonRow, sign: dict[str, str]) -> Markup:
    rows = [
        Dots(
            label=side.system,
            values=side.values,
            centre=side.value,
            interval=side.ci95,
            mark=sign[side.system],
            note=comparison_text.side_text(side),
        )
        for side in row.sides
        if side.values
    ]
    without = [f"{side.system} {side.why_not}" for side in row.sides if side.why_not]
    text = "Dots: repeats. Bar: their mean. Whisker: its 95 % interval, from 3 repeats on."
    text += "".join(
        f" {side.system}: sessions of {', '.join(map(str, side.sessions))} repeats. The interval is over sessions."
        for side in row.sides
        if len(side.sessions) > 1
    )
    text += "".join(
        f" With these repeats a difference of {contrast.detectable:.2%} ({contrast.system}) is detected every second time."
        for contrast in row.contrasts
        if contrast is not None and contrast.detectable is not None
    )
    text += f" Not counted: {'; '.join(without)}." if without else ""
    if not rows:
        return note(text)
    return figure("Repeats on each system", dots(f"repeats of {row.bench}", rows, units=row.units), text)
