"""The answers to budget questions as documents."""

from __future__ import annotations

from collections.abc import Sequence

from milabench.procurement.budget import BudgetAnswer, BudgetAnswers, VariedInput
from milabench.procurement.uncertainty import UncertainValue
from milabench.report.comparison_text import interval_text
from milabench.report.document import Document, Notes, Statement, Table, Title, columns_table, section
from milabench.report.labels import format_number

BUDGET_LEGEND = (
    "nodes: whole ones, rounded up where they are to match and down where something limits them; all else is computed from these",
    "bounds: of the nodes, 95 %, rounded in the same way; cost: price, upkeep and energy of all years, without interest; power:"
    " at work, without the building's; energy and carbon: of a year, with PUE",
    "low, high: the result, before nodes are whole, with this input at its bound and all others as they are; "
    "basis: stated in the files, scored: as it is in the score, or assumed: prices and rates without an uncertainty, and weights",
)


def budget_document(answered: BudgetAnswers) -> Document:
    """Return the answers, then how each of them changes with its inputs."""
    answers = answered.answers
    return (
        Title(text=f"budget by {answered.metric}: {answered.tender.title or answered.tender.file}"),
        Statement(text="; ".join(answer.sentence for answer in answers) + "."),
        *_open_ends(answered),
        _answer_table(answers),
        *(_input_table(answer) for answer in answers if answer.swings),
        Notes(lines=BUDGET_LEGEND),
    )


def budget_screen(answered: BudgetAnswers, again: str) -> Document:
    """Return the answers, their table, and the input that each of them depends on most. `again` is the command that asked."""
    answers = answered.answers
    largest = [(sensitivity_title(each), _swing_text(each.swings[0])) for each in answers if each.swings]
    return (
        Notes(lines=tuple(answer.sentence for answer in answers)),
        _answer_table(answers).without(("carbon kg/year", "energy kWh/year", "power by", "remark")),
        *section("depends most on", largest),
        *_open_ends(answered),
        Notes(lines=(f"`{again} --full`: the effect of every input",), name="next"),
    )


def _open_ends(answered: BudgetAnswers) -> Document:
    return (
        *section("rules broken with any number of nodes", answered.broken),
        *section("not answered", [("", line) for line in answered.notes]),
    )


def _swing_text(given: VariedInput) -> str:
    ends = [f"{format_number(result)} at {end:.5g}" for result, end in zip(given.swing, given.range, strict=True)]
    return f"{given.name}, {_value_cell(given)}: {', '.join(ends)}"


def _value_cell(given: VariedInput) -> str:
    return f"{given.value:.5g} {given.units}".rstrip()


def _answer_table(answers: Sequence[BudgetAnswer]) -> Table:
    return columns_table(
        "answers",
        answers,
        ("question", lambda answer: f"{answer.question}: {answer.asked}"),
        ("system", lambda answer: answer.system),
        ("#nodes", lambda answer: answer.nodes),
        ("bounds", lambda answer: "{} to {}".format(*answer.bounds) if answer.bounds else "not known"),
        ("#score", lambda answer: answer.score and f"{answer.score.value:.5g}"),
        ("95 % interval", lambda answer: answer.score and _score_interval(answer.score)),
        ("#over the first", lambda answer: answer.ratio and f"{answer.ratio.value:.4f}"),
        ("#cost", lambda answer: answer.cost and _cell(answer.cost)),
        ("#power kW", lambda answer: answer.power_kw and _cell(answer.power_kw)),
        ("#energy kWh/year", lambda answer: answer.energy_kwh and _cell(answer.energy_kwh)),
        ("#carbon kg/year", lambda answer: answer.carbon_kg and _cell(answer.carbon_kg)),
        ("power by", lambda answer: answer.power_level),
        ("remark", lambda answer: answer.why_not),
        spare=("energy kWh/year", "carbon kg/year", "power by", "over the first"),
    ).without_empty()[0]


def _score_interval(score: UncertainValue) -> str | None:
    interval = score.interval() if score.deviations else None
    return interval and interval_text(interval)


def _cell(value: UncertainValue) -> str:
    units = f" {value.units}" if value.units not in ("kW", "kWh", "kg", "g") else ""
    if value.value >= 1e6:
        return f"{value.value / 1e6:,.2f} M{units}"
    return f"{format_number(value.value)}{units}"


def sensitivity_title(answer: BudgetAnswer) -> str:
    """Return the result that the inputs of an answer were varied for."""
    return f"{answer.result}, {answer.system} ({answer.question})"


def _input_table(answer: BudgetAnswer) -> Table:
    return columns_table(
        f"changes of {sensitivity_title(answer)}",
        answer.swings,
        ("input", lambda given: given.name),
        ("value", _value_cell),
        ("varied", lambda given: "{:.5g} to {:.5g}".format(*given.range)),
        ("basis", lambda given: given.basis),
        ("#low", lambda given: format_number(given.swing[0])),
        ("#high", lambda given: format_number(given.swing[1])),
        spare=("basis",),
    )
