"""Does a build server's job: the machine, all stages of a suite, and the reports that decide."""

from __future__ import annotations

from dataclasses import replace

from milabench.ci.ci_reports import Gates, checked_gates, require_one_run, write_reports
from milabench.doctor.findings import diagnose_machine, findings_text
from milabench.errors import INTERRUPTED, EnvironmentFailed
from milabench.quickstart.all_stages import Say, measure_suite, report_runs
from milabench.workflow.options import Extent, ReportRequest, Session, SuiteOptions
from milabench.workflow.run_suite import RunSettings


def run_job(
    options: SuiteOptions,
    extent: Extent,
    settings: RunSettings,
    gates: Gates,
    session: Session,
    say: Say,
    width: int | None = None,
) -> int:
    """Do a build server's job, and return the exit code that decides.

    Raises UsageError and ConfigError for problems known in advance, EnvironmentFailed for a machine that is not fit.
    """
    # What cannot be read is an error now, not after an hour of measuring.
    gates = checked_gates(gates, options.base)
    require_one_run(options, extent, session)
    say("== milabench doctor: this machine")
    findings = diagnose_machine(options.base)
    say(findings_text(findings))
    if bad := [finding for finding in findings if finding.state == "bad"]:
        raise EnvironmentFailed("\nerror: ".join(f"{finding.what}: {finding.says}" for finding in bad))
    runs, code = measure_suite(options, replace(extent, run_name="ci"), settings, session, say)
    if code == INTERRUPTED:
        return code
    request = ReportRequest(runs=runs, base=options.base, reference=gates.reference)
    report_runs(request, session, say, width)
    return write_reports(request, gates, code, session)
