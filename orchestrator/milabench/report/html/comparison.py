"""The page of a comparison: the sentence, what is wrong with it, the ratios, the systems, then each benchmark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from milabench.analysis.compare import Comparison, ComparisonRow, Contrast, System
from milabench.analysis.summary_model import BenchSummary, Summary
from milabench.analysis.system_diff import Difference
from milabench.analysis.traces import Trace
from milabench.report import comparison_text, model
from milabench.report.html.details import (
    Fineness,
    by_bench,
    device_spread,
    rate_distributions,
    selected_steps,
    step_timelines,
)
from milabench.report.html.markup import Child, Markup, el
from milabench.report.html.plots import Bar, Dots, Ratio, bars, dots, figure, forest, marks, plot_legend, verdict_sign
from milabench.report.html.run import alert, bold_names, device_facts
from milabench.report.html.tables import Cell, TableRow, document_table, html_table, without_empty
from milabench.report.registry import SYSTEMS_DRAWN

Traced = Sequence[Sequence[Trace] | None]
_OPEN_UP_TO = 2
_MOST_BARS = 200
_MOST_ROWS = 2000
_WORST_FIRST = ("SLOWER", "excluded", "INCONCLUSIVE", "DIFFERENT-BUT-SMALL", "FASTER", "EQUIVALENT")
# Keys that name a device or a time rather than a property.
_NO_PROPERTY = ("index", "uuid", "pci", "processes", "memory_used_mib", "serial", "temperature", "hostname")


def comparison_article(
    comparison: Comparison, differences: Sequence[Difference] | None, traced: Traced, how: Fineness
) -> tuple[Markup, list[tuple[str, str]]]:
    """Return the article of the comparison and its link targets."""
    sections: list[tuple[str, str, Child]] = [
        ("ratios", "Ratios", _ratios(comparison)),
        ("table", "Benchmarks", _benchmarks(comparison)),
        ("index", "Index", _index(comparison)),
        ("memory", "Resources", _too_many(comparison) or _memory(comparison)),
        ("systems", "Systems", _systems(comparison)),
        ("why", "What differs", _why(comparison, differences)),
        ("details", "Each benchmark", _too_many(comparison) or _details(comparison, traced, how)),
        ("method", "Method", [el("p", line, class_="note") for line in comparison_text.legend_lines(comparison)]),
    ]
    head = el(
        "header",
        el("h1", comparison_text.title(comparison), id="top"),
        el("p", comparison.sentence, class_="lead"),
        _tiles(comparison),
        el(
            "div",
            alert("Failures", "bad", bold_names(comparison_text.failed_entries(comparison))),
            alert("Excluded from the index", "bad", bold_names(comparison.excluded)),
            alert("Suspect numbers", "doubt", bold_names(comparison_text.suspects(comparison)), _doubtful(comparison)),
            alert("To be known before the first number", "doubt", list(comparison.warnings)),
            alert("Skipped, on purpose", "none", bold_names(_skips(comparison))),
            class_="lists",
        ),
    )
    body = [el("section", el("h2", name), content, id=section_id) for section_id, name, content in sections]
    return el("article", head, body), [(section_id, name) for section_id, name, _ in sections]


def _is_many(comparison: Comparison) -> bool:
    return len(comparison.systems) > SYSTEMS_DRAWN


def _too_many(comparison: Comparison) -> Markup | None:
    """Return the note that replaces drawings of too many systems; None for few."""
    if not _is_many(comparison):
        return None
    text = f"Drawn for up to {SYSTEMS_DRAWN} systems; these are {len(comparison.systems)}. Compare fewer to see it."
    return el("p", text, class_="note")


def _tiles(comparison: Comparison) -> Markup:
    tiles = []
    for index in comparison.indices[:SYSTEMS_DRAWN]:
        counted, planned = index.complete
        reach = (
            f"95 % from {index.ci95[0]:.3f} to {index.ci95[1]:.3f}"
            if index.ci95
            else "no interval below 3 launches a side"
        )
        kind = {"FASTER": "good", "SLOWER": "bad"}.get(index.verdict, "doubt")
        value = "none" if index.value is None else f"{verdict_sign(index.verdict)} {index.value:.3f}"
        over = f"{index.verdict}; over {counted} of {planned} benchmarks" + (
            ", INCOMPLETE" if counted < planned else ""
        )
        tiles.append(
            el("li", f"index of {index.system}", el("b", value), el("small", reach), el("small", over), class_=kind)
        )
    verdicts = [contrast.verdict for row in comparison.rows for contrast in row.contrasts if contrast is not None]
    for verdict in ("FASTER", "SLOWER", "EQUIVALENT", "DIFFERENT-BUT-SMALL", "INCONCLUSIVE"):
        if verdict in verdicts:
            kind = {"FASTER": "good", "SLOWER": "bad", "INCONCLUSIVE": "doubt"}.get(verdict, "even")
            count = el("b", f"{verdict_sign(verdict)} {verdicts.count(verdict)}")
            tiles.append(el("li", verdict, count, el("small", "of the ratios"), class_=kind))
    return el("ul", tiles, class_="tiles")


def _doubtful(comparison: Comparison) -> int:
    return sum(len(system.suspects) for system in comparison.systems)


def _skips(comparison: Comparison) -> list[tuple[str, str]]:
    return [(f"{system.name}: {name}", reason) for system in comparison.systems for name, reason in system.skipped]


def _ratios(comparison: Comparison) -> Child:
    several = len(comparison.systems) > 2
    ids = _ids(comparison)
    ratios = []
    for row in () if _is_many(comparison) else comparison_text.by_ratio(comparison.rows):
        for position, contrast in enumerate(row.contrasts):
            name = f"{row.bench} · {comparison.systems[position + 1].name}" if several else row.bench
            link = f"#{ids[row.bench]}"
            if contrast is None:
                why = _why_no_ratio(comparison, row, position + 1)
                ratios.append(Ratio(label=name, value=None, margin=row.margin, note=f"excluded: {why}", link=link))
                continue
            ratios.append(
                Ratio(
                    label=name,
                    value=contrast.ratio,
                    interval=contrast.ci95,
                    margin=row.margin,
                    verdict=contrast.verdict,
                    is_suspect=contrast.is_suspect,
                    link=link,
                )
            )
    for index in comparison.indices:
        ratios.append(
            Ratio(
                label=f"index · {index.system}" if several else "index",
                value=index.value,
                interval=index.ci95,
                margin=comparison.margin,
                verdict=index.verdict,
                note="no benchmark in common counts",
                is_total=True,
            )
        )
    note = (
        f"Right of 1 is better than {comparison.systems[0].name}; for lower-is-better metrics the ratio is inverted. "
        f"Band: ±{comparison.margin:.2%}, in which nothing is called faster or slower. "
        "Whiskers: 95 % intervals; an arrow is one that goes on. ▲ faster, ▼ slower, ■ equivalent, ◆ different but small, "
        "○ not decided; '?' marks a suspect number."
    )
    if _is_many(comparison):
        note = (
            f"Of {len(comparison.systems)} systems only the index is drawn; the ratios are in the table below. {note}"
        )
    caption = f"Ratios to {comparison.systems[0].name}, the fastest first"
    return figure(caption, forest("ratios of benchmarks with 95 % intervals", ratios), note)


def _why_no_ratio(comparison: Comparison, row: ComparisonRow, position: int) -> str:
    """Return why one system has no ratio to the first: the problem of either side, else the reason for the exclusion."""
    reasons = [f"{side.system} {side.why_not}" for side in (row.sides[0], row.sides[position]) if side.why_not]
    return "; ".join(reasons) or dict(comparison.excluded).get(row.bench, "no ratio")


def _benchmarks(comparison: Comparison) -> list[Child]:
    columns = _columns(comparison)
    rows = [row for each in comparison_text.by_ratio(comparison.rows) for row in _ratio_rows(comparison, each)]
    kept = rows
    if len(rows) > _MOST_ROWS:
        kept = sorted(rows, key=lambda row: _WORST_FIRST.index(row.state))[:_MOST_ROWS]
    caption = "benchmarks: absolute values first, then ratios"
    headings, is_text = [heading for heading, _ in columns], [text for _, text in columns]
    children: list[Child] = [html_table(caption, headings, is_text, kept, is_alone=True)]
    if kept is not rows:
        text = f"{len(kept)} of {len(rows)} ratios fit in the page, the slower and the excluded ones first; --format csv has all."
        children.append(el("p", text, class_="note"))
    notes = comparison_text.verdict_notes(comparison)
    children += [el("p", f"{name}: {text}", class_="note") for name, text in notes[:20]]
    if len(notes) > 20:
        children.append(el("p", f"{len(notes) - 20} more such remarks are in the text report.", class_="note"))
    return children


def _has_scaling(comparison: Comparison) -> bool:
    return any(contrast and contrast.efficiency is not None for row in comparison.rows for contrast in row.contrasts)


def _columns(comparison: Comparison) -> list[tuple[str, bool]]:
    """Return the headings of the table of benchmarks, and which of them are text."""
    names = [system.name for system in comparison.systems]
    sides = [names[0], "its value"] if _is_many(comparison) else names
    return [
        ("bench", True),
        *([("system", True)] if len(names) > 2 else []),
        ("units", True),
        *((side, False) for side in sides),
        *(("n", True), ("ratio", False), ("95 % interval", False), ("p (Holm)", False)),
        *([("scaling", False)] if _has_scaling(comparison) else []),
        ("verdict", True),
    ]


def _ratio_rows(comparison: Comparison, row: ComparisonRow) -> Iterable[TableRow]:
    """Return a row for each ratio of one benchmark, in the columns of `_columns`."""
    is_many = _is_many(comparison)
    name = row.bench if is_many else el("a", row.bench, href=f"#{_ids(comparison)[row.bench]}")
    first = row.sides[0]
    for system, side, contrast in zip(comparison.systems[1:], row.sides[1:], row.contrasts, strict=True):
        ratio, interval, efficiency, p = (
            (contrast.ratio, contrast.ci95, contrast.efficiency, contrast.p_holm) if contrast else (None,) * 4
        )
        cells = [
            Cell(shown=name),
            *([Cell(shown=system.name)] if len(comparison.systems) > 2 else []),
            Cell(shown=row.units),
            *(
                Cell(shown=comparison_text.side_text(s), value=s.value)
                for s in ((first, side) if is_many else row.sides)
            ),
            Cell(shown=f"{len(first.values)}/{len(side.values)}"),
            Cell(shown=comparison_text.ratio_text(ratio)),
            Cell(shown=comparison_text.interval_text(interval)),
            Cell(shown=comparison_text.p_text(contrast), value=p),
            *([Cell(shown=comparison_text.ratio_text(efficiency))] if _has_scaling(comparison) else []),
            Cell(shown=_verdict(contrast)),
        ]
        yield TableRow(cells=tuple(cells), state=contrast.verdict if contrast else "excluded")


def _verdict(contrast: Contrast | None) -> Child:
    text = comparison_text.verdict_text(contrast)
    if contrast is None:
        return text
    return [
        el("span", verdict_sign(contrast.verdict), aria_hidden="true"),
        " ",
        text,
        " (suspect)" if contrast.is_suspect else None,
    ]


def _index(comparison: Comparison) -> list[Child]:
    children: list[Child] = []
    for table in (comparison_text.index_table(comparison), comparison_text.job_table(comparison)):
        if table is not None:
            children.append(document_table(table, can_filter=False))
    for index in () if _is_many(comparison) else comparison.indices:
        if len(index.without) < 2:
            continue
        moved = sorted(index.without.items(), key=lambda entry: entry[1])
        shown = moved if len(moved) <= 20 else [*moved[:10], *moved[-10:]]
        rows = [Dots(label=f"without {name}", values=(value,), note=f"{value:.4f}") for name, value in shown]
        note = index.holds + ("" if len(moved) <= 20 else f"; the ten that move it most each way, of {len(moved)}")
        drawing = dots(f"index of {index.system} without each benchmark", rows, units="index")
        children.append(
            el(
                "details",
                el("summary", el("h3", f"Index of {index.system} when one benchmark is left out")),
                figure("Leave one out", drawing, note),
            )
        )
    return children


def _memory(comparison: Comparison) -> list[Child]:
    names = [system.name for system in comparison.systems]
    sign = marks(names)
    children: list[Child] = [plot_legend(list(sign.items()))]
    rows = [bar for row in comparison.rows for bar in _memory_bars(row, sign)]
    if len(rows) > _MOST_BARS:
        text = f"Peak memory is not drawn: {len(rows)} bars are too many; the table below has all."
        children.append(el("p", text, class_="note"))
    elif rows:
        children.append(figure("Peak memory of a process", bars("peak memory", rows, units="MiB")))
    headings = (
        "bench",
        *(f"{name}: {what}" for what in ("memory MiB", "overlap%", "energy J", "first step s") for name in names),
    )
    cells = [_resource_cells(comparison, row) for row in comparison.rows]
    shown, is_text, kept, empty = without_empty(headings, (True, *(False for _ in headings[1:])), cells)
    children.append(html_table("memory, overlap, energy, first step", shown, is_text, kept))
    text = "An empty cell: not recorded, or (overlap) one instance."
    text += f" Known of no benchmark, and not shown: {', '.join(empty)}." if empty else ""
    children.append(el("p", text, class_="note"))
    return children


def _memory_bars(row: ComparisonRow, sign: dict[str, str]) -> Iterable[Bar]:
    """Return a bar for each system that recorded the benchmark's peak memory; the first one names the benchmark."""
    label = row.bench
    for side in row.sides:
        if side.memory_peak_mib is not None:
            peak = side.memory_peak_mib
            yield Bar(label=label, value=peak, text=f"{peak:.0f} MiB, {side.system}", mark=sign[side.system])
            label = ""


def _resource_cells(comparison: Comparison, row: ComparisonRow) -> list[str]:
    benches = [_bench(system, row.bench) for system in comparison.systems]
    return [
        row.bench,
        *("" if side.memory_peak_mib is None else f"{side.memory_peak_mib:.0f}" for side in row.sides),
        *("" if bench is None or bench.overlap is None else f"{100 * bench.overlap:.1f}" for bench in benches),
        *(model.format_number(side.energy_j) for side in row.sides),
        *("" if side.first_step_s is None else f"{side.first_step_s:.2f}" for side in row.sides),
    ]


def _systems(comparison: Comparison) -> Child:
    """Return a table of the systems' facts; rows that differ have a sign, an underline and a background."""
    tables = [_facts(system) for system in comparison.systems]
    names = [system.name for system in comparison.systems]
    rows = []
    for what in dict.fromkeys(name for properties in tables for name in properties):
        values = [properties.get(what, "") for properties in tables]
        differs = len(set(values)) > 1
        kind = "differs" if differs else ""
        rows.append(
            TableRow(
                cells=(
                    Cell(shown=what),
                    Cell(shown="≠ differs" if differs else "same"),
                    *(Cell(shown=value or "not recorded", kind=kind) for value in values),
                ),
                state="differing" if differs else "same",
            )
        )
    return html_table("systems compared", ("what", "same?", *names), (True,) * (len(names) + 2), rows, is_alone=True)


def _facts(system: System) -> dict[str, str]:
    summary: Summary = system.summary
    properties = {name: value for name, value in model.system_lines(summary) if name != "software"}
    properties["ended"] = "yes" if summary.is_ended else "no: cut off, or still going"
    properties["steps"] = ", ".join(f"{count} {name}" for name, count in summary.counts.items() if count)
    properties |= {"milabench": summary.version, **summary.software}
    for name, value in device_facts(summary.accelerators).items():
        if name not in _NO_PROPERTY:
            properties[f"device {name}"] = value
    return properties


def _why(comparison: Comparison, differences: Sequence[Difference] | None) -> Child:
    if differences is None:
        return el("p", "Arguments, environments and devices were not compared; ask for it with --why.", class_="note")
    if not differences:
        return el("p", "Nothing that was recorded differs between the systems.", class_="note")
    table = comparison_text.differences_table(comparison, differences)
    headings = ("near", *table.headings[1:])
    rows = [
        TableRow(
            cells=tuple(Cell(shown="near" if at == 0 and cell else cell) for at, cell in enumerate(row)), state=row[1]
        )
        for row in table.rows
    ]
    return html_table(table.title, headings, table.is_text, rows)


def _ids(comparison: Comparison) -> dict[str, str]:
    return {row.bench: f"b{position}" for position, row in enumerate(comparison.rows)}


def _details(comparison: Comparison, traced: Traced, how: Fineness) -> list[Child]:
    names = [system.name for system in comparison.systems]
    sign, ids = marks(names), _ids(comparison)
    steps = [by_bench(one) if one is not None else {} for one in traced]
    children: list[Child] = [plot_legend(list(sign.items())), *_not_drawn(names, traced)]
    for row in comparison_text.by_ratio(comparison.rows):
        benches = [_bench(system, row.bench) for system in comparison.systems]
        drawn = [
            (name, one.get(row.bench, []))
            for name, one, traces in zip(names, steps, traced, strict=True)
            if traces is not None
        ]
        children.append(
            el(
                "details",
                el("summary", el("h3", row.bench), el("span", _ratio_words(row, names), class_="told")),
                _launches(row, sign),
                _of_steps(row.bench, drawn, how, sign),
                device_spread(
                    [
                        (name, sign[name], bench)
                        for name, bench in zip(names, benches, strict=True)
                        if bench is not None
                    ],
                    row.units,
                )
                if any(bench is not None and bench.processes for bench in benches)
                else None,
                id=ids[row.bench],
                open=len(comparison.rows) <= _OPEN_UP_TO,
            )
        )
    return children


def _not_drawn(names: Sequence[str], traced: Traced) -> list[Child]:
    lacking = [name for name, traces in zip(names, traced, strict=True) if traces is None]
    if not lacking:
        return []
    return [el("p", f"Known by a report alone, without records to draw: {', '.join(lacking)}.", class_="note")]


def _of_steps(
    bench: str, drawn: Sequence[tuple[str, Sequence[Trace]]], how: Fineness, sign: dict[str, str]
) -> list[Child]:
    named_steps = [
        (f"{name}: {trace.step}", sign[name], trace)
        for name, group in drawn
        for trace in selected_steps([t for t in group if t.ranks], min(2, how.steps))
    ]
    children: list[Child] = [rate_distributions(named_steps, bench)] if named_steps else []
    for name, group in drawn:
        children += step_timelines(group, how, name)
    return children


def _bench(system: System, name: str) -> BenchSummary | None:
    return next((bench for bench in system.summary.benchmarks if bench.bench == name), None)


def _ratio_words(row: ComparisonRow, names: Sequence[str]) -> str:
    phrases = [
        f"{name}: "
        + (
            "excluded"
            if contrast is None
            else f"{contrast.ratio:.4f} {verdict_sign(contrast.verdict)} {contrast.verdict}"
        )
        for name, contrast in zip(names[1:], row.contrasts, strict=True)
    ]
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
    note = "Dots: launches; bar: their mean; whisker: its 95 % interval, from 3 launches on."
    note += f" Not counted: {'; '.join(without)}." if without else ""
    if not rows:
        return el("p", note, class_="note")
    return figure("Launches on each system", dots(f"launches of {row.bench}", rows, units=row.units), note)
