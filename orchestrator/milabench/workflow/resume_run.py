"""Resumes a run in its own directory: kills leftover processes of its crashed orchestrator, and runs the remaining steps."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from milabench.errors import DONE, RecordError, UsageError
from milabench.events.run_files import SUMMARY
from milabench.events.run_writer import RunWriter
from milabench.events.rundir import Run, open_run
from milabench.execute.agent_client import NOTHING_LEFT
from milabench.execute.detach import DetachHandover
from milabench.execute.local_agent import new_marker
from milabench.execute.locks import hold_run, this_orchestrator
from milabench.execute.retry_policy import RetryPolicy
from milabench.plan.model import Plan, remaining_plan
from milabench.seams import handler, takes_part
from milabench.workflow.estimate import measuring_on
from milabench.workflow.execution import continue_plan
from milabench.workflow.files import writing
from milabench.workflow.options import Session
from milabench.workflow.orphans import dead_orchestrators, killed_on, process_markers
from milabench.workflow.planning import PlannedRequest, describe_run, plan_request, request_of, require_request_ready
from milabench.workflow.run_lookup import attempts_made
from milabench.workflow.run_records import RunDescription, with_stems
from milabench.workflow.run_suite import finish_run, passed_steps, write_summary
from milabench.workflow.saved_options import is_undecided, plan_differences


@dataclass(frozen=True, slots=True, kw_only=True)
class RemainingWork:
    """The rest of a run: that part of its plan, the whole plan, and how often each remaining step was tried.

    `differences` are those from the run as it was planned, a line each.
    """

    plan: Plan
    planned: PlannedRequest
    description: RunDescription
    attempts: dict[str, int]
    differences: Sequence[str] = ()


def resume_run(
    path: Path, session: Session, handover: DetachHandover | None = None, *, force: bool = False, retry: RetryPolicy
) -> int:
    """Resume a run and return its exit code. Does nothing when every step has passed.

    `handover` lets go of the terminal when the run goes on. Raises Unreachable when its orchestrator lives,
    RecordError when it cannot be resumed or, without `force`, when suite, system or environments have changed.
    """
    orchestrator = this_orchestrator(new_marker(path.name), detached=handover is not None)
    with hold_run(path, orchestrator):
        run = open_run(path)  # only once we hold its lock: a living orchestrator would still write to it
        if run.phase != "run":
            raise UsageError(f"{path}: is not a run but a {run.phase}. `milabench {run.phase}` continues it")
        passed = passed_steps(run)
        if takes_part("recorded nodes"):
            handler("recorded nodes").claim_recorded(run, session, force=force)
        sweep_run(run, session)
        if run.files and len(passed) == len(run.files) and not is_undecided(run):
            _complete(run, session)
            what = "its step has passed" if len(passed) == 1 else f"all of its {len(passed)} steps have passed"
            session.info(f"resume: {run.name} is finished: {what}")
            return DONE
        work = remaining_work(run, passed, session, force=force)
        session.info(
            f"resume: {run.name}: {len(passed)} of {len(run.files)} steps have passed, {len(work.plan.steps)} to run"
        )
        request = work.planned.request
        with contextlib.closing(RunWriter(path)) as writer, writing(path):
            if work.differences:
                writer.journal({"run": "mixed", "differs": list(work.differences)})
            executed = continue_plan(
                work.plan,
                request.context,
                work.description,
                writer,
                orchestrator,
                retry=replace(retry, attempts=work.attempts, passed=passed),
                extend=measuring_on(request),
                whole=work.planned.plan,
                handover=handover,
            )
    return finish_run(executed, session)


def _complete(run: Run, session: Session) -> None:
    """Write the results that an orchestrator did not write because it crashed after its last step."""
    is_recorded = run.verdict == "passed"
    if not is_recorded:
        with contextlib.closing(RunWriter(run.path)) as writer, writing(run.path):
            writer.journal({"run": "ended", "verdict": "passed"})
    if not is_recorded or not (run.path / SUMMARY).exists():
        write_summary(run.path, session)


def remaining_work(run: Run, passed: frozenset[str], session: Session, *, force: bool = False) -> RemainingWork:
    """Return the rest of a run. Raises RecordError where it differs from its plan, unless forced."""
    planned, description, differences = planned_again(run, session, force=force)
    return replace(rest_of(run, planned, description, passed, run.files), differences=differences)


def rest_of(
    run: Run, planned: PlannedRequest, description: RunDescription, passed: frozenset[str], steps: Collection[str]
) -> RemainingWork:
    """Return the rest of a planned run, of these steps. Raises EnvironmentFailed unless everything that it needs is there."""
    bundles = [[step for step in bundle if step.id in steps] for bundle in planned.bundles]
    plan = with_stems(remaining_plan(planned.plan, passed, bundles), run.files)
    require_request_ready(planned.request, plan)
    attempts = attempts_made(run, [step.id for step in plan.steps])
    return RemainingWork(plan=plan, planned=planned, description=description, attempts=attempts)


def planned_again(
    run: Run, session: Session, *, force: bool, **changes: Any
) -> tuple[PlannedRequest, RunDescription, Sequence[str]]:
    """Plan a recorded run again. Return the plan, its description, and the differences from the run as it was planned.

    `changes` replace options of its command. Raises RecordError for differences, unless forced.
    """
    planned = plan_request(request_of(run, session, **changes))
    description = describe_run(planned)
    before = replace(run, manifest=run.as_planned)
    differences = plan_differences(before, planned.plan, {**description.manifest, "locks": description.locks})
    if differences and not force:
        lines = "\n         ".join(differences)
        raise RecordError(
            f"{run.path}: cannot resume, something changed since it was planned:\n         {lines}\n"
            "       start a new run with `milabench run`, or continue anyway with --force: the run then mixes both"
        )
    return planned, description, differences


def sweep_run(run: Run, session: Session) -> None:
    """Kill leftover processes of dead orchestrators of a run, here and on the nodes that they used, and report it."""
    for orchestrator, addresses in dead_orchestrators(run):
        for machine, result in killed_on(process_markers([(orchestrator, addresses)]), session).items():
            where = f", on {machine.name}" if machine else ""
            if result != NOTHING_LEFT:
                session.info(f"resume: of its orchestrator {orchestrator}{where}: {result}")
