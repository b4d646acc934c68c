"""The verdict on a run against acceptance criteria as a document."""

from __future__ import annotations

from collections.abc import Sequence

from milabench.acceptance.evaluate import Acceptance, CriterionResult
from milabench.report.document import Document, Statement, Table, Title, section

WORST_FIRST = ("FAIL", "INCONCLUSIVE", "PASS")


def acceptance_document(acceptance: Acceptance) -> Document:
    """Return the verdict, the criteria with the worst first, and what is missing to decide the rest."""
    missing = [
        (criterion_name(check), f"{check.missing} ({check.where})" if check.where else check.missing)
        for check in acceptance.checks
        if check.missing
    ]
    return (
        Title(text=f"{acceptance.verdict}: {acceptance.title or 'acceptance'}"),
        Statement(text=acceptance_sentence(acceptance)),
        criteria_table(acceptance),
        *section("what is missing", missing),
    )


def acceptance_sentence(acceptance: Acceptance) -> str:
    """Return which run was checked against which criteria, and how many of them hold."""
    counts = {verdict: sum(check.verdict == verdict for check in acceptance.checks) for verdict in WORST_FIRST}
    against = f" against {acceptance.reference}" if acceptance.reference else ""
    return (
        f"{acceptance.run}{against}, by {acceptance.file}: {counts['PASS']} of {len(acceptance.checks)} criteria hold, "
        f"{counts['FAIL']} fail, {counts['INCONCLUSIVE']} are undecided"
    )


def criteria_table(acceptance: Acceptance) -> Table:
    """Return a row for each criterion, the worst verdict first."""
    headings = ("verdict", "benchmark", "criterion", "asked", "found")
    rows = [
        (check.verdict, check.bench or "the run", check.criterion, check.requirement, check.measured)
        for check in worst_first(acceptance.checks)
    ]
    return Table(title="criteria", headings=headings, is_text=(True,) * len(headings), rows=tuple(rows))


def worst_first(checks: Sequence[CriterionResult]) -> list[CriterionResult]:
    """Return the criteria with those that fail first, then the undecided ones."""
    return sorted(checks, key=lambda check: WORST_FIRST.index(check.verdict))


def criterion_name(check: CriterionResult) -> str:
    """Return `digits rate`, or `the run: failures` for a criterion on the whole run."""
    return f"{check.bench} {check.criterion}" if check.bench else f"the run: {check.criterion}"
