"""The page of budget answers: how far each input swings a result."""

from __future__ import annotations

from milabench.pages.blocks import document_page
from milabench.pages.markup import Child
from milabench.pages.plots import SwingBar, figure, tornado
from milabench.procurement.budget import BudgetAnswer, BudgetAnswers
from milabench.procurement.budget_report import budget_document, sensitivity_title
from milabench.report.labels import format_number

MOST_DRAWN = 15


def budget_page(answered: BudgetAnswers) -> str:
    """Return the page of the answers, with a drawing for each."""
    return document_page(budget_document(answered), [_figure(each) for each in answered.answers if each.swings])


def _figure(answer: BudgetAnswer) -> Child:
    title = sensitivity_title(answer)
    drawn = answer.swings[:MOST_DRAWN]
    left_out = f" The {MOST_DRAWN} widest of {len(answer.swings)}." if len(answer.swings) > MOST_DRAWN else ""
    centre = answer.quotient.value
    if answer.question != "match" and answer.score is not None:
        centre = answer.score.value / answer.nodes * answer.quotient.value
    drawing = tornado(
        f"Swings: {title}",
        [
            SwingBar(label=each.name, low=low, high=high, text=f"{format_number(low)} to {format_number(high)}")
            for each in drawn
            for low, high in [each.swing]
        ],
        centre=centre,
        units=answer.result,
    )
    note = "Each input alone is moved from its lower (framed) to its upper bound (filled). The line is the result."
    return figure(f"Swings: {title}", drawing, f"{note}{left_out}")
