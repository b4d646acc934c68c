"""Rehearsals of a tender as text, Markdown, JSON or a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from milabench.analysis.summary_model import SCHEMA
from milabench.events.values import strict
from milabench.procurement.noise import RunNoise
from milabench.procurement.rehearsal_model import AWARD, SHOWN_WRONG, WON, Observed, Rehearsal
from milabench.report.document import Document, Notes, Properties, Statement, Table, Title
from milabench.report.document_formats import write_document
from milabench.shown import counted

LEGEND = (
    "each share with its exact binomial interval (95 %), as wide as so many tenders leave it; offers of one tender share the"
    " reference, so the rows on intervals and verdicts are known a little less well",
    "highest score: among offers that break no rule; shown to be better: SLOWER is the verdict on every other one beside it",
    "acceptance: of what the winner delivers, all nodes new; `x reference` is what it offered; bad nodes are slower in all;"
    " outliers: of its nodes beside one another",
)
_NODE_EFFECT = (
    "nodes differ by {:.2%} and an offer is measured on {} of {}: no launch shows that, so intervals hold the truth less often"
    " than they say; more nodes better it, not more launches"
)


def render_rehearsal(rehearsal: Rehearsal, format_name: str, width: int | None = None) -> str:
    """Return the rehearsal in a format; in text, its tables fit a terminal of so many characters."""
    return write_document(format_name, rehearsal_document(rehearsal), rehearsal_to_json(rehearsal), width)


def rehearsal_document(rehearsal: Rehearsal) -> Document:
    """Return what a rehearsal came to: the sentence, the offers, the rates, the noise."""
    plan = rehearsal.plan
    return (
        Title(text=f"rehearsal of {rehearsal.tender}"),
        Statement(text=_sentence(rehearsal)),
        Properties(
            pairs=(
                ("tenders", f"{plan.tenders}, seed {plan.seed}"),
                (
                    "offers",
                    f"{len(plan.ratios)} of {counted(plan.nodes, 'node')}, launches of each benchmark: {plan.launches}",
                ),
                ("score", rehearsal.metric),
                ("acceptance", rehearsal.criteria),
                ("bad nodes", f"{plan.bad_nodes}, slower by {plan.slowdown:.1%}"),
            )
        ),
        _offers(rehearsal),
        _rates(rehearsal),
        _noise(rehearsal.noise),
        Notes(lines=(*_advice(rehearsal), *rehearsal.notes, *LEGEND)),
    )


def _sentence(rehearsal: Rehearsal) -> str:
    won = rehearsal.rate(AWARD, WON)
    wrong = rehearsal.rate(AWARD, SHOWN_WRONG)
    text = f"In {_percent(won.share)} of tenders the best offer has the highest score"
    if rehearsal.with_more is not None:
        more = rehearsal.with_more
        text += f", with {more.plan.launches} launches in {_percent(more.rate(AWARD, WON).share)}"
    return f"{text}; in {_percent(wrong.share)} another one is shown to be better."


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f} %"


def _range(rate: Observed) -> str:
    return "" if rate.interval is None else f"{100 * rate.interval[0]:.1f} to {100 * rate.interval[1]:.1f} %"


def _offers(rehearsal: Rehearsal) -> Table:
    rows = tuple(
        (
            offer.name,
            f"{offer.ratio:.4g}",
            "" if offer.score is None else f"{offer.score:.5g}",
            "breaks it" if offer.breaks_rule else "",
            _percent(offer.won.share),
            _range(offer.won),
        )
        for offer in rehearsal.offers
    )
    headings = ("offer", "true S", f"true {rehearsal.metric}", "rule", "highest score", "95 % interval")
    table = Table(title="offers", headings=headings, is_text=(True, False, False, True, False, False), rows=rows)
    return table.without_empty(("rule",))[0]


def _rates(rehearsal: Rehearsal) -> Table:
    more = rehearsal.with_more
    rows = []
    for group, rates in rehearsal.groups.items():
        others = {} if more is None else {rate.name: rate for rate in more.groups.get(group, ())}
        for rate in rates:
            other = others.get(rate.name)
            row = (group, rate.name, str(rate.trials), _percent(rate.share), _range(rate), rate.stated)
            rows.append((*row, "" if other is None else _percent(other.share)))
    headings = ("of", "what", "trials", "share", "95 % interval", "stated")
    with_more = f"{more.plan.launches} launches" if more is not None else "more launches"
    table = Table(
        title="how often",
        headings=(*headings, with_more),
        is_text=(True, True, False, False, False, True, False),
        rows=tuple(rows),
        spare=("trials",),
    )
    return table.without_empty()[0]


def _noise(noise: Mapping[str, RunNoise]) -> Table:
    keys = tuple(asdict(RunNoise()))
    rows = tuple(
        (bench, *(f"{share:.2%}" if share else "" for share in asdict(each).values())) for bench, each in noise.items()
    )
    table = Table(
        title="how numbers vary", headings=("benchmark", *keys), is_text=(True, *[False] * len(keys)), rows=rows
    )
    return table.without_empty(keys)[0]


def _advice(rehearsal: Rehearsal) -> Iterator[str]:
    """Yield what would better the tender."""
    between = max((each.nodes for each in rehearsal.noise.values()), default=0.0)
    if between:
        used = min(rehearsal.nodes_used.values())
        if used < rehearsal.plan.nodes:
            yield _NODE_EFFECT.format(between, used, rehearsal.plan.nodes)
    else:
        yield "between nodes no difference is known, and none was simulated: --noise nodes=1% states one"


def rehearsal_to_json(rehearsal: Rehearsal) -> dict[str, Any]:
    """Return what `rehearse --format json` prints."""
    return {"schema": SCHEMA, **strict(_to_json(rehearsal))}


def _to_json(rehearsal: Rehearsal) -> dict[str, Any]:
    return {
        "tender": rehearsal.tender,
        "metric": rehearsal.metric,
        "criteria": rehearsal.criteria,
        "plan": asdict(rehearsal.plan),
        "noise": {bench: asdict(each) for bench, each in rehearsal.noise.items()},
        "offers": [
            {
                "name": offer.name,
                "true_ratio": offer.ratio,
                "true_score": offer.score,
                "breaks_rule": offer.breaks_rule,
                "highest_score": offer.won.to_json(),
            }
            for offer in rehearsal.offers
        ],
        "rates": {group: [rate.to_json() for rate in rates] for group, rates in rehearsal.groups.items()},
        "notes": [*rehearsal.notes, *_advice(rehearsal)],
        "with_more_launches": None if rehearsal.with_more is None else _to_json(rehearsal.with_more),
    }
