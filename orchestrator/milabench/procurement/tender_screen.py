"""The screen of scores by a tender: the award in the first line, a table, the warnings, the next command."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from milabench.procurement.award import award_sentence
from milabench.procurement.offers_report import OfferTable, archive_problems, cost_table, open_findings
from milabench.procurement.tender_report import score_lines, score_table, tender_warnings, tier_entries, unused_numbers
from milabench.procurement.tender_scores import TenderScores, amount_text
from milabench.report.document import Document, Notes, Statement, Table, section
from milabench.shown import grouped

# Of the tables of the full report.
_COLUMNS = ("benchmarks", "units", "potency", "potency per M")
_HEADINGS = {"met": "vs minimum", "over the first": "ratio to first", "verdict": "vs the first"}
_COST_COLUMNS = (
    *("system", "power kW", "energy a year", "a year", "its interval", "currency", "score per M", "score per kW"),
    *("budget", "power"),
)


def tender_screen(scores: TenderScores, again: str) -> Document:
    """Return the award, a row for each offer, each warning once. `again` is the command that compared them."""
    return (
        Statement(text=_verdict(scores)),
        _scores_alone(scores),
        *_findings(scores),
        Notes(lines=(f"`{again} --full`: every benchmark, with formulas",), name="next"),
    )


def offers_screen(table: OfferTable, again: str) -> Document:
    """Return the award, a row with score and costs for each offer, and its verification."""
    return (
        Statement(text=award_sentence(table.scores)),
        _offer_table(table),
        *archive_problems(table),
        *section("verification", _grouped(open_findings(table, " "))),
        *_findings(table.scores),
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
    table = score_table(scores).without((*_COLUMNS, "minimum", "its interval")).without_empty()[0]
    return replace(table, title="", headings=tuple(_HEADINGS.get(name, name) for name in table.headings))


def _offer_table(table: OfferTable) -> Table:
    """Return score, admissibility and costs in a row for each offer."""
    scores = score_table(table.scores).without((*_COLUMNS, "minimum", "met", "over the first", "its interval"))
    costs = cost_table(table).without(_COST_COLUMNS)
    verified = tuple(side.verdict for side in table.sides)
    currencies = {side.costs.price.units for side in table.sides if side.costs.price is not None}
    money = f" {currencies.pop()}" if len(currencies) == 1 else ""
    priced = (
        f"{_HEADINGS.get(heading, heading)}{money}" if heading in ("price", "all years") else heading
        for heading in costs.headings
    )
    return Table(
        headings=(*(_HEADINGS.get(heading, heading) for heading in scores.headings), *priced, "verified"),
        is_text=(*scores.is_text, *costs.is_text, True),
        rows=tuple(
            (*of_score, *of_cost, verdict)
            for of_score, of_cost, verdict in zip(scores.rows, costs.rows, verified, strict=True)
        ),
        spare=("nodes", "95 % interval"),
    ).without_empty()[0]


def _findings(scores: TenderScores) -> Document:
    return (
        *section("rules broken", _grouped((entry.bid.name, line) for entry in scores.bids for line in entry.breaches)),
        *section("inconclusive", _grouped(_undecided(scores))),
        *section("no score", _grouped((entry.bid.name, entry.why_not) for entry in scores.bids if entry.why_not)),
        *section("no verdict rests on these values", _grouped(unused_numbers(scores))),
        *section("not in the score", _grouped(scores.excluded)),
        *section("warnings", [*_grouped(tier_entries(scores)), *(("", line) for line in tender_warnings(scores))]),
    )


def _grouped(entries: Iterable[tuple[str, str]]) -> Sequence[tuple[str, str]]:
    """Return each text once, with everything that it is about."""
    return [(", ".join(names), text) for text, names in grouped((text, name) for name, text in entries).items()]
