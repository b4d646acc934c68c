"""All offers to a tender together: a document, a page, a workbook of formulas, the same for programs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from milabench.analysis.json_codec import picked
from milabench.analysis.summary_model import validity_words
from milabench.procurement.award import award_sentence
from milabench.procurement.costs import YEAR_HOURS, capital_recovery_factor
from milabench.procurement.offer import Offer, Standing
from milabench.procurement.offer_check import OfferCheck
from milabench.procurement.offer_costs import OfferCosts
from milabench.procurement.offer_report import projected_tables
from milabench.procurement.scores import METRICS
from milabench.procurement.tender import Tender
from milabench.procurement.tender_report import (
    BRIEF_HEADINGS,
    COLUMNS_OF_FULL,
    brief_findings,
    once_each,
    score_table,
    tender_document,
    tender_to_json,
)
from milabench.procurement.tender_scores import ScoredBenchmark, ScoredBid, TenderScores, amount_text
from milabench.procurement.uncertainty import UncertainValue
from milabench.report.document import Document, Notes, Statement, Table, columns_table, section
from milabench.workbooks.workbook import Cell, Formula, Sheet, sheet_names, workbook_bytes

_WITHIN: Final = {"PASS": "yes", "FAIL": "no", "INCONCLUSIVE": "inconclusive"}
# Of the table of costs, what the screen leaves out.
_COST_COLUMNS = (
    *("system", "power kW", "energy a year", "a year", "its interval", "currency", "score per M", "score per kW"),
    *("budget", "power"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferSide:
    """An offer: its file, its score, its costs, and its verification. `altered` names its altered parts."""

    file: str
    offer: Offer
    entry: ScoredBid
    check: OfferCheck
    signer: str
    altered: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """ALTERED or UNTRUSTED, else the verdict of the verification."""
        return self.entry.bid.verified or self.check.verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferTable:
    """The offers to a tender, in the order of the scores: the others are compared with the first.

    `unreadable` are the archives that could not be opened, and why.
    """

    scores: TenderScores
    sides: tuple[OfferSide, ...]
    unreadable: tuple[tuple[str, str], ...] = ()


# --- the document and the page ------------------------------------------------------------------------------------


def offers_document(table: OfferTable) -> Document:
    """Return the offers with their scores, costs and verification."""
    findings = (*archive_problems(table), *section("verification", open_findings(table, ", ")))
    tables = (cost_table(table).without_empty()[0], _verification_table(table))
    return (
        *tender_document(table.scores, *tables, findings=findings),
        *projected_tables([side.check for side in table.sides]),
        Notes(
            lines=(
                "all years: the price with the energy and the upkeep of all years, without interest,"
                " nodes of a later phase of the delivery from its month on",
                "budget, power: whether it is within the tender's limit, one-sided at 95 %",
                "verified: all numbers computed again from the records, and the changes put into tiers: `milabench offer verify`",
            )
        ),
    )


def offers_screen(table: OfferTable, again: str) -> Document:
    """Return the award, a row with score and costs for each offer, and its verification."""
    return (
        Statement(text=award_sentence(table.scores)),
        _offer_table(table),
        *archive_problems(table),
        *section("verification", once_each(open_findings(table, " "))),
        *brief_findings(table.scores),
        Notes(lines=(f"`{again} --full`: every benchmark, with formulas",), name="next"),
    )


def _offer_table(table: OfferTable) -> Table:
    """Return score, admissibility and costs in a row for each offer."""
    scores = score_table(table.scores).without((*COLUMNS_OF_FULL, "minimum", "met", "over the first", "its interval"))
    costs = cost_table(table).without(_COST_COLUMNS)
    verified = tuple(side.verdict for side in table.sides)
    currencies = {side.entry.costs.price.units for side in table.sides if side.entry.costs.price is not None}
    money = f" {currencies.pop()}" if len(currencies) == 1 else ""
    priced = (
        f"{BRIEF_HEADINGS.get(heading, heading)}{money}" if heading in ("price", "all years") else heading
        for heading in costs.headings
    )
    return Table(
        headings=(*(BRIEF_HEADINGS.get(heading, heading) for heading in scores.headings), *priced, "verified"),
        is_text=(*scores.is_text, *costs.is_text, True),
        rows=tuple(
            (*of_score, *of_cost, verdict)
            for of_score, of_cost, verdict in zip(scores.rows, costs.rows, verified, strict=True)
        ),
        spare=("nodes", "95 % interval"),
    ).without_empty()[0]


def archive_problems(table: OfferTable) -> Document:
    """Return the archives that cannot be read, and those that were altered or signed by somebody else."""
    altered = [(side.offer.name, line) for side in table.sides for line in side.altered]
    return (
        *section("cannot be read, and not compared", table.unreadable),
        *section("altered, or not signed by an allowed signer", altered),
    )


def open_findings(table: OfferTable, between: str) -> list[tuple[str, str]]:
    """Return what fails or is not shown of each offer, with why. `between` stands between the offer and the finding."""
    return [
        (f"{side.offer.name}{between}{finding.what}", f"{finding.verdict}: {finding.why}")
        for side in table.sides
        for finding in side.check.findings
        if finding.verdict != "PASS"
    ]


def cost_table(table: OfferTable) -> Table:
    """Return price, power and costs of each offer."""
    return columns_table(
        "costs",
        table.sides,
        ("system", lambda side: side.offer.name),
        ("#nodes", lambda side: side.offer.nodes),
        ("#price", lambda side: _number(side.entry.costs.price)),
        ("#power kW", lambda side: _number(side.entry.costs.power_kw)),
        ("#energy a year", lambda side: side.entry.costs.yearly and _number(side.entry.costs.yearly.energy)),
        ("#a year", lambda side: side.entry.costs.yearly and _number(side.entry.costs.yearly.total)),
        ("#all years", lambda side: _number(side.entry.costs.lifetime)),
        ("its interval", lambda side: side.entry.costs.lifetime and _bounds(side.entry.costs.lifetime)),
        ("currency", lambda side: side.entry.costs.price and side.entry.costs.price.units),
        ("#score per M", lambda side: _score_per(side, side.entry.costs.whole, 1e6)),
        ("#score per kW", lambda side: _score_per(side, side.entry.costs.power_kw, 1.0)),
        ("budget", lambda side: _within(side, "budget")),
        ("power", lambda side: _within(side, "power")),
    )


def _within(side: OfferSide, name: str) -> str | None:
    """Return whether the cost or the power of an offer keeps the limit of this name. None without a limit."""
    return next((_WITHIN[limit.decision] for limit in side.entry.limits if limit.name == name), None)


def _score_per(side: OfferSide, amount: UncertainValue | None, scale: float) -> str | None:
    score = side.entry.score
    return None if score is None or amount is None else f"{score.value.value / amount.value * scale:.4g}"


def _bounds(amount: UncertainValue) -> str | None:
    interval = amount.interval()
    return interval and f"[{interval[0]:,.0f}, {interval[1]:,.0f}]"


def _number(value: UncertainValue | None) -> str | None:
    return None if value is None else amount_text(value.value)


def _verification_table(table: OfferTable) -> Table:
    return columns_table(
        "verification",
        table.sides,
        ("system", lambda side: side.offer.name),
        ("verified", lambda side: side.verdict),
        ("signed", lambda side: side.signer),
        ("#measured", lambda side: _count(side, "measured")),
        ("#projected", lambda side: _count(side, "projected")),
        ("#declared", lambda side: _count(side, "declared")),
        ("#changes", lambda side: len(side.check.changes)),
        ("#not allowed", lambda side: sum(change.verdict != "allowed" for change in side.check.changes)),
        ("power level", lambda side: f"{side.check.power.level}: {side.check.power.why}"),
    )


def _count(side: OfferSide, standing: Standing) -> int:
    return sum(row.standing == standing for row in side.check.evidence)


def offers_page(table: OfferTable) -> str:
    """Return the page, the scores over the first offer's drawn."""
    from milabench.pages.blocks import document_page
    from milabench.pages.plots import Ratio, figure, forest

    ratios = [
        Ratio(
            label=entry.bid.name,
            value=entry.ratio.value,
            interval=entry.ratio.interval(),
            margin=table.scores.margin,
            verdict=entry.verdict or "",
            is_total=True,
        )
        for entry in table.scores.bids
        if entry.ratio is not None
    ]
    first = table.scores.bids[0].bid.name
    title = f"{table.scores.metric} relative to {first}"
    return document_page(offers_document(table), figure(title, forest(title, ratios)) if ratios else None)


def offers_to_json(table: OfferTable) -> dict[str, object]:
    """Return all offers for programs, without the schema."""
    return {
        "award": award_sentence(table.scores),
        **tender_to_json(table.scores),
        "offers": [
            {
                **picked(side, name="offer.name", file="file", verdict="verdict", signed="signer", altered="altered"),
                **picked(side.entry.costs, "price", power_kW="power_kw"),
                **picked(side.entry.costs, energy_a_year="yearly.energy", a_year="yearly.total", all_years="lifetime"),
                **picked(side.entry.costs, "nodes_in_use", "nodes_paid"),
                "within_budget": _within(side, "budget"),
                "within_power": _within(side, "power"),
            }
            for side in table.sides
        ],
        "unreadable": [{"file": file, "why": why} for file, why in table.unreadable],
    }


# --- the workbook ---------------------------------------------------------------------------------------------------

_FIRST_ROW: Final = 6  # of the benchmarks in a worksheet
_ROW_HEADS: Final = (
    *(
        "benchmark",
        "tier",
        "shown by",
        "figure",
        "units",
        "better",
        "reference",
        "w",
        "c",
        "n",
        "n ref",
        "work",
    ),
    *("S", "U", "term", "part of the mean", "remark", "figure is", "reference is"),
)
# What a benchmark brings to each score, by the columns above; what the mean is multiplied by.
_TERMS: Final[Mapping[str, str]] = {
    "ssi": "I{at}*N{at}*M{at}",
    "ssni": "M{at}",
    "ssp": "L{at}/(D{at}*J{at})",
    "throughput": "3600*$B$2/(D{at}*J{at})",
    "index": "M{at}",
}
_SCALES: Final[Mapping[str, str]] = {"ssni": "$B$2/$B$3*", "ssp": "$B$2*", "throughput": "1/SUM({w})*"}
_PARTS: Final = {"geometric": "H{at}*LN(O{at})", "arithmetic": "H{at}*O{at}", "harmonic": "H{at}/O{at}"}
_MEANS: Final = {
    "geometric": "EXP(SUM({parts})/SUM({w}))",
    "arithmetic": "SUM({parts})/SUM({w})",
    "harmonic": "SUM({w})/SUM({parts})",
}


def offers_workbook(table: OfferTable) -> bytes:
    """Return the workbook: all offers, the terms, and a worksheet of the score for each offer. Raises UsageError."""
    names = sheet_names(["offers", "terms", *(side.offer.name for side in table.sides)])
    terms, places = _terms_sheet(names[1], table.scores.tender)
    worksheets = [
        score_worksheet(name, table.scores, side.entry) for name, side in zip(names[2:], table.sides, strict=True)
    ]
    return workbook_bytes([_overview(names[0], table, worksheets, places), terms, *worksheets])


def score_worksheet(name: str, scores: TenderScores, entry: ScoredBid) -> Sheet:
    """Return the worksheet of a score, which is in B1, with a formula for each S, U and term."""
    sheet, metric = Sheet(name=name), METRICS[scores.metric]
    value = None if entry.score is None else entry.score.value
    last = _FIRST_ROW + len(entry.benchmarks) - 1
    ranges = {"w": f"H{_FIRST_ROW}:H{last}", "parts": f"P{_FIRST_ROW}:P{last}"}
    score: Cell = entry.why_not or "no score"
    if value is not None:
        text = (_SCALES.get(scores.metric, "") + _MEANS[scores.mean]).format(**ranges)
        score = Formula(text=text, value=value.value)
    interval = None if value is None else value.interval()
    low, high = interval or (None, None)
    sheet.add(
        scores.metric, score, value.units if value else "", "95 % interval", low, high, metric.formula, metric.source
    )
    sheet.add("N", entry.machine.nodes)
    sheet.add("N ref", entry.machine.reference_nodes)
    sheet.add("admissible", entry.admissible)
    sheet.add(*_ROW_HEADS, is_head=True)
    for at, row in enumerate(entry.benchmarks, start=_FIRST_ROW):
        sheet.add(*_worksheet_row(scores, entry, row, at))
    return sheet


def _worksheet_row(scores: TenderScores, entry: ScoredBid, row: ScoredBenchmark, at: int) -> tuple[Cell, ...]:
    wanted, term, figure, reference = row.wanted, row.term, row.figure, row.reference
    metric = METRICS[scores.metric]
    weight = wanted.weight if metric.is_weighted else 1.0
    is_lower = figure is not None and figure.direction == "lower"
    speedup = use = whole = part = None
    if term is not None:
        if term.speedup is not None:
            speedup = Formula(text=f"G{at}/D{at}" if is_lower else f"D{at}/G{at}", value=term.speedup.value)
        if term.utilization is not None:
            use = Formula(text=f"(K{at}/J{at})*($B$2/$B$3)", value=term.utilization)
        whole = Formula(text=_TERMS[scores.metric].format(at=at), value=term.term.value)
        part = Formula(
            text=_PARTS[scores.mean].format(at=at), value=_part_of_mean(scores.mean, weight, term.term.value)
        )
    return (
        *(row.bench, row.tier, row.standing, None if figure is None else figure.value.value),
        "" if figure is None else figure.value.units,
        "lower" if is_lower else "higher",
        None if reference is None else reference.value.value,
        # Only what is in the score counts in the sums.
        None if term is None else weight,
        *(wanted.capability, row.nodes, row.reference_nodes),
        None if wanted.work is None else wanted.work.value,
        *(speedup, use, whole, part),
        row.why_not or (f"RULE BROKEN: {term.breach}" if term is not None and term.breach else ""),
        *("" if each is None else validity_words(each.validity, each.doubts) for each in (figure, reference)),
    )


def _part_of_mean(mean: str, weight: float, term: float) -> float:
    return weight * math.log(term) if mean == "geometric" else weight * term if mean == "arithmetic" else weight / term


def _terms_sheet(name: str, tender: Tender) -> tuple[Sheet, Mapping[str, str]]:
    """Return the tender's terms, and the cell of each by its name."""
    sheet, terms = Sheet(name=name), tender.terms
    sheet.add("term", "value", "units", "95 % low", "95 % high", is_head=True)
    places: dict[str, str] = {}

    def put(key: str, cell: Cell, units: str = "", bounds: Sequence[float] = ()) -> None:
        places[key] = sheet.refer(f"$B${sheet.add(key, cell, units, *bounds)}")

    for key in ("years", "interest", "upkeep", "electricity", "pue", "utilization"):
        value = getattr(terms, key)
        if isinstance(value, UncertainValue):
            put(key, value.value, value.units, value.interval() or ())
        else:
            put(key, 1.0 if value is None and key in ("pue", "utilization") else value)
    if terms.years is not None:
        rate, years = (places[key].rpartition("!")[2] for key in ("interest", "years"))
        text = f"{rate}/(1-(1+{rate})^(-{years}))" if terms.interest else f"1/{years}"
        put(
            "capital recovery factor",
            Formula(text=text, value=capital_recovery_factor(terms.interest, terms.years.value)),
        )
    for key in ("budget", "power"):
        limit: UncertainValue | None = getattr(tender.limits, key)
        if limit is not None:
            put(f"most {key}", limit.value, limit.units)
    return sheet, places


_OVERVIEW: Final = (
    *("system", "verified", "admissible", "N", "score", "95 % low", "95 % high", "units", "over the first", "verdict"),
    *("price of a node", "fixed", "price", "currency", "kW of a node", "kW", "energy a year", "capital a year"),
    *("upkeep a year", "a year", "all years", "score per M", "score per kW", "within budget", "within power", "file"),
    *("nodes in use", "nodes paid", "suspect figures"),
)


def _overview(name: str, table: OfferTable, worksheets: Sequence[Sheet], terms: Mapping[str, str]) -> Sheet:
    sheet = Sheet(name=name)
    sheet.add(f"{table.scores.metric} by {table.scores.tender.title or table.scores.tender.file}")
    sheet.add(*_OVERVIEW, is_head=True)
    for at, (side, worksheet) in enumerate(zip(table.sides, worksheets, strict=True), start=3):
        sheet.add(*_overview_row(side, at, worksheet.refer("B1"), terms))
    for file, why in table.unreadable:
        sheet.add(file, f"cannot be read: {why}")
    return sheet


def _overview_row(side: OfferSide, at: int, score_cell: str, terms: Mapping[str, str]) -> tuple[Cell, ...]:
    entry, offer, costs = side.entry, side.offer, side.entry.costs
    value = None if entry.score is None else entry.score.value
    low, high = (None if value is None else value.interval()) or (None, None)
    ratio: Cell = None
    if entry.ratio is not None:
        ratio = Formula(text=f"E{at}/E$3", value=entry.ratio.value)
    return (
        *(offer.name, side.verdict, entry.admissible, offer.nodes),
        None if value is None else Formula(text=score_cell, value=value.value),
        *(low, high, "" if value is None else value.units, ratio, entry.verdict),
        *(_value(offer.price.node), _value(offer.price.fixed), _formula(f"D{at}*K{at}+L{at}", costs.price)),
        "" if costs.price is None else costs.price.units,
        *(_value(offer.power.node), _formula(f"D{at}*O{at}", costs.power_kw)),
        *_cost_cells(costs, at, terms, has_node_price=offer.price.node is not None),
        _per(value, costs.whole, f"E{at}/{'U' if costs.lifetime else 'M'}{at}*1000000", 1e6),
        _per(value, costs.power_kw, f"E{at}/P{at}", 1.0),
        *(_within(side, "budget"), _within(side, "power"), side.file, costs.nodes_in_use, costs.nodes_paid),
        ", ".join(
            row.bench
            for row in entry.benchmarks
            if any(each is not None and each.validity == "suspect" for each in (row.figure, row.reference))
        ),
    )


def _cost_cells(costs: OfferCosts, at: int, terms: Mapping[str, str], *, has_node_price: bool) -> tuple[Cell, ...]:
    """Return energy, capital and upkeep a year, their sum, and the cost of all years."""
    yearly = costs.yearly
    if yearly is None:
        return (None,) * 5
    upkeep, years = terms["upkeep"], terms["years"]
    power = "*".join(terms[key] for key in ("pue", "utilization", "electricity"))
    kept = f"D{at}*K{at}*AA{at}" if has_node_price else f"L{at}"
    return (
        _formula(f"P{at}*{power}*{YEAR_HOURS:g}*AA{at}", yearly.energy),
        _formula(f"(D{at}*K{at}*AB{at}+L{at})*{terms['capital recovery factor']}", yearly.capital),
        0.0 if yearly.upkeep is None else _formula(f"{kept}*{upkeep}", yearly.upkeep),
        _formula(f"Q{at}+R{at}+S{at}", yearly.total),
        _formula(f"M{at}+{years}*(Q{at}+S{at})", costs.lifetime),
    )


def _value(value: UncertainValue | None) -> float | None:
    return None if value is None else value.value


def _formula(text: str, value: UncertainValue | None) -> Formula | None:
    return None if value is None else Formula(text=text, value=value.value)


def _per(value: UncertainValue | None, of: UncertainValue | None, text: str, scale: float) -> Formula | None:
    return None if value is None or of is None else Formula(text=text, value=value.value / of.value * scale)
