"""Projects runs at several counts of nodes or devices to larger counts."""

from __future__ import annotations

import re

from milabench.analysis.comparison_model import System
from milabench.errors import UsageError
from milabench.procurement.requests import ProjectRequest
from milabench.procurement.scaling_study import DeclaredBound, ScalingQuestion, ScalingStudy, scaling_study
from milabench.workflow.files import base_folder
from milabench.workflow.report_inputs import find_report_source, session_names

_BOUND = re.compile(r"\s*([0-9]{1,9})\s*:\s*(\S.*?)\s*", re.DOTALL)


def project_runs(request: ProjectRequest) -> ScalingStudy:
    """Return the study of these runs. Raises UsageError, NothingSelected, RecordError."""
    bound = declared_bound(request.bound)
    folder = base_folder(request.base)
    names = [name for argument in request.runs for name in session_names(folder, argument)]
    sources = [find_report_source(folder, name) for name in names]
    paths = [source.run.path.resolve() for source in sources if source.run is not None]
    for path in paths:
        if paths.count(path) > 1:
            raise UsageError(f"{path}: is given twice: a run counts as a single session")
    systems = [System(name=source.name, summary=source.summary, manifest=source.manifest) for source in sources]
    question = ScalingQuestion(of=request.of, to=request.to, bound=bound, across=request.across)
    return scaling_study(systems, question, request.benchmarks)


def declared_bound(text: str | None) -> DeclaredBound | None:
    """Return the bound of `COUNT: WHO ANSWERS FOR IT`. Raises UsageError for any other text."""
    if text is None:
        return None
    match = _BOUND.fullmatch(text)
    if match is None or not int(match[1]):
        raise UsageError(
            f"--bound: expected a count and who answers for it, such as '1024: simulated by the vendor', got '{text}'"
        )
    return DeclaredBound(count=int(match[1]), why=" ".join(match[2].split()))
