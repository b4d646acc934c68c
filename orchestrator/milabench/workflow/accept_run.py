"""Checks a run against acceptance criteria."""

from __future__ import annotations

from pathlib import Path

from milabench.acceptance.criteria import parse_criteria
from milabench.acceptance.evaluate import Acceptance, evaluate_criteria
from milabench.errors import UsageError
from milabench.workflow.files import base_folder, read_file
from milabench.workflow.report_inputs import find_report_source
from milabench.workflow.summaries import resolve_runs, summary_of


def accept_run(name: str | None, base: Path | None, criteria_file: Path, reference: str | None = None) -> Acceptance:
    """Return the verdict on a run, by default on the latest.

    `reference` is the run, or JSON report of one, that `x reference` in the criteria means. Raises ConfigError for bad
    criteria, UsageError for a missing reference, NothingSelected and RecordError.
    """
    criteria = parse_criteria(read_file(criteria_file, hint="check the path"), str(criteria_file))
    if criteria.is_relative and reference is None:
        raise UsageError(f"{criteria_file}: asks for 'x reference': name that run with --reference")
    return evaluate_criteria(
        criteria,
        summary_of(resolve_runs(base, [name] if name else [])[0]),
        find_report_source(base_folder(base), reference).summary if reference is not None else None,
    )
