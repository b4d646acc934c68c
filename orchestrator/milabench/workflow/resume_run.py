"""Goes on with a run in its own directory: sweeps what its dead orchestrator left, runs what has not passed, and only that."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from milabench.cli.run import finish_run, passed_steps, write_summary
from milabench.errors import DONE, RecordError, UsageError
from milabench.events.attempts import Attempt, attempts
from milabench.events.rundir import SUMMARY, Run, RunWriter, attempt_stem, open_run
from milabench.execute.agent_client import NOTHING_LEFT, sweep_here
from milabench.execute.interrupts import run_deferring_signals
from milabench.execute.run_lock import hold_run, this_orchestrator
from milabench.plan.model import Plan
from milabench.plan.subset import remaining_plan
from milabench.workflow.adaptive_replicates import after_pilot
from milabench.workflow.execution import RetryPolicy, RunDescription, continue_plan, new_marker, with_stems
from milabench.workflow.orphans import dead, marked_there, sweep_there
from milabench.workflow.planning import PlannedRequest, describe_run, plan_request, require_request_ready
from milabench.workflow.request import request_of
from milabench.workflow.saved_options import is_undecided, plan_differences

if TYPE_CHECKING:
    from milabench.execute.detach import DetachHandover


@dataclass(frozen=True, slots=True, kw_only=True)
class RemainingWork:
    """What is left of a run: that part of its plan, all of it, which steps have passed, how often the others were tried."""

    plan: Plan
    decision: PlannedRequest
    recording: RunDescription
    passed: frozenset[str]
    made: dict[str, int]
    unlike: Sequence[str]


def resume_run(
    path: Path, tether: DetachHandover | None = None, *, display: str, force: bool, effort: RetryPolicy
) -> int:
    """Go on with a run; its exit code. Nothing is done when all of it has passed.

    `tether` is what still ties us to a terminal that we left. Raises Unreachable when its orchestrator lives, RecordError
    when it cannot go on or, without `force`, when suite, system or environments are not those that it was planned for.
    """
    who = this_orchestrator(new_marker(path), detached=tether is not None)
    with hold_run(path, who):
        run = open_run(path)  # not before it is ours: a living orchestrator would still write to it
        if run.phase != "run":
            raise UsageError(f"{path}: is no run but a {run.phase}; `milabench {run.phase}` goes on where it stopped")
        passed = passed_steps(run)
        sweep_run(run)
        if run.files and len(passed) == len(run.files) and not is_undecided(run):
            _close(run)
            say(f"resume: {run.name} is finished: all of its {len(passed)} steps have passed")
            return DONE
        rest = remaining_work(run, passed, force=force)
        say(f"resume: {run.name}: {len(passed)} of {len(run.files)} steps have passed, {len(rest.plan.steps)} to run")
        writer = RunWriter(path)
        try:
            if rest.unlike:
                writer.journal({"run": "mixed", "differs": list(rest.unlike)})
            effort = replace(effort, made=rest.made, passed=rest.passed)
            request = rest.decision.request
            carried = continue_plan(
                rest.plan,
                request.inputs,
                rest.recording,
                writer,
                who,
                display=display,
                effort=effort,
                more=after_pilot(request),
                whole=rest.decision.plan,
                tether=tether,
            )
        except OSError as error:
            raise RecordError(f"{path}: cannot be written: {error.strerror}") from None
        finally:
            writer.close()
    return finish_run(carried)


def _close(run: Run) -> None:
    """Write what an orchestrator that ended, however it did, after its last step had yet to write."""
    is_told = run.is_ended and run.journal[-1].get("verdict") == "passed"
    if not is_told:
        writer = RunWriter(run.path)
        try:
            writer.journal({"run": "ended", "verdict": "passed"})
        except OSError as error:
            raise RecordError(f"{run.path}: cannot be written: {error.strerror}") from None
        finally:
            writer.close()
    if not is_told or not (run.path / SUMMARY).exists():
        write_summary(run.path)


def remaining_work(run: Run, passed: frozenset[str], *, force: bool) -> RemainingWork:
    """What is left of a run. Raises RecordError for what is not as it was planned, unless forced."""
    decision = plan_request(request_of(run))
    plan = decision.plan
    recording = describe_run(decision)
    unlike = plan_differences(run, plan, {**recording.told, "locks": recording.locks})
    if unlike and not force:
        told = "\n         ".join(unlike)
        raise RecordError(
            f"{run.path}: cannot go on, something changed since it was planned:\n         {told}\n"
            "       run anew with `milabench run`, or mix both in one run with --force"
        )
    known = [[step for step in bundle if step.id in run.files] for bundle in decision.bundles]
    todo = with_stems(remaining_plan(plan, passed, known), run.files)
    require_request_ready(decision.request, todo)
    tried = attempts(run.journal)
    made = {step.id: _attempts_made(run, step.id, tried.get(step.id, ())) for step in todo.steps}
    return RemainingWork(plan=todo, decision=decision, recording=recording, passed=passed, made=made, unlike=unlike)


def _attempts_made(run: Run, step: str, tried: tuple[Attempt, ...]) -> int:
    """How many attempts left a trace, in the journal or only a file: its orchestrator may have died in between."""
    made = max((attempt.number for attempt in tried), default=0)
    while (run.path / f"{attempt_stem(run.files[step], made + 1)}.data").exists():
        made += 1
    return made


def sweep_run(run: Run) -> None:
    """End what dead orchestrators of a run left, here and on the nodes that they used, and say what that was."""
    for each, addresses in dead(run):
        if each.is_of_this_boot:
            said = run_deferring_signals(partial(sweep_here, each.marker))
            if said != NOTHING_LEFT:
                say(f"resume: of its orchestrator {each}: {said}")
        for address, told in sweep_there(marked_there([(each, addresses)])).items():
            if told != NOTHING_LEFT:
                say(f"resume: of its orchestrator {each}, on {address.name}: {told}")


def say(text: str) -> None:
    """Tell a person."""
    print(text, file=sys.stderr)
