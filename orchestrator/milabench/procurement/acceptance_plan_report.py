"""What an acceptance takes, as a document: each criterion with its launches, each benchmark with its hours."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from milabench.errors import UsageError
from milabench.pages.markup import el, html_table
from milabench.pages.page import alert, article
from milabench.pages.page import document as html_page
from milabench.report import document
from milabench.report.markdown import document_markdown
from milabench.report.text import document_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from milabench.procurement.acceptance_plan import AcceptancePlan

_CRITERIA = ("benchmark", "criterion", "asked", "expected", "spread", "launches", "power", "nodes x launches")
_BENCHMARKS = ("benchmark", "launches", "seconds each", "nodes", "hours", "node-hours")


def plan_document(plan: AcceptancePlan) -> document.Document:
    """Return what cannot be promised, launches by criterion, hours by benchmark, and what all of it stands on."""
    return (
        document.Title(text=_title(plan)),
        document.Statement(text=_sentence(plan)),
        *document.section("what cannot be promised", _unplanned(plan)),
        _criteria_table(plan),
        _benchmarks_table(plan),
        document.Notes(lines=_notes(plan)),
    )


def render_plan(plan: AcceptancePlan, format_name: str) -> str:
    """Return the plan in a format. Raises UsageError for one that a plan has not."""
    if format_name not in _FORMATS:
        raise UsageError(f"a plan is written as {', '.join(_FORMATS)}; there is no plan in {format_name}")
    return _FORMATS[format_name](plan)


def _title(plan: AcceptancePlan) -> str:
    return f"plan: {plan.title or 'acceptance'}"


def _sentence(plan: AcceptancePlan) -> str:
    done = sum(criterion.launches is not None and not criterion.missing for criterion in plan.criteria)
    against = f" beside {plan.reference}" if plan.reference and plan.reference != plan.pilot else ""
    return (
        f"a system like {plan.pilot}{against}, by {plan.file}: {done} of {len(plan.criteria)} criteria can be planned, each to"
        f" pass with a probability of {plan.power:g}; {_duration(plan)}"
    )


def _duration(plan: AcceptancePlan) -> str:
    if plan.hours is None or plan.node_hours is None:
        return "how many hours that takes is not known"
    least = "" if all(bench.hours is not None for bench in plan.benchmarks) else "at least "
    return f"{least}{plan.hours:.3g} hours, {plan.node_hours:.3g} node-hours"


def _criteria_table(plan: AcceptancePlan) -> document.Table:
    rows = tuple(
        (
            c.bench,
            c.criterion,
            c.requirement,
            "" if c.expected is None else f"{c.expected:.6g} {c.units}".rstrip(),
            "" if c.spread is None else f"{c.spread:.2%}",
            "" if c.launches is None else str(c.launches),
            "" if c.power is None else f"{c.power:.3f}",
            "" if c.sample is None else f"{c.sample.nodes} x {c.sample.launches_per_node}",
        )
        for c in plan.criteria
    )
    is_text = (True, True, True, False, False, False, False, False)
    return document.Table(title="criteria", headings=_CRITERIA, is_text=is_text, rows=rows)


def _benchmarks_table(plan: AcceptancePlan) -> document.Table:
    rows = tuple(
        (
            b.bench,
            "" if b.launches is None else str(b.launches),
            "" if b.seconds is None else f"{b.seconds:.4g}",
            str(b.nodes),
            "" if b.hours is None else f"{b.hours:.3g}",
            "" if b.node_hours is None else f"{b.node_hours:.3g}",
        )
        for b in plan.benchmarks
    )
    return document.Table(title="benchmarks", headings=_BENCHMARKS, is_text=(True, *[False] * 5), rows=rows)


def _unplanned(plan: AcceptancePlan) -> list[tuple[str, str]]:
    return [
        (f"{c.bench} {c.criterion}", f"{c.missing} ({c.where})" if c.where else c.missing)
        for c in plan.criteria
        if c.missing
    ]


def _notes(plan: AcceptancePlan) -> tuple[str, ...]:
    unknown = [bench.bench for bench in plan.benchmarks if bench.hours is None]
    return (
        "launches: of all instances at once, one after the other, as `accept` decides; at least three",
        *(
            ("nodes x launches: the least sample of nodes that speaks for others like them, and launches on each",)
            if any(criterion.sample is not None for criterion in plan.criteria)
            else (
                "nodes x launches: not known, for that takes a pilot with several launches on each of two nodes or more",
            )
        ),
        *((f"all of them pass with a probability of at least {plan.power_of_all:.3g}",) if plan.is_complete else ()),
        *(
            (f"hours are without {', '.join(unknown)}: without a plan, or the pilot has no duration",)
            if unknown
            else ()
        ),
    )


def _html(plan: AcceptancePlan) -> str:
    body, nav = article(
        _title(plan),
        _sentence(plan),
        None,
        alert("What cannot be promised", "doubt", _unplanned(plan)),
        [
            ("criteria", "Criteria", html_table(_criteria_table(plan))),
            ("benchmarks", "Benchmarks", html_table(_benchmarks_table(plan))),
            ("notes", "Notes", [el("p", note) for note in _notes(plan)]),
        ],
    )
    return html_page(_title(plan), nav, body)


def _json(plan: AcceptancePlan) -> str:
    return json.dumps(plan.to_json(), indent=2, allow_nan=False) + "\n"


_FORMATS: Final[Mapping[str, Callable[[AcceptancePlan], str]]] = {
    "text": lambda plan: document_text(plan_document(plan)),
    "markdown": lambda plan: document_markdown(plan_document(plan)),
    "html": _html,
    "json": _json,
}
