"""Carries out a share of a run in the job that was submitted for it: as a local run does, with a journal of its own.

No orchestrator need live meanwhile. Passed steps are not repeated, so that a job which is submitted twice does its
share once.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from milabench.errors import DONE, INTERRUPTED, STEPS_FAILED, EnvironmentFailed, MilabenchError, RecordError, UsageError
from milabench.events.model import Why
from milabench.events.run_writer import RunWriter
from milabench.events.rundir import Run, open_run
from milabench.events.shares import Share
from milabench.events.values import as_mapping, mappings_in, whole
from milabench.execute.local_agent import new_marker
from milabench.execute.locks import hold_share, this_orchestrator
from milabench.execute.retry_policy import RetryPolicy
from milabench.facts.allocated_nodes import Allocation
from milabench.jobs.submission import job_system_of
from milabench.workflow.execution import continue_plan
from milabench.workflow.files import writing
from milabench.workflow.options import Session
from milabench.workflow.planning import describe_run, plan_request, request_of
from milabench.workflow.resume_run import RemainingWork, rest_of
from milabench.workflow.run_records import RunDescription, with_stems
from milabench.workflow.run_suite import passed_steps
from milabench.workflow.saved_options import changed_files


def carry_out_share(path: Path, name: str, session: Session, environ: Mapping[str, str] = os.environ) -> int:
    """Carry out a share of a run on the nodes of the allocation that we are in, and return the exit code.

    Each step of the share has an end in its journal when this returns or raises, unless we were interrupted before the first
    was started. Raises UsageError outside of a job, Unreachable when another job carries the share out.
    """
    run = open_run(path)
    jobs = job_system_of(run)
    allocation = jobs.allocation(environ)
    if allocation is None:
        scheduler = as_mapping(run.manifest.get("submission")).get("scheduler")
        raise UsageError(
            f"job: carries out a share inside of a job of {scheduler}, and this is none. See `milabench run --submit`"
        )
    if name not in run.shares:
        raise UsageError(f"{path}: has no share '{name}'. `milabench run --submit` makes runs with shares")
    orchestrator = this_orchestrator(new_marker(path.name))
    with (
        hold_share(path, name, orchestrator),
        contextlib.closing(RunWriter(path, share=name, job=jobs.job_id(environ))) as writer,
    ):
        run = open_run(path)  # again: another job may have carried it out until now
        passed = passed_steps(run)
        with _failing(writer, run, name):
            work = _work_of(run, run.shares[name], allocation, passed, session)
            whole = work.planned.plan
            if not work.plan.steps:
                with writing(path):
                    writer.journal({"run": "ended", "verdict": "passed"})
                session.info(f"job: {run.name}: all steps of share {name} have passed")
                return DONE
            with writing(path):
                writer.write_share_manifest(whole.system, [step.to_json() for step in whole.steps])
            executed = continue_plan(
                work.plan,
                work.planned.request.context,
                work.description,
                writer,
                orchestrator,
                retry=replace(retry_of(run), attempts=work.attempts, passed=passed),
                whole=whole,
            )
    if executed.result.interrupted:
        return INTERRUPTED
    return DONE if executed.result.all_passed else STEPS_FAILED


def retry_of(run: Run) -> RetryPolicy:
    """Return the policy that a run was submitted with."""
    saved = as_mapping(as_mapping(run.manifest.get("submission")).get("retry"))
    return RetryPolicy(
        wait=saved.get("wait") is True,
        max_retries=whole(saved.get("max_retries"), 0),
        max_failures=None if saved.get("max_failures") is None else whole(saved.get("max_failures"), 0),
    )


def _work_of(run: Run, share: Share, allocation: Allocation, passed: frozenset[str], session: Session) -> RemainingWork:
    """Plan the run again, for the nodes that we have, and return our part. Raises MilabenchError for changes since then."""
    bound = _bound_nodes(run, share, allocation)
    planned = plan_request(request_of(run, session, bound_nodes=bound, ask_nodes=True))
    description = describe_run(planned)
    _require_unchanged(run, share, description)
    own = tuple(step for step in planned.plan.steps if step.id in share.steps)
    found = {step.id for step in own}
    if missing := [step for step in share.steps if step not in found]:
        stated = _nodes_text(run.as_planned.get("system"), share.nodes)
        present = _nodes_text(planned.plan.system, [ours for _, ours in bound])
        raise EnvironmentFailed(
            f"{', '.join(missing[:3])}{' and others' if len(missing) > 3 else ''}: planned for {stated}, but the job has"
            f" {present}. State the nodes' devices in system.slurm.gpus_per_node and system.gpu"
        )
    plan = with_stems(replace(planned.plan, steps=own, skipped=()), run.files)
    return rest_of(run, replace(planned, plan=plan), description, passed, share.steps)


def _bound_nodes(run: Run, share: Share, allocation: Allocation) -> tuple[tuple[str, str], ...]:
    """Return each node that the run was planned for, with the node of ours in its place, empty where there is none.

    Raises EnvironmentFailed when we have too few.
    """
    ours = [node.name for node in allocation.nodes]
    if len(ours) < len(share.nodes):
        raise EnvironmentFailed(
            f"share {share.name} was planned for {len(share.nodes)} nodes, but job {allocation.job} has {len(ours)}:"
            f" {', '.join(ours)}"
        )
    named = share.nodes if set(share.nodes) <= set(ours) else ours
    bound = dict(zip(share.nodes, named, strict=False))
    return tuple((name, bound.get(name, "")) for name in stated_nodes(run))


def stated_nodes(run: Run) -> tuple[str, ...]:
    """Return the nodes that a run was planned for, as they were stated."""
    nodes = mappings_in(as_mapping(run.as_planned.get("system")).get("nodes"))
    return tuple(str(node.get("name")) for node in nodes)


def _require_unchanged(run: Run, share: Share, description: RunDescription) -> None:
    """Raise RecordError unless suite, programs and environments are those that were submitted, or the run is mixed anyway."""
    if any(entry.get("run") == "mixed" for entry in run.journal):
        return
    lines = changed_files(run, {**description.manifest, "locks": description.locks})
    before = as_mapping(run.manifest.get("suite"))
    steps = mappings_in(as_mapping(run.as_planned.get("plan")).get("steps"))
    benches = {step.get("bench") for step in steps if step.get("id") in share.steps}
    lines += [
        f"suite: {bench} changed"
        for bench in sorted(map(str, benches))
        if bench in before and before[bench] != description.suite.get(bench)
    ]
    if lines:
        raise RecordError(
            f"differs from the submitted plan: {'; '.join(lines)}. Submit a new run, or `milabench resume --force`"
        )


def _nodes_text(system: object, names: Collection[str]) -> str:
    """Return the nodes of a system with these names, each with its devices."""
    nodes = mappings_in(as_mapping(system).get("nodes"))
    return ", ".join(_node_text(node) for node in nodes if node.get("name") in names)


def _node_text(node: Mapping[str, object]) -> str:
    devices = [f"D{device.get('index')}" for device in mappings_in(node.get("devices"))]
    return f"{node.get('name')} with {' '.join(devices) or 'no devices'}"


@contextlib.contextmanager
def _failing(writer: RunWriter, run: Run, name: str) -> Iterator[None]:
    """Journal the end of each step of a share that an error leaves without an end, with the error as the reason."""
    try:
        yield
    except MilabenchError as error:
        share = open_run(run.path).shares[name]
        with contextlib.suppress(OSError):  # a full disk: the end of the job is known to the scheduler
            writer.journal_all(
                [*ends_of(share, share.unended, "environment", str(error)), {"run": "ended", "verdict": "failed"}]
            )
        raise


def ends_of(share: Share, steps: Sequence[str], why: Why, detail: str) -> list[dict[str, object]]:
    """Return the journal's entries that end steps of a share as failed, each in the attempt that is under way or was next."""
    return [
        {
            "step": step,
            "attempt": 1 if (tried := share.attempts[step]) is None else tried.number,
            "state": "ended",
            "outcome": "failed",
            "why": why,
            "detail": detail.partition("\n")[0],
        }
        for step in steps
    ]
