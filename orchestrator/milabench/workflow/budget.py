"""Budget questions about systems by a tender: reads what they name, answers them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from milabench.config.kinds import ValueParser
from milabench.config.problems import Problems
from milabench.config.source_map import SourceLocation
from milabench.config.yaml_reader import parse_document
from milabench.errors import ConfigError, UsageError
from milabench.procurement.amounts import MONEY, POWER, Amount, Dimension
from milabench.procurement.budget import (
    BudgetAnswer,
    BudgetSystem,
    budget_system,
    matching_nodes,
    nodes_for_money,
    nodes_for_power,
)
from milabench.procurement.tender import Tender, tender_currency
from milabench.procurement.uncertainty import UncertainValue
from milabench.workflow.options import BudgetRequest, Session
from milabench.workflow.tenders import compare_by_tender


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetAnswers:
    """All answers, by the metric of the scores; `notes` say which limits of the tender could not be asked of a system."""

    tender: Tender
    metric: str
    answers: tuple[BudgetAnswer, ...]
    notes: tuple[str, ...] = ()


def answer_budget(request: BudgetRequest, session: Session) -> BudgetAnswers:
    """Return the answers to budget questions.

    Raises UsageError for a question about nothing, ConfigError for what a tender or an offer lacks, NothingSelected and
    RecordError for runs.
    """
    named = list(dict.fromkeys([*(request.match or ()), *request.systems]))
    if not named:
        raise UsageError("names no system: give runs or offers, or --match A B")
    scores = compare_by_tender(request.tender, named, request.base, session, metric=request.metric or "")
    tender = scores.tender
    systems = dict(zip(named, (budget_system(scores, entry) for entry in scores.bids), strict=True))
    answers: list[BudgetAnswer] = []
    if request.match is not None:
        wanted = systems[request.match[0]]
        others = [system for name, system in systems.items() if name != request.match[0]]
        if not others:
            raise UsageError(f"--match {request.match[0]} {request.match[1]}: is one system; name another")
        answers += [matching_nodes(wanted, system, tender.terms, vary=request.vary) for system in others]
    spend = None if request.spend is None else amount_of(request.spend, MONEY, tender_currency(tender), "--spend")
    power = None if request.power is None else amount_of(request.power, POWER, "kW", "--power")
    notes: list[str] = []
    if request.match is None and spend is None and power is None:
        limits = tender.limits
        if limits.budget is None and limits.power is None:
            raise UsageError(
                f"{request.tender}: names no limit of money or power; ask with --match A B, --spend AMOUNT or --power AMOUNT"
            )
        # A limit that the tender has is asked of who can answer; one that was typed, of all.
        answers += _limited(systems.values(), tender, limits.budget, limits.power, request.vary, notes)
        if not answers:
            raise ConfigError("; ".join(notes))
    else:
        answers += _limited(systems.values(), tender, spend, power, request.vary)
    return BudgetAnswers(tender=tender, metric=scores.metric, answers=tuple(answers), notes=tuple(notes))


def _limited(
    systems: Iterable[BudgetSystem],
    tender: Tender,
    spend: UncertainValue | None,
    power: UncertainValue | None,
    vary: float,
    notes: list[str] | None = None,
) -> Iterator[BudgetAnswer]:
    """Yield what a limit of money and one of power allow of each system; with `notes`, these get why one has no answer."""
    for system in systems:
        for ask, limit in ((nodes_for_money, spend), (nodes_for_power, power)):
            if limit is None:
                continue
            try:
                yield ask(limit, system, tender.terms, vary=vary)
            except ConfigError as error:
                if notes is None:
                    raise
                notes.append(str(error))


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
