"""The page of budget answers: how far each input swings a result, and which share of its variance goes back to it."""

from __future__ import annotations

from collections.abc import Sequence

from milabench.procurement.budget import BudgetAnswer
from milabench.report.budget import sensitivity_title
from milabench.report.document import Document
from milabench.report.html.blocks import document_page
from milabench.report.html.markup import Child
from milabench.report.html.plots import Bar, SwingBar, bars, figure, tornado
from milabench.report.labels import format_number

MOST_DRAWN = 15


def budget_page(blocks: Document, answers: Sequence[BudgetAnswer]) -> str:
    """Return the page of a document, with two drawings for each answer."""
    return document_page(blocks, [figure for answer in answers if answer.inputs for figure in _figures(answer)])


def _figures(answer: BudgetAnswer) -> list[Child]:
    title = sensitivity_title(answer)
    drawn = answer.swings[:MOST_DRAWN]
    left_out = f" The {MOST_DRAWN} widest of {len(answer.swings)}." if len(answer.swings) > MOST_DRAWN else ""
    centre = answer.quotient.value
    if answer.question != "match" and answer.score is not None:
        centre = answer.score.value / answer.nodes * answer.quotient.value
    drawing = tornado(
        f"Swings: {title}",
        [
            SwingBar(
                label=swing.name,
                low=swing.low,
                high=swing.high,
                text=f"{format_number(swing.low)} to {format_number(swing.high)}",
            )
            for swing in drawn
        ],
        centre=centre,
        units=answer.result,
    )
    shown: list[Child] = [
        figure(
            f"Swings: {title}",
            drawing,
            f"One input at a time, from its lower (framed) to its upper bound (filled); the line is the result itself.{left_out}",
        )
    ]
    if answer.shares is not None:
        rows = [
            Bar(
                label=share.name,
                value=max(0.0, share.first),
                most=max(0.0, share.total),
                text=f"{share.first:.2f}, total {share.total:.2f} ± {share.total_error:.2f}",
            )
            for share in answer.shares.shares[:MOST_DRAWN]
        ]
        note = "The bar is the share of the variance that goes when the input is known, the frame that with all its interactions."
        shown.append(
            figure(
                f"Shares of the variance: {title}",
                bars(f"Shares of the variance: {title}", rows, units="share of the variance"),
                note,
            )
        )
    return shown
