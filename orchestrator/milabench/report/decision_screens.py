"""The screens of a comparison and of an acceptance: the verdict, a table, the warnings. Reports have the rest."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from milabench.analysis.acceptance_model import WORST_FIRST, Acceptance, CriterionResult
from milabench.analysis.comparison_model import Comparison
from milabench.analysis.comparison_words import claim_lines
from milabench.analysis.system_diff import Differences
from milabench.report import comparison_text, document
from milabench.report.curves import curve_blocks
from milabench.report.rerun import below_base, line_about_run, rerun_line
from milabench.shown import grouped

_VALUES = "values: totals of the copies that run at the same time; `milabench report` shows the rate of each copy"
_NOT_SHOWN = ("repeats", "sessions", "p (Holm)", "scaling")


def comparison_screen(comparison: Comparison, differences: Differences) -> document.Document:
    """Return the sentence, a row for each benchmark, and each warning once."""
    table = comparison_text.ratio_table(comparison, is_compact=len(comparison.systems) > 2, is_plain=True).without(
        _NOT_SHOWN
    )
    failing = {bench.bench for system in comparison.systems for _, bench in system.benches if bench.failures}
    excluded = [(bench, why) for bench, why in comparison.excluded if bench not in failing]
    differing = () if differences is None else (comparison_text.differences_table(comparison, differences),)
    has_copies = any(side.instances > 1 for row in comparison.rows for side in row.sides)
    return (
        document.Notes(lines=claim_lines(comparison)),
        table,
        *([document.Notes(lines=(_VALUES,))] if has_copies else []),
        *curve_blocks(comparison),
        *document.section("failures", comparison_text.failed_entries(comparison)),
        *document.section("not compared", excluded),
        *document.section("suspect", comparison_text.suspects(comparison)),
        *document.section("warnings", [("", line) for line in comparison.warnings]),
        *differing,
    )


def comparison_next(comparison: Comparison, again: str, base: Path | None) -> str:
    """Return the next command and its purpose. `again` is the command that made the comparison, `base` the base it was given."""
    counted = [c for row in comparison.rows for c in row.contrasts if c is not None]
    needed = [c.needed for c in counted if c.verdict == "INCONCLUSIVE" and c.needed and c.needed_unit == "launches"]
    for system in comparison.systems:
        if system.failures:
            summary = below_base(system.summary, base)
            return f"`{line_about_run(summary, 'report', summary.run)}`: logs of the failed steps"
    if needed and (repeats := min(needed)) <= _MOST_REPEATS:
        latest = below_base(comparison.systems[-1].summary, base)
        return f"`{rerun_line(latest, repeat=repeats)}`: {repeats} repeats would decide more"
    if any(c.verdict in ("FASTER", "SLOWER") for c in counted) and "--why" not in again:
        return f"`{again} --why`: how the systems differ"
    return f"`{again} --full`: indices, costs, and how each number was computed"


_MOST_REPEATS = 50
"""More repeats than these are not proposed."""


def acceptance_screen(acceptance: Acceptance) -> document.Document:
    """Return the verdict, the criteria that do not hold (or all, if all hold), and the evidence that they lack."""
    undone = [check for check in acceptance.checks if check.verdict != "PASS"]
    shown = sorted(undone or acceptance.checks, key=lambda check: WORST_FIRST.index(check.verdict))
    held = len(acceptance.checks) - len(undone)
    against = f" against {acceptance.reference}" if acceptance.reference else ""
    by = f", by {acceptance.file}" if acceptance.file else ""
    verdicts = [check.verdict for check in undone]
    counts = [f"{held} of {len(acceptance.checks)} criteria hold"]
    counts += [f"{number} fail{'s' * (number == 1)}" for number in (verdicts.count("FAIL"),) if number]
    counts += [f"{number} inconclusive" for number in (verdicts.count("INCONCLUSIVE"),) if number]
    return (
        document.Statement(text=f"{acceptance.verdict}: {', '.join(counts)}"),
        document.Notes(lines=(f"{acceptance.title or 'acceptance'}: {acceptance.run}{against}{by}",)),
        document.words_table("", ("verdict", "benchmark", "criterion", "required", "measured"), map(_row, shown)),
        *document.section("inconclusive", _missing(undone)),
        *document.section("failures", _of_failed(undone)),
        *document.notes(acceptance.notes),
    )


def acceptance_next(acceptance: Acceptance, again: str, base: Sequence[str]) -> str:
    """Return the next command and its purpose. `again` is the command that checked the run, `base` its option."""
    if any(check.verdict == "FAIL" and check.criterion == "runs" for check in acceptance.checks):
        return f"`{shlex.join(['milabench', 'resume', acceptance.run, *base])}`: runs the steps that did not pass"
    return f"`{again} --full`: every criterion with its bounds"


def _row(check: CriterionResult) -> tuple[str, ...]:
    measured = check.briefly or check.measured
    return (check.verdict, check.bench or "the run", check.criterion, check.requirement, measured)


def _missing(undone: list[CriterionResult]) -> list[tuple[str, str]]:
    texts = grouped(((check.bench or "the run", check.missing), check.criterion) for check in undone if check.missing)
    return [(f"{bench} {', '.join(criteria)}", text) for (bench, text), criteria in texts.items()]


def _of_failed(undone: list[CriterionResult]) -> list[tuple[str, str]]:
    """Return the details of failed criteria that a table leaves out: the steps, or the devices that are furthest apart."""
    return [
        (
            f"{check.bench or 'the run'} {check.criterion}",
            check.measured.removeprefix(check.briefly).strip().removeprefix("(").removesuffix(")"),
        )
        for check in undone
        if check.verdict == "FAIL" and check.bounds is None and check.briefly not in ("", check.measured)
    ]
