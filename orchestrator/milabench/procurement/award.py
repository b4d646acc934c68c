"""Which offer leads a tender: the admissible offer with the highest score, with which the others are compared."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from milabench.procurement.tender_scores import Admissible, ScoredBid, TenderScores, compared_with_first

_RANKS: Final[dict[Admissible, int]] = {"yes": 2, "inconclusive": 1, "no": 0}


def leading(scores: TenderScores) -> ScoredBid | None:
    """Return the bid with the best score among bids shown to be admissible, else among bids not ruled out. None without any."""
    ranked = [
        ((_RANKS[entry.admissible], entry.score.value.value), entry)
        for entry in scores.bids
        if entry.score is not None and entry.is_admissible
    ]
    return max(ranked, key=lambda each: each[0])[1] if ranked else None


def beside_the_leading(scores: TenderScores) -> TenderScores:
    """Return the scores with the leading bid first, and all others compared with it. As they are where none leads."""
    first = leading(scores)
    if first is None:
        return scores
    ordered = (first, *(entry for entry in scores.bids if entry is not first))
    bids = compared_with_first([replace(entry, ratio=None, verdict=None) for entry in ordered], scores.margin)
    return replace(scores, bids=tuple(bids))


def award_sentence(scores: TenderScores) -> str:
    """Return which offer leads, and whether it is shown to be better than every other offer that is not ruled out."""
    first = leading(scores)
    if first is None:
        return "No offer is admissible."
    name = first.bid.name
    if first.admissible == "yes":
        text = f"{name} has the highest score of the admissible offers"
    else:
        text = f"No offer is shown to be admissible. Of the others, {name} has the highest score"
    rivals = [entry for entry in scores.bids if entry.bid.name != name and entry.is_admissible]
    if not rivals:
        return f"{text}. No other offer is admissible." if len(scores.bids) > 1 else f"{text}."
    close = [entry for entry in rivals if entry.verdict != "SLOWER"]
    if not close:
        ruled_out = len(scores.bids) - 1 - len(rivals)
        return f"{text}, and is shown to be above every other offer{' that may be admissible' if ruled_out else ''}."
    named = ", ".join(
        f"{entry.bid.name} ({entry.verdict}{'' if entry.admissible == 'yes' else ', not shown to be admissible'})"
        for entry in close
    )
    return f"{text}. Not shown to be below: {named}."
