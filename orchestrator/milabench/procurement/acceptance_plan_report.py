"""The plan of an acceptance as a document: each criterion with its repeats, each benchmark with its hours."""

from __future__ import annotations

from milabench.analysis.json_codec import to_json_value
from milabench.procurement.acceptance_plan import AcceptancePlan
from milabench.procurement.document_formats import write_document
from milabench.report import document


def plan_document(plan: AcceptancePlan) -> document.Document:
    """Return criteria that cannot be promised, repeats by criterion, hours by benchmark, and the sources of the plan."""
    return (
        document.Title(text=f"plan: {plan.title or 'acceptance'}"),
        *(document.Statement(text=sentence) for sentence in _sentences(plan)),
        *document.section("cannot be promised", _unplanned(plan)),
        _criteria_table(plan),
        _benchmarks_table(plan),
        document.Notes(lines=_notes(plan)),
    )


def render_plan(plan: AcceptancePlan, format_name: str) -> str:
    """Return the plan in a format. Raises UsageError for a format that plans lack."""
    return write_document(format_name, plan_document(plan), to_json_value(plan))


def _sentences(plan: AcceptancePlan) -> tuple[str, ...]:
    done = sum(criterion.launches is not None and not criterion.missing for criterion in plan.criteria)
    against = f" compared with {plan.reference}" if plan.reference and plan.reference != plan.pilot else ""
    planned = f"{done} of {len(plan.criteria)} criteria in {plan.file} can be planned; {_duration(plan)}."
    if not done:
        return (planned,)
    return (
        planned,
        f"With these repeats a system like {plan.pilot}{against} passes each criterion with a probability of at least"
        f" {plan.power:g}.",
    )


def _duration(plan: AcceptancePlan) -> str:
    if plan.hours is None or plan.node_hours is None:
        return "the hours are not known"
    least = "" if all(bench.hours is not None for bench in plan.benchmarks) else "at least "
    return f"{least}{plan.hours:.3g} hours, {plan.node_hours:.3g} node-hours"


def _criteria_table(plan: AcceptancePlan) -> document.Table:
    return document.columns_table(
        "criteria",
        plan.criteria,
        ("benchmark", lambda c: c.bench),
        ("criterion", lambda c: c.criterion),
        ("required", lambda c: c.requirement),
        ("#expected", lambda c: None if c.expected is None else f"{c.expected:.6g} {c.units}".rstrip()),
        ("#spread", lambda c: None if c.spread is None else f"{c.spread:.2%}"),
        ("#repeats", lambda c: c.launches),
        ("#chance to pass", lambda c: None if c.power is None else f"{c.power:.3f}"),
        ("#nodes x repeats", lambda c: c.sample and f"{c.sample.nodes} x {c.sample.launches_per_node}"),
    ).without_empty()[0]


def _benchmarks_table(plan: AcceptancePlan) -> document.Table:
    return document.columns_table(
        "benchmarks",
        plan.benchmarks,
        ("benchmark", lambda b: b.bench),
        ("#repeats", lambda b: b.launches),
        ("#seconds each", lambda b: None if b.seconds is None else f"{b.seconds:.4g}"),
        ("#nodes", lambda b: b.nodes),
        ("#hours", lambda b: None if b.hours is None else f"{b.hours:.3g}"),
        ("#node-hours", lambda b: None if b.node_hours is None else f"{b.node_hours:.3g}"),
    ).without_empty()[0]


def _unplanned(plan: AcceptancePlan) -> list[tuple[str, str]]:
    return [
        (f"{c.bench} {c.criterion}", f"{c.missing} ({c.where})" if c.where else c.missing)
        for c in plan.criteria
        if c.missing
    ]


def _notes(plan: AcceptancePlan) -> tuple[str, ...]:
    unknown = [bench.bench for bench in plan.benchmarks if bench.hours is None]
    return (
        "repeats: of all instances together, one after the other, at least three",
        *(
            ("nodes x repeats: the smallest sample of nodes that represents the others, and the repeats on each",)
            if any(criterion.sample is not None for criterion in plan.criteria)
            else ("number of nodes to test: not known without a pilot of several repeats on two nodes or more",)
        ),
        *(
            (f"all criteria together pass with a probability of at least {plan.power_of_all:.3g}",)
            if plan.is_complete
            else ()
        ),
        *(
            (f"hours do not include {', '.join(unknown)}: no plan, or the pilot recorded no duration",)
            if unknown
            else ()
        ),
    )
