"""Work of `accept` with runs besides a check of criteria: rechecks, plans, sequential acceptance."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from milabench.acceptance.accept_runs import decided_beside, read_criteria
from milabench.analysis.acceptance_model import Acceptance
from milabench.analysis.comparison_model import System
from milabench.analysis.duration_estimate import spans
from milabench.analysis.sample_statistics import median
from milabench.errors import UsageError
from milabench.events.attempts import attempts, last_word
from milabench.events.rundir import Run
from milabench.events.runs_folder import find_run, latest_run
from milabench.events.values import as_mapping, mappings_in
from milabench.procurement.acceptance_plan import AcceptancePlan, plan_acceptance
from milabench.procurement.recheck import check_again
from milabench.procurement.sequential_acceptance import SequentialPlan, Trials, accept_so_far
from milabench.workflow.files import base_folder
from milabench.workflow.measured_runs import require_measured, resolve_runs, with_ends
from milabench.workflow.options import AcceptRequest
from milabench.workflow.report_inputs import find_reference, find_report_source
from milabench.workflow.summaries import summary_of


def recheck_run(request: AcceptRequest, limit: float) -> Acceptance:
    """Return the verdict on a run of today, by default the latest, against the accepted one: a run or its bundle.

    Of the criteria only the accepted warnings count. Raises UsageError where both are the same run, or in the wrong order,
    ConfigError for bad criteria, NothingSelected and RecordError.
    """
    against = str(request.reference)
    run = resolve_runs(request.base, [request.run] if request.run else [])[0]
    now = System(name=run.name, summary=summary_of(run), manifest=run.manifest)
    then = find_reference(base_folder(request.base), against)
    _require_later(now, then, against)
    # Whatever a criteria file asks for beside a reference, the recheck asks for less.
    criteria = None if request.criteria is None else read_criteria(request.criteria, against)
    allow = {} if criteria is None else {bench.name: bench.allow for bench in criteria.benchmarks}
    return check_again(now, then, limit, allow)


def acceptance_plan(request: AcceptRequest, power: float) -> AcceptancePlan:
    """Return the plan by which a system like the run's, by default the reference's, passes criteria with this power.

    Raises ConfigError for bad criteria, UsageError without a run whose noise and durations could be used, NothingSelected and
    RecordError.
    """
    if power == 1:
        raise UsageError("--power 1: no number of repeats is certain to pass. Give a lower power, such as 0.95")
    reference = request.reference
    criteria = read_criteria(request.file, reference)
    name = request.run or reference
    if name is None:
        raise UsageError("name a run of such a system as RUN, or with --reference: its noise and hours are used")
    folder = base_folder(request.base)
    source = find_report_source(folder, name)
    beside = source.summary if reference == name else None
    if reference is not None and beside is None:
        beside = find_reference(folder, reference).summary
    seconds = {} if source.run is None else launch_seconds(source.run)
    return plan_acceptance(criteria, source.summary, beside, power=power, seconds=seconds)


def accept_growing_run(request: AcceptRequest, plan: SequentialPlan) -> Acceptance:
    """Return where a run has come to by its records so far, whether it has ended or not.

    The repeats planned for each benchmark are its cap, unless the plan has a cap. Raises ConfigError for bad criteria,
    UsageError, NothingSelected and RecordError.
    """
    criteria, folder = read_criteria(request.file, request.reference), base_folder(request.base)
    run = find_run(folder, request.run) if request.run else latest_run(folder)
    run = with_ends(run)
    require_measured(run)
    steps = mappings_in(as_mapping(run.manifest.get("plan")).get("steps"))
    benches = {str(step.get("id")): str(step.get("bench")) for step in steps}
    launches = {
        bench: len({step.get("repeat") for step in steps if step.get("bench") == bench}) for bench in benches.values()
    }
    ended = [attempt for tries in attempts(run.journal).values() if (attempt := last_word(tries)) is not None]
    # What was ended early, because all was decided, has not failed.
    counted = [attempt for attempt in ended if attempt.outcome in ("passed", "failed")]
    counted.sort(key=lambda attempt: attempt.ended or 0.0)
    trials = {
        bench: Trials(
            failed=tuple(a.outcome == "failed" for a in counted if bench in ("", benches.get(a.step))),
            planned=sum(bench in ("", own) for own in benches.values()),
        )
        for bench in ("", *launches)
    }
    planned = replace(plan, launches=launches, trials=trials)
    return decided_beside(request, run, lambda now, then, unlike: accept_so_far(criteria, now, then, planned, unlike))


def launch_seconds(run: Run) -> dict[str, float]:
    """Return the median of the seconds that a repeat of each benchmark took which passed."""
    passed: dict[str, list[float]] = {}
    for span in spans(run):
        if span.is_passed:
            passed.setdefault(str(span.steps[0].get("bench")), []).append(span.seconds)
    return {bench: median(seconds) for bench, seconds in passed.items()}


def _require_later(now: System, then: System, against: str) -> None:
    created = [system.summary.created for system in (now, then)]
    if now.summary.run == then.summary.run and created[0] == created[1]:
        raise UsageError(f"{now.name}: is the run that --against {against} names. Give the run of today first")
    times = [_time(text) for text in created]
    if times[0] is not None and times[1] is not None and times[0] < times[1]:
        raise UsageError(
            f"{now.name}: began at {created[0]}, before {then.name} at {created[1]}. Name the run of today first, "
            "and the accepted run with --against"
        )


def _time(text: str) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return None
