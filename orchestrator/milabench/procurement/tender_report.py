"""Reports of a comparison by a tender and of its numbers: documents, the screen, and the same for programs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import NamedTuple

from msgspec import structs

from milabench.analysis.comparison_model import System
from milabench.analysis.comparison_words import joined_warnings, one_session_note, system_warnings
from milabench.analysis.json_codec import picked, to_json_value
from milabench.analysis.summary_model import Summary
from milabench.procurement.award import award_sentence
from milabench.procurement.measured import SourcedFigure, side_of
from milabench.procurement.provenance import Provenance
from milabench.procurement.scores import METRICS, ScoreTerm
from milabench.procurement.tender_scores import OF_REFERENCE, ScoredBenchmark, ScoredBid, TenderScores, amount_text
from milabench.procurement.tiers import SuiteCheck, TierChange
from milabench.procurement.uncertainty import UncertainValue
from milabench.report.comparison_text import interval_text, ratio_text
from milabench.report.document import (
    Document,
    Notes,
    Statement,
    Table,
    Title,
    columns_table,
    section,
)
from milabench.report.labels import format_number
from milabench.report.run_tables import expense_tables
from milabench.shown import cut_text, grouped

TENDER_LEGEND = (
    "c: how much larger the problem is; n, N: nodes of the benchmark and of the system; S: speed-up over the reference, never"
    " clipped; w: share of the weights, for throughput the weight itself",
    "interval: 95 %, delta method on logarithms, degrees of freedom after Satterthwaite, empty below three repeats"
    " where all numbers are constants",
    "INCONCLUSIVE: the interval contains the limit, or the score has declared or suspect values: no verdict rests on them",
    "limits: the cost of all years where it is known, else the price, and the power of all nodes, one-sided at 95 %,"
    " INCONCLUSIVE where the limit is within the interval or the offer does not say",
    "FASTER, SLOWER, EQUIVALENT, DIFFERENT-BUT-SMALL: score relative to the first system, by Holm's correction over all systems",
)
NO_INTERVAL = "not known"
_MET = {"PASS": "met", "FAIL": "not met", "INCONCLUSIVE": "inconclusive"}
# Of the tables, what the screen leaves out, and other names.
COLUMNS_OF_FULL = ("benchmarks", "units", "potency", "potency per M")
BRIEF_HEADINGS = {"met": "vs minimum", "over the first": "ratio to first", "verdict": "vs the first"}
_MOST_SHOWN = 32  # characters of a value that changed


def tender_document(scores: TenderScores, *tables: Table, findings: Document = ()) -> Document:
    """Return a comparison by a tender: the award, the scores, the rules that are broken, every benchmark's terms.

    `tables` follow the tables of scores and limits. `findings` are sections that follow the award.
    """
    metric = METRICS[scores.metric]
    return (
        Title(text=f"{scores.metric} by {scores.tender.title or scores.tender.file}"),
        *((Statement(text=award_sentence(scores)),) if len(scores.bids) > 1 else ()),
        Statement(text=scores_sentence(scores)),
        *findings,
        *section("rules broken", _broken(scores)),
        *section("no score", _unscored(scores)),
        *section("not in the score", scores.excluded),
        *section("tiers", tier_entries(scores)),
        *section("no verdict rests on these values", unused_numbers(scores)),
        *section("warnings", [("", line) for line in tender_warnings(scores)]),
        score_table(scores).without_empty()[0],
        *_limit_tables(scores),
        *tables,
        _benchmark_table(scores).without_empty()[0],
        *expense_tables(_spent(scores)),
        Notes(
            lines=(
                f"{scores.metric}: {metric.title}, {metric.formula}, {scores.mean} mean; {metric.source}",
                *TENDER_LEGEND,
            )
        ),
    )


def _spent(scores: TenderScores) -> list[tuple[str, Summary]]:
    """Return the expenses of each bid's work, for an offer from the run that it names for each benchmark."""
    spent = []
    for entry in scores.bids:
        runs = {bench: entry.bid.measured(bench) for bench in scores.tender.benchmarks}
        for bench, system in runs.items():
            for session in () if system is None else system.sessions:
                kept = tuple(expense for expense in session.summary.expenses if expense.bench == bench)
                spent.append((entry.bid.name, structs.replace(session.summary, expenses=kept)))
    return spent


def scores_sentence(scores: TenderScores) -> str:
    """Return the scores in a sentence that may be quoted."""
    return "; ".join(score_lines(scores)) + "."


def score_lines(scores: TenderScores) -> list[str]:
    """Return a line for each bid: its score with its certainty, and the result."""
    return [_in_words(entry, scores) for entry in scores.bids]


def _in_words(entry: ScoredBid, scores: TenderScores) -> str:
    name = entry.bid.name
    if entry.score is None:
        return f"{name} has no score: {entry.why_not}"
    interval = entry.score.value.interval()
    how_sure = (
        f" (95 % interval {interval[0]:.4g} to {interval[1]:.4g})" if interval else " (its uncertainty is not known)"
    )
    units = f" {entry.score.value.units}" if entry.score.value.units else ""
    text = f"{name}: {scores.metric} {entry.score.value.value:.4g}{units}{how_sure if entry.score.value.deviations != () else ''}"
    if entry.admissible != "yes":
        text += ", not admissible" if entry.admissible == "no" else ", not shown to be admissible"
    if any(row.term is not None and row.is_declared for row in entry.benchmarks):
        text += ", with declared figures that no run measured"
    elif entry.doubts:
        text += ", with suspect numbers"
    if entry.meets is not None:
        text += f", minimum {entry.least:g}: {_MET[entry.meets]}"
    return f"{text}, {entry.verdict}" if entry.verdict else text


def _broken(scores: TenderScores) -> list[tuple[str, str]]:
    return [(entry.bid.name, line) for entry in scores.bids for line in entry.breaches]


def _unscored(scores: TenderScores) -> list[tuple[str, str]]:
    return [(entry.bid.name, entry.why_not) for entry in scores.bids if entry.why_not]


def tier_entries(scores: TenderScores) -> list[tuple[str, str]]:
    """Return each bid whose score mixes tiers, with the benchmarks of each tier."""
    return [
        (
            entry.bid.name,
            "one score over several tiers: "
            + "; ".join(f"{tier}: {', '.join(names)}" for tier, names in entry.tiers.items()),
        )
        for entry in scores.bids
        if len(entry.tiers) > 1
    ]


def unused_numbers(scores: TenderScores) -> list[tuple[str, str]]:
    """Return the numbers of each bid that are not used in the decision, and why. Numbers of the shared reference once."""
    lines = [
        ("reference", line.removeprefix(OF_REFERENCE)) if line.startswith(OF_REFERENCE) else (entry.bid.name, line)
        for entry in scores.bids
        for line in entry.doubts
    ]
    return list(dict.fromkeys(lines))


def suite_lines(name: str, check: SuiteCheck | None) -> Iterator[str]:
    """Yield a line on differences between a system's suite and the tender's, and a line where none is recorded."""
    if check is None:
        return
    by_bench: dict[str, list[str]] = {}
    for change in check.changes:
        by_bench.setdefault(change.bench, []).append(_change_text(change))
    if by_bench:
        differ = "; ".join(f"{bench}: {', '.join(texts)}" for bench, texts in by_bench.items())
        yield f"{name}: differs from the tender's suite {check.named}: {differ}"
    if check.unknown:
        benches = ", ".join(check.unknown)
        yield f"{name}: records no suite of {benches}, so that nothing shows whether it is {check.named}"


def _change_text(change: TierChange) -> str:
    asked, found = (cut_text(value, _MOST_SHOWN) or "none" for value in (change.asked, change.found))
    values = "" if change.name == "program" else f" {found} for {asked}"
    tier = "no tier allows it" if change.needs is None else change.needs
    return f"{change.name}{values} ({tier}{'' if change.verdict == 'allowed' else f', {change.verdict}'})"


def tender_warnings(scores: TenderScores) -> Iterator[str]:
    """Yield the warnings of a comparison of the same runs, and the changes of the tender's suite."""
    for entry in scores.bids:
        yield from suite_lines(entry.bid.name, entry.bid.suite)
    names = [bench.bench for bench in scores.bids[0].benchmarks]
    sides: dict[str, list[System]] = {}
    for entry in scores.bids:
        runs = [system for bench in names if (system := entry.bid.measured(bench)) is not None]
        sides[entry.bid.name] = [system for at, system in enumerate(runs) if system not in runs[:at]]
    if scores.reference is not None:
        sides["reference"] = [scores.reference]
    yield from joined_warnings(
        {
            name: [
                line
                for system in systems
                for line in system_warnings(system, [side_of(bench, system) for bench in scores.scored])
            ]
            for name, systems in sides.items()
        }
    )
    single = [name for name, systems in sides.items() if any(not system.later for system in systems)]
    if single and any(entry.score and entry.score.value.interval() for entry in scores.bids):
        yield one_session_note(single)


def score_table(scores: TenderScores) -> Table:
    """Return a row for each bid: its score, whether it is admissible, its ratio to the first."""
    return columns_table(
        "scores",
        scores.bids,
        ("system", lambda entry: entry.bid.name),
        (f"#score ({scores.metric})", lambda entry: entry.score and f"{entry.score.value.value:.6g}"),
        ("95 % interval", lambda entry: entry.score and _interval_cell(entry.score.value)),
        ("units", lambda entry: entry.score and entry.score.value.units),
        ("benchmarks", lambda entry: entry.score and f"{len(scores.scored)} of {len(scores.tender.benchmarks)}"),
        ("admissible", lambda entry: entry.admissible),
        ("#minimum", lambda entry: _plain(entry.least)),
        ("met", lambda entry: entry.meets),
        ("#over the first", lambda entry: entry.ratio and ratio_text(entry.ratio.value)),
        ("its interval", lambda entry: entry.ratio and _interval_cell(entry.ratio)),
        ("verdict", lambda entry: entry.verdict),
        ("#potency", lambda entry: entry.potency and f"{entry.potency.value:.6g} {entry.potency.units}"),
        ("#potency per M", lambda entry: entry.value and f"{1e6 * entry.value.value:.5g}"),
    )


def _limit_tables(scores: TenderScores) -> Iterator[Table]:
    table = columns_table(
        "limits",
        [(entry.bid.name, limit) for entry in scores.bids for limit in entry.limits],
        ("system", lambda row: row[0]),
        ("limit", lambda row: row[1].name),
        ("#offered", lambda row: amount_text(row[1].offered.value) if row[1].offered else "not declared"),
        ("95 % interval", lambda row: row[1].offered and _amount_interval(row[1].offered)),
        ("#maximum", lambda row: amount_text(row[1].most.value)),
        ("units", lambda row: row[1].most.units),
        ("met", lambda row: row[1].decision),
    )
    if table.rows:
        yield table


def _amount_interval(value: UncertainValue) -> str:
    interval = value.interval()
    if interval is None:
        return NO_INTERVAL
    return f"[{amount_text(interval[0])}, {amount_text(interval[1])}]" if value.deviations else ""


def _benchmark_table(scores: TenderScores) -> Table:
    is_several = len(scores.bids) > 1
    return columns_table(
        "benchmarks",
        [
            _BenchmarkRow(entry.bid.name if is_several else "", row, row.term)
            for entry in scores.bids
            for row in entry.benchmarks
        ],
        ("system", lambda at: at.system),
        ("bench", lambda at: at.row.bench),
        ("tier", lambda at: at.row.tier),
        ("shown by", lambda at: at.row.standing),
        ("#figure", lambda at: at.row.figure and format_number(at.row.figure.value.value)),
        ("units", lambda at: at.row.figure and at.row.figure.value.units),
        ("#reference", lambda at: at.row.reference and format_number(at.row.reference.value.value)),
        ("#c", lambda at: f"{at.row.wanted.capability:g}" if scores.metric == "ssi" else None),
        ("#n", lambda at: _plain(at.row.nodes)),
        ("#n ref", lambda at: _plain(at.row.reference_nodes)),
        ("#U", lambda at: ratio_text(at.term.utilization) if at.term and at.term.utilization is not None else None),
        ("#S", lambda at: at.term and at.term.speedup and ratio_text(at.term.speedup.value)),
        ("interval of S", lambda at: at.term and at.term.speedup and _interval_cell(at.term.speedup)),
        ("#w", lambda at: at.term and f"{at.term.weight:.4g}"),
        ("#term", lambda at: at.term and f"{at.term.term.value:.5g}"),
        ("remark", lambda at: at.row.why_not or (at.term and _rule_text(at.term))),
        spare=("units", "n ref", "c"),
    )


class _BenchmarkRow(NamedTuple):
    """A row of the table of benchmarks. `system` is empty where there is only one."""

    system: str
    row: ScoredBenchmark
    term: ScoreTerm | None


def _plain(number: float | None) -> str | None:
    return None if number is None else f"{number:g}"


def _rule_text(term: ScoreTerm) -> str:
    return "; ".join(filter(None, (f"RULE BROKEN: {term.breach}" if term.breach else "", term.doubt)))


def _interval_cell(value: UncertainValue) -> str:
    interval = value.interval()
    if interval is None:
        return NO_INTERVAL
    if not value.deviations:
        return ""
    return interval_text(interval) if min(interval) >= 0.01 else f"[{interval[0]:.4g}, {interval[1]:.4g}]"


def provenance_document(title: str, entries: Sequence[Provenance]) -> Document:
    """Return where each number comes from: its value and interval, its formula, its place."""
    table = columns_table(
        "",
        entries,
        ("number", lambda entry: entry.key),
        ("value", lambda entry: _number_text(entry.value)),
        ("95 % interval", lambda entry: None if isinstance(entry.value, str) else _interval_cell(entry.value)),
        ("formula", lambda entry: entry.formula),
        ("from", lambda entry: "; ".join(entry.where)),
    )
    return (Title(text=title), table.without_empty()[0])


def _number_text(value: UncertainValue | str) -> str:
    return value if isinstance(value, str) else f"{value.value:.10g} {value.units}".rstrip()


# --- the screen -------------------------------------------------------------------------------------------------------


def tender_screen(scores: TenderScores, again: str) -> Document:
    """Return the award, a row for each offer, each warning once. `again` is the command that compared them."""
    return (
        Statement(text=_verdict(scores)),
        _scores_alone(scores),
        *brief_findings(scores),
        Notes(lines=(f"`{again} --full`: every benchmark, with formulas",), name="next"),
    )


def _verdict(scores: TenderScores) -> str:
    return award_sentence(scores) if len(scores.bids) > 1 else f"{score_lines(scores)[0]}."


def _undecided(scores: TenderScores) -> Iterable[tuple[str, str]]:
    """Yield the rules and limits that the numbers of a bid do not decide, each with why."""
    for entry in scores.bids:
        for row in entry.benchmarks:
            if row.term is not None and row.term.doubt:
                yield f"{entry.bid.name} {row.bench}", f"S: {row.term.doubt}"
        for limit in entry.limits:
            if limit.decision == "INCONCLUSIVE":
                offered = (
                    "not declared"
                    if limit.offered is None
                    else f"{amount_text(limit.offered.value)} {limit.most.units}"
                )
                yield (
                    entry.bid.name,
                    f"{limit.name}: INCONCLUSIVE: {offered}, the maximum is {amount_text(limit.most.value)}",
                )


def _scores_alone(scores: TenderScores) -> Table:
    """Return the table of scores. Whether the minimum is met stands below its name."""
    table = score_table(scores).without((*COLUMNS_OF_FULL, "minimum", "its interval")).without_empty()[0]
    return replace(table, title="", headings=tuple(BRIEF_HEADINGS.get(name, name) for name in table.headings))


def brief_findings(scores: TenderScores) -> Document:
    """Return the sections of a short screen below its table: broken rules, open decisions, warnings, each text once."""
    return (
        *section("rules broken", once_each(_broken(scores))),
        *section("inconclusive", once_each(_undecided(scores))),
        *section("no score", once_each(_unscored(scores))),
        *section("no verdict rests on these values", once_each(unused_numbers(scores))),
        *section("not in the score", once_each(scores.excluded)),
        *section("warnings", [*once_each(tier_entries(scores)), *(("", line) for line in tender_warnings(scores))]),
    )


def once_each(entries: Iterable[tuple[str, str]]) -> Sequence[tuple[str, str]]:
    """Return each text once, with everything that it is about."""
    return [(", ".join(names), text) for text, names in grouped((text, name) for name, text in entries).items()]


# --- for programs ---------------------------------------------------------------------------------------------------


def tender_to_json(scores: TenderScores) -> dict[str, object]:
    """Return a comparison by a tender for programs, without its schema."""
    metric = METRICS[scores.metric]
    return {
        "tender": {
            "file": scores.tender.file,
            "title": scores.tender.title,
            "metric": scores.metric,
            "mean": scores.mean,
            "formula": metric.formula,
            "source": metric.source,
            "margin": scores.margin,
            "benchmarks": list(scores.scored),
            "excluded": [{"bench": bench, "why": why} for bench, why in scores.excluded],
            "sentence": scores_sentence(scores),
            "warnings": list(tender_warnings(scores)),
            "systems": [_bid_json(scores, entry) for entry in scores.bids],
        }
    }


def _bid_json(scores: TenderScores, entry: ScoredBid) -> dict[str, object]:
    return {
        **picked(entry, name="bid.name", nodes="machine.nodes", reference_nodes="machine.reference_nodes"),
        **picked(entry, score="score.value"),
        "admissible": {"yes": True, "no": False, "inconclusive": None}[entry.admissible],
        **picked(entry, "breaches", "doubts", "limits", "why_not", changes="bid.suite.changes"),
        **picked(entry, "least", "meets", "ratio", "verdict", "potency", potency_value="value", tiers="tiers"),
        "benchmarks": [_benchmark_json(scores, row) for row in entry.benchmarks],
        "expenses": [asdict(e) for name, of in _spent(scores) if name == entry.bid.name for e in of.expenses],
    }


def _benchmark_json(scores: TenderScores, row: ScoredBenchmark) -> dict[str, object]:
    return {
        **picked(row, "bench", "tier", "standing"),
        "figure": _figure_json(row.figure),
        "reference": _figure_json(row.reference),
        **picked(row, capability="wanted.capability", nodes="nodes", reference_nodes="reference_nodes"),
        **picked(row.term, "utilization", "speedup"),
        "weight": row.wanted.weight,
        "share": row.term.weight if row.term is not None and METRICS[scores.metric].is_by_share else None,
        **picked(row, term="term.term"),
        "breach": "" if row.term is None else row.term.breach,
        "doubt": "" if row.term is None else row.term.doubt,
        "why_not": row.why_not,
    }


def _figure_json(figure: SourcedFigure | None) -> dict[str, object] | None:
    return None if figure is None else {**to_json_value(figure.value), **to_json_value(figure)}


def provenance_to_json(entries: Iterable[Provenance]) -> dict[str, object]:
    """Return where each number comes from, for programs."""
    return {
        "numbers": [
            {
                "key": entry.key,
                **(
                    {"value": entry.value, "units": "", "ci95": None}
                    if isinstance(entry.value, str)
                    else to_json_value(entry.value)
                ),
                "formula": entry.formula,
                "from": list(entry.where),
            }
            for entry in entries
        ]
    }
