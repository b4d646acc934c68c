"""`milabench compare --tender`: runs and offers, scored as a tender says."""

from __future__ import annotations

from pathlib import Path

from milabench.cli.formats import Destination
from milabench.cli.options import is_on_command_line, table_width, terminal_session
from milabench.errors import DONE, STEPS_FAILED, UsageError
from milabench.workflow.options import CompareRequest


def score_by_tender(
    request: CompareRequest, destination: Destination, tender: Path, metric: str | None, *, wide: bool
) -> int:
    """Compare runs and offers by a tender, for `compare --tender`; what only the comparison of runs has is refused."""
    from milabench.procurement.document_formats import write_document
    from milabench.procurement.tender_report import score_lines, tender_document, tender_to_json
    from milabench.procurement.tenders import compare_by_tender

    for option in ("why", "weights", "costs", "validations", "per"):
        if is_on_command_line(option):
            raise UsageError(f"--{option} is of comparisons without --tender; leave one of the two out")
    if destination.is_workbook:
        raise UsageError(
            "a workbook of offers is written by `milabench offer compare`; leave out --tender, or choose another format"
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
    width = table_width(wide) if destination.output is None else None
    if destination.format == "brief":
        destination.write("".join(f"{line}\n" for line in score_lines(scores)))
    else:
        destination.write(write_document(destination.format, tender_document(scores), tender_to_json(scores), width))
    return STEPS_FAILED if scores.is_refused else DONE
