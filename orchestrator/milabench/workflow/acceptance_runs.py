"""What `accept` does with runs besides checking one against criteria: the recheck of a system."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from milabench.analysis.comparison_model import System
from milabench.errors import UsageError
from milabench.workflow.files import base_folder
from milabench.workflow.measured_runs import resolve_runs
from milabench.workflow.report_inputs import find_reference
from milabench.workflow.report_runs import read_criteria
from milabench.workflow.summaries import summary_of

if TYPE_CHECKING:
    from milabench.acceptance.evaluate import Acceptance


def recheck_run(
    name: str | None, base: Path | None, against: str, limit: float, criteria_file: Path | None = None
) -> Acceptance:
    """Return the verdict on a run of today, by default the latest, beside the accepted one: a run, or a bundle of it.

    Of criteria only the reasons for doubt count that they allow. Raises UsageError where both are one run, or in the wrong order;
    ConfigError for bad criteria, NothingSelected and RecordError.
    """
    from milabench.procurement.recheck import RecheckTerms, check_again

    run = resolve_runs(base, [name] if name else [])[0]
    now = System(name=run.name, summary=summary_of(run), manifest=run.manifest)
    then = find_reference(base_folder(base), against)
    _require_later(now, then, against)
    # Whatever a criteria file asks for beside a reference, the recheck asks for less.
    criteria = None if criteria_file is None else read_criteria(criteria_file, against)
    allow = {} if criteria is None else {bench.name: bench.allow for bench in criteria.benchmarks}
    return check_again(now, then, RecheckTerms(limit=limit, allow=allow))


def _require_later(now: System, then: System, against: str) -> None:
    created = [system.summary.created for system in (now, then)]
    if now.summary.run == then.summary.run and created[0] == created[1]:
        raise UsageError(f"{now.name}: is the run that --against {against} names; give the run of today first")
    times = [_time(text) for text in created]
    if times[0] is not None and times[1] is not None and times[0] < times[1]:
        raise UsageError(
            f"{now.name}: began at {created[0]}, before {then.name} at {created[1]}; the run of today comes first, "
            "--against names the accepted one"
        )


def _time(text: str) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return None
