"""The answers to budget questions: a document, and the same for programs."""

from __future__ import annotations

from collections.abc import Sequence

from milabench.analysis.json_codec import picked
from milabench.procurement.budget import BudgetAnswer, BudgetAnswers, Swing
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


def budget_sentence(answer: BudgetAnswer) -> str:
    """Return an answer in a sentence that may be quoted."""
    bounds = "" if answer.bounds is None else f" ({answer.bounds[0]} to {answer.bounds[1]} at 95 %)"
    bounds = bounds if answer.bounds != (answer.nodes, answer.nodes) else ""
    what = {
        "match": f"{answer.nodes} nodes of {answer.system} match {answer.asked}",
        "spend": f"{answer.asked} pays for {answer.nodes} nodes of {answer.system}",
        "power": f"{answer.nodes} nodes of {answer.system} fit in {answer.asked}",
    }[answer.question]
    if answer.score is None:
        return f"{what}{bounds}: no score, {answer.why_not}"
    return f"{what}{bounds}, with a score of {answer.score.value:.4g}"


def budget_document(answered: BudgetAnswers) -> Document:
    """Return the answers, then how each of them changes with its inputs."""
    answers = answered.answers
    return (
        Title(text=f"budget by {answered.metric}: {answered.tender.title or answered.tender.file}"),
        Statement(text="; ".join(map(budget_sentence, answers)) + "."),
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
        Notes(lines=tuple(map(budget_sentence, answers))),
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


def _swing_text(swing: Swing) -> str:
    given = f"{swing.input.value:.5g} {swing.input.units}".rstrip()
    return (
        f"{swing.input.name}, {given}: {format_number(swing.low)} at {swing.input.low:.5g},"
        f" {format_number(swing.high)} at {swing.input.high:.5g}"
    )


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
        ("input", lambda swing: swing.input.name),
        ("value", lambda swing: f"{swing.input.value:.5g} {swing.input.units}".rstrip()),
        ("varied", lambda swing: f"{swing.input.low:.5g} to {swing.input.high:.5g}"),
        ("basis", lambda swing: swing.input.basis),
        ("#low", lambda swing: format_number(swing.low)),
        ("#high", lambda swing: format_number(swing.high)),
        spare=("basis",),
    )


def budget_to_json(answered: BudgetAnswers) -> dict[str, object]:
    """Return the answers for programs, without their schema."""
    return {
        "metric": answered.metric,
        "answers": [_answer_json(answer) for answer in answered.answers],
        "not_answered": list(answered.notes),
        "breaches": [{"system": system, "rule": line} for system, line in answered.broken],
    }


def _answer_json(answer: BudgetAnswer) -> dict[str, object]:
    return {
        **picked(answer, "question", "system", "asked", "nodes", "bounds", "power_level", "why_not"),
        "sentence": budget_sentence(answer),
        **picked(answer, "quotient", "score", "ratio", "cost", "power_kw", "energy_kwh", "carbon_kg"),
        "sensitivity": {
            "result": answer.result,
            "inputs": [
                {
                    **picked(swing.input, "name", "value", "units"),
                    "range": [swing.input.low, swing.input.high],
                    "basis": swing.input.basis,
                    "swing": [swing.low, swing.high],
                }
                for swing in answer.swings
            ],
        },
    }
