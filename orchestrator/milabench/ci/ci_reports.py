"""The results of a build server's job: reports for people and for the server, and the deciding exit code."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from milabench.acceptance.accept_runs import accept_run, read_criteria
from milabench.errors import DONE, VERDICT_CODES, NothingSelected, RecordError, UsageError, os_reason
from milabench.events.removal import remove
from milabench.workflow.files import base_folder, write_file
from milabench.workflow.options import AcceptRequest, CompareRequest, Extent, ReportRequest, Session, SuiteOptions
from milabench.workflow.report_inputs import find_report_source
from milabench.workflow.report_runs import compare_runs, comparison_exit_code, render_report

if TYPE_CHECKING:
    from milabench.analysis.comparison_model import Comparison

SUMMARY = "summary.md"
_PARTS = ("acceptance", "comparison", "report")
_FILES = (SUMMARY, "report.json", *(f"{part}.{ending}" for part in _PARTS for ending in ("md", "xml")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Gates:
    """The conditions of a job, and the places of its reports.

    `reference` is the baseline: a run, its JSON report, or its bundle. `margin` is the relative difference below
    which nothing is called slower.
    """

    reports: Path
    reference: str | None = None
    criteria: Path | None = None
    margin: float = 0.01


def checked_gates(gates: Gates, base: Path | None) -> Gates:
    """Check that baseline and criteria can be read, and remove the reports of an earlier job.

    A failing job must not show the success of an earlier one. The returned baseline has its present name:
    after the run, `latest` is another run. Raises UsageError, ConfigError, NothingSelected and RecordError.
    """
    resolved = gates
    if gates.reference is not None:
        run = find_report_source(base_folder(base), gates.reference).run
        resolved = gates if run is None else replace(gates, reference=str(run.path))
        if Path(gates.reference).resolve() in {(gates.reports / name).resolve() for name in _FILES}:
            raise UsageError(
                f"--baseline {gates.reference}: is among the reports that this job writes. Copy it out of {gates.reports}, "
                "or choose another folder with --reports"
            )
    if gates.criteria is not None:
        read_criteria(gates.criteria, gates.reference, option="--baseline")
    try:
        for name in _FILES:
            remove(gates.reports / name)
    except NotADirectoryError:
        raise UsageError(f"--reports {gates.reports}: is not a folder") from None
    except OSError as error:
        raise RecordError(f"{error.filename}: cannot be removed: {os_reason(error)}") from None
    return resolved


def require_one_run(options: SuiteOptions, extent: Extent, session: Session) -> None:
    """Raise UsageError for a system file that makes several runs of a command. A job decides on a single run."""
    from milabench.workflow.planning import expand_requests

    count = len(expand_requests(options, extent, session, stamp="{time}"))
    if count > 1:
        raise UsageError(f"ci decides on a single run. The multirun of the system file makes {count}: give each a job")


def write_reports(request: ReportRequest, gates: Gates, code: int, session: Session) -> int:
    """Write the reports on the only run of `request`, which ended with `code`, and return the exit code of the job.

    Criteria decide first, then the run itself, then the comparison. Raises RecordError.
    """
    [run] = request.runs
    texts = {"report.json": render_report(request, "json", session)}
    codes = [code]
    if gates.criteria is not None:
        from milabench.ci import junit
        from milabench.report import markdown

        acceptance = accept_run(
            AcceptRequest(run=run, base=request.base, criteria=gates.criteria, reference=gates.reference)
        )
        texts["acceptance.md"] = markdown.render_acceptance(acceptance)
        texts["acceptance.xml"] = junit.render_acceptance(acceptance)
        codes.insert(0, VERDICT_CODES[acceptance.verdict])
        session.info(f"acceptance: {acceptance.verdict}")
    if gates.reference is not None:
        compared = compare_runs(
            CompareRequest(runs=((gates.reference,), (run,)), base=request.base, margin=gates.margin), session
        )
        texts["comparison.md"] = compared.render("markdown")
        texts["comparison.xml"] = compared.render("junit")
        codes.append(_compared_code(compared.comparison, session))
    texts["report.md"] = render_report(request, "markdown", session)
    texts["report.xml"] = render_report(request, "junit", session)
    texts[SUMMARY] = "\n".join(texts[name] for part in _PARTS if (name := f"{part}.md") in texts)
    for name, text in texts.items():
        write_file(gates.reports / name, text)
    session.info(f"reports: written to {gates.reports}")
    return next((each for each in codes if each != DONE), DONE)


def _compared_code(comparison: Comparison, session: Session) -> int:
    try:
        return comparison_exit_code(comparison)
    except NothingSelected as error:
        session.error(str(error))  # an error, but no reason to lose the reports
        return error.exit_code
