"""Which offer leads, and what is said of it."""

from __future__ import annotations

import pytest

from milabench.procurement.award import award_sentence, beside_the_leading
from milabench.procurement.scores import MachineSize, OfferScore
from milabench.procurement.tender import parse_tender
from milabench.procurement.tender_scores import Bid, ScoredBid, TenderScores, Verified
from milabench.procurement.uncertainty import UncertainValue

TENDER = parse_tender(
    b"metric: ssi\nreference: {nodes: 1}\nbenchmarks: {a: {reference: {value: 1 s, nodes: 1}}}", "t.yaml"
)
ADMISSIBLE: dict[str, Verified] = {"yes": "PASS", "no": "FAIL", "inconclusive": "INCONCLUSIVE"}


def bids(**offers: tuple[float, str]) -> TenderScores:
    """Offers by their score, of which launches are one per cent apart, and whether they are admissible."""
    entries = [
        ScoredBid(
            bid=Bid(name=name, verified=ADMISSIBLE[admissible]),
            machine=MachineSize(),
            benchmarks=(),
            score=OfferScore(
                metric="ssi",
                mean="geometric",
                value=UncertainValue.of_launches([score * each for each in (0.99, 1.0, 1.01)], "", name),
                terms=(),
            ),
        )
        for name, (score, admissible) in offers.items()
    ]
    scores = TenderScores(tender=TENDER, metric="ssi", mean="geometric", margin=0.01, bids=tuple(entries), scored=())
    return beside_the_leading(scores)


@pytest.mark.parametrize(
    ("offers", "first", "sentence"),
    [
        (
            {"A": (5.0, "no"), "B": (3.0, "yes"), "C": (4.0, "yes")},
            "C",
            "C has the highest score of the admissible offers, and is shown to be above every other offer that may be"
            " admissible.",
        ),
        (
            {"A": (3.0, "yes"), "B": (3.001, "yes"), "C": (2.0, "yes")},
            "B",
            "B has the highest score of the admissible offers. Not shown to be below: A (INCONCLUSIVE).",
        ),
        (
            {"A": (5.0, "inconclusive"), "B": (3.0, "yes")},
            "B",
            "B has the highest score of the admissible offers. Not shown to be below: A (FASTER, not shown to be admissible).",
        ),
        (
            {"A": (5.0, "no"), "B": (3.0, "yes")},
            "B",
            "B has the highest score of the admissible offers. No other offer is admissible.",
        ),
        (
            {"A": (5.0, "yes"), "B": (3.0, "yes")},
            "A",
            "A has the highest score of the admissible offers, and is shown to be above every other offer.",
        ),
        ({"A": (5.0, "yes")}, "A", "A has the highest score of the admissible offers."),
        (
            {"A": (5.0, "no"), "B": (2.0, "inconclusive"), "C": (3.0, "inconclusive")},
            "C",
            "No offer is shown to be admissible. Of the others, C has the highest score, and is shown to be above every"
            " other offer that may be admissible.",
        ),
        ({"A": (5.0, "no"), "B": (6.0, "no")}, "A", "No offer is admissible."),
    ],
)
def test_the_admissible_offer_with_the_highest_score_leads(
    offers: dict[str, tuple[float, str]], first: str, sentence: str
) -> None:
    scores = bids(**offers)
    others = [name for name in offers if name != first]
    assert [entry.bid.name for entry in scores.bids] == [first, *others]
    assert award_sentence(scores) == sentence
    leading, *rest = scores.bids
    assert leading.ratio is None and leading.score is not None
    for entry in rest if sentence != "No offer is admissible." else ():
        assert entry.ratio is not None and entry.score is not None
        assert entry.ratio.value == pytest.approx(entry.score.value.value / leading.score.value.value)
