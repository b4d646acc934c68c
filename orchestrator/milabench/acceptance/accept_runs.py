"""The verdict on a run by the criteria of a file."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from milabench.acceptance.criteria import Criteria, parse_criteria
from milabench.acceptance.evaluate import OtherWork, decided_across, evaluate_criteria, other_work
from milabench.analysis.acceptance_model import Acceptance
from milabench.analysis.comparison_model import System
from milabench.analysis.rescoring import with_answers_of
from milabench.analysis.summary_model import Summary
from milabench.errors import UsageError
from milabench.events.rundir import Run
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
    return decided_beside(request, found, functools.partial(evaluate_criteria, criteria))


def decided_beside(
    request: AcceptRequest, found: Run, evaluate: Callable[[Summary, Summary | None, OtherWork | None], Acceptance]
) -> Acceptance:
    """Return the verdict on a run, alone or next to the reference of a request.

    `evaluate` takes the summary of the run, of the reference, and the differences of their work, on which nothing is decided.
    """
    run = System(name=found.name, summary=summary_of(found), manifest=found.manifest)
    if request.reference is None:
        return evaluate(run.summary, None, None)
    beside = find_reference(base_folder(request.base), request.reference)
    run = replace(run, summary=with_answers_of(run, beside))
    unlike = other_work(run, beside)
    if request.across:
        return decided_across(evaluate(run.summary, beside.summary, None), unlike)
    return evaluate(run.summary, beside.summary, unlike)


def read_criteria(path: Path, reference: str | None, option: str = "--reference") -> Criteria:
    """Read acceptance criteria. Raises ConfigError, and UsageError, which names `option`, for a missing reference."""
    criteria = parse_criteria(read_file(path, hint="check the path"), str(path))
    if criteria.is_relative and reference is None:
        raise UsageError(f"{path}: asks for 'x reference': name that run with {option}")
    return criteria
