"""`milabench compare --tender`: runs and offers, scored as a tender says."""

from __future__ import annotations

from pathlib import Path

from milabench.cli.formats import Destination
from milabench.cli.options import is_on_command_line, same_command, terminal_session
from milabench.errors import DONE, STEPS_FAILED, UsageError
from milabench.workflow.options import CompareRequest


def score_by_tender(request: CompareRequest, destination: Destination, tender: Path, metric: str | None) -> int:
    """Compare runs and offers by a tender, for `compare --tender`. Options that only comparisons of runs have are refused."""
    from milabench.procurement.document_formats import write_document
    from milabench.procurement.tender_report import tender_document, tender_to_json
    from milabench.procurement.tenders import compare_by_tender

    for option in ("why", "weights", "costs", "validations", "per"):
        if is_on_command_line(option):
            raise UsageError(f"--{option} cannot be used with --tender. Leave out --{option} or --tender")
    if destination.is_workbook:
        raise UsageError(
            "a workbook of offers is written by `milabench offer compare`. Leave out --tender, or choose another format"
        )
    names = [name for name in request.runs if isinstance(name, str)]
    scores = compare_by_tender(
        tender,
        names,
        request.base,
        terminal_session(),
        metric=metric or "",
        margin=request.margin,
        across=request.across,
    )
    if destination.is_brief:
        from milabench.procurement.tender_screen import tender_screen

        document = tender_screen(scores, same_command())
    else:
        document = tender_document(scores)
    destination.write(write_document(destination.shown, document, tender_to_json(scores), destination.width))
    return STEPS_FAILED if scores.is_refused else DONE
