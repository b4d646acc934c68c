"""The verdict on a run by the criteria of a file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from milabench.acceptance.criteria import Criteria, parse_criteria
from milabench.acceptance.evaluate import decided_across, evaluate_criteria, other_work
from milabench.analysis.acceptance_model import Acceptance
from milabench.analysis.comparison_model import System
from milabench.analysis.rescoring import with_answers_of
from milabench.errors import UsageError
from milabench.workflow.files import base_folder, read_file
from milabench.workflow.measured_runs import resolve_runs
from milabench.workflow.options import AcceptRequest
from milabench.workflow.report_inputs import find_reference
from milabench.workflow.summaries import summary_of


def accept_run(request: AcceptRequest) -> Acceptance:
    """Return the verdict on a run.

    Raises ConfigError for bad criteria, UsageError for missing criteria or a missing reference, NothingSelected and RecordError.
    """
    criteria = read_criteria(request.file, request.reference)
    found = resolve_runs(request.base, [request.run] if request.run else [])[0]
    run = System(name=found.name, summary=summary_of(found), manifest=found.manifest)
    if request.reference is None:
        return evaluate_criteria(criteria, run.summary)
    beside = find_reference(base_folder(request.base), request.reference)
    run = replace(run, summary=with_answers_of(run, beside))
    unlike = other_work(run, beside)
    if request.across:
        return decided_across(evaluate_criteria(criteria, run.summary, beside.summary), unlike)
    return evaluate_criteria(criteria, run.summary, beside.summary, unlike)


def read_criteria(path: Path, reference: str | None, option: str = "--reference") -> Criteria:
    """Read acceptance criteria. Raises ConfigError, and UsageError, which names `option`, for a missing reference."""
    criteria = parse_criteria(read_file(path, hint="check the path"), str(path))
    if criteria.is_relative and reference is None:
        raise UsageError(f"{path}: asks for 'x reference': name that run with {option}")
    return criteria
