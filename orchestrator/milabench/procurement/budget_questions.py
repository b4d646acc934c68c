"""Budget questions about systems by a tender: reads the named systems, answers the questions."""

from __future__ import annotations

import json
import re

from milabench.config.kinds import ValueParser
from milabench.config.problems import Problems
from milabench.config.source_map import SourceLocation
from milabench.config.yaml_reader import parse_document
from milabench.errors import ConfigError, Problem, UsageError
from milabench.procurement.amounts import MONEY, POWER, Amount, Dimension
from milabench.procurement.budget import (
    BudgetAnswer,
    BudgetAnswers,
    BudgetSystem,
    budget_system,
    matching_nodes,
    nodes_for_money,
    nodes_for_power,
)
from milabench.procurement.requests import BudgetRequest
from milabench.procurement.tender import Tender, tender_currency
from milabench.procurement.tender_report import suite_lines
from milabench.procurement.tenders import compare_by_tender
from milabench.procurement.uncertainty import UncertainValue
from milabench.workflow.options import CompareRequest, Session


def answer_budget(request: BudgetRequest, session: Session) -> BudgetAnswers:
    """Return the answers to budget questions. A system without an answer is listed with the others.

    Raises UsageError for a question about nothing, ConfigError for missing values where nothing is answered,
    NothingSelected and RecordError for runs.
    """
    named = list(dict.fromkeys([*(request.match or ()), *request.systems]))
    if not named:
        raise UsageError("names no system: give runs or offers, or --match A B")
    compared = CompareRequest(runs=tuple(named), base=request.base)
    scores = compare_by_tender(request.tender, compared, session, request.metric)
    for entry in scores.bids:
        for line in suite_lines(entry.bid.name, entry.bid.suite):
            session.warn(line)
    tender = scores.tender
    notes: list[str] = []
    systems: dict[str, BudgetSystem] = {}
    for name, entry in zip(named, scores.bids, strict=True):
        try:
            systems[name] = budget_system(scores, entry)
        except ConfigError as error:
            notes.append(str(error))
    answers: list[BudgetAnswer] = []
    if request.match is not None:
        first, second = request.match
        if len(named) == 1:
            raise UsageError(f"--match {first} {second}: is the same system twice. Name another")
        if first not in systems:
            raise ConfigError(notes[0])
        others = [system for name, system in systems.items() if name != first]
        answers += [matching_nodes(systems[first], system, tender.terms, vary=request.vary) for system in others]
    spend, power = _limits(request, tender)
    for system in systems.values():
        for ask, limit in ((nodes_for_money, spend), (nodes_for_power, power)):
            if limit is None:
                continue
            try:
                answers.append(ask(limit, system, tender.terms, vary=request.vary))
            except ConfigError as error:
                notes.append(str(error))
    if not answers:
        raise ConfigError("; ".join(dict.fromkeys(notes)))
    broken = tuple((each.bid.name, line) for each in scores.bids if each.score for line in each.score.breaches)
    return BudgetAnswers(tender=tender, metric=scores.metric, answers=tuple(answers), notes=tuple(notes), broken=broken)


def _limits(request: BudgetRequest, tender: Tender) -> tuple[UncertainValue | None, UncertainValue | None]:
    """Return the limits of money and power in question: by default the tender's."""
    spend = _money_of(request.spend, tender)
    power = None if request.power is None else amount_of(request.power, POWER, "kW", "--power")
    if request.match is not None or spend is not None or power is not None:
        return spend, power
    if tender.limits.budget is None and tender.limits.power is None:
        raise UsageError(
            f"{request.tender}: names no limit of money or power. Ask with --match A B, --spend AMOUNT or --power AMOUNT"
        )
    return tender.limits.budget, tender.limits.power


def _money_of(text: str | None, tender: Tender) -> UncertainValue | None:
    """Return the money of --spend. Raises ConfigError for another currency than the tender's."""
    if text is None:
        return None
    currency = tender_currency(tender)
    money = amount_of(text, MONEY, currency, "--spend")
    if currency and money.units != currency:
        raise ConfigError(
            Problem("", "--spend", f"is in {money.units}, and the tender in {currency}", "convert to the same currency")
        )
    return money


def amount_of(text: str, dimension: Dimension, units: str, option: str) -> UncertainValue:
    """Return an amount that was typed: as in a tender, or with neither units nor a space before `k` and `M`.

    Raises ConfigError, at the option.
    """
    spaced = re.sub(r"(?<=\d)\s*([kMG])(?=\s|$|\+)", r" \1", text.strip())
    parts = re.split(r"(\+-|\+/-|±)", spaced, maxsplit=1)
    if not re.search(r"[A-Za-z]{2,}|W", parts[0]):
        parts[0] = f"{parts[0].strip()} {units} "
    root = parse_document(json.dumps("".join(parts).strip()), SourceLocation(option, "")).root
    problems = Problems()
    amount = Amount(dimension).parse(root, "", ValueParser(problems, home=""))
    problems.raise_any()
    assert isinstance(amount, UncertainValue)
    return amount
