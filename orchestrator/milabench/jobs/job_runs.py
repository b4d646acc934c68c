"""Makes a run by jobs of a scheduler: submits it, follows it, resumes and cancels it, from any login, whoever did so before."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from milabench.errors import DONE, INTERRUPTED, STEPS_FAILED, MilabenchError, Unreachable
from milabench.events.removal import remove
from milabench.events.run_files import MANIFEST
from milabench.events.run_writer import RunWriter, create_run
from milabench.events.rundir import Run, open_run
from milabench.execute.interrupts import interrupts
from milabench.execute.local_agent import new_marker
from milabench.execute.locks import Orchestrator, hold_run, holder_of, this_orchestrator, wait_for_release
from milabench.jobs.follow_jobs import Until, end_run, follow_jobs, open_jobs
from milabench.jobs.share_job import stated_nodes
from milabench.jobs.submission import (
    job_batches,
    marker_of,
    planned_shares,
    scheduler_of,
    share_of_job,
    submission_entry,
    submission_of,
    submit_jobs,
)
from milabench.schedulers.scheduler import JobBatch, JobHandle, Scheduler, job_system
from milabench.shown import some_of
from milabench.workflow.files import writing
from milabench.workflow.options import Session
from milabench.workflow.planning import describe_run, require_request_ready
from milabench.workflow.resume_run import planned_again
from milabench.workflow.run_records import stems, with_stems, write_manifest
from milabench.workflow.run_suite import each_run, report_run, save_sizes

if TYPE_CHECKING:
    from milabench.workflow.estimate import BudgetedPlan
    from milabench.workflow.run_suite import PreparedRuns

NAMED = 8  # jobs that a message names


def submit_runs(prepared: PreparedRuns, session: Session, *, detach: bool = False) -> list[tuple[Path, int]]:
    """Submit the runs of a command in sequence, each followed to its end unless `detach`.

    Return the directory and exit code of each. Raises UsageError with the scheduler's reason for a refusal, Unreachable
    when it does not answer.
    """

    def submit(budgeted: BudgetedPlan) -> tuple[Path, int]:
        path, code = _submit_run(budgeted, prepared, session, detach=detach)
        if not detach:
            save_sizes(prepared.settings.save_sizes, budgeted.planned, path)
        return path, code

    return each_run(prepared, session, submit)


@dataclass(frozen=True, slots=True)
class _JobRun:
    """A run by jobs whose lock we hold, and the scheduler of its jobs."""

    writer: RunWriter
    scheduler: Scheduler
    session: Session

    @property
    def path(self) -> Path:
        """The run directory."""
        return self.writer.path

    @property
    def run(self) -> Run:
        """The run as its records are now."""
        return open_run(self.path)

    def submit(
        self, batches: Sequence[JobBatch], scheduler: Scheduler, max_jobs: int | None, living: Sequence[str] = ()
    ) -> bool:
        """Submit batches. Return whether all were, and no signal came in between."""
        jobs, count, name = [], sum(len(batch.shares) for batch in batches), self.path.name
        for _, handle in submit_jobs(batches, scheduler, self.writer, max_jobs=max_jobs, living=living):
            jobs.append(handle.id)
            if interrupts().is_pending and len(jobs) < count:
                self.session.info(
                    f"run: {name}: {len(jobs)} of {count} jobs are submitted. `milabench resume` submits the others"
                )
                return False
        what = f"job {jobs[0]}" if len(jobs) == 1 else f"{len(jobs)} jobs, {jobs[0]} to {jobs[-1]}"
        self.session.info(f"run: {name}: submitted {what}")
        return not interrupts().is_pending

    def withdraw(self, error: MilabenchError) -> None:
        """Cancel the submitted jobs of a run of which a job was refused. Remove the run where that was the first job.

        A scheduler that did not answer may have taken the job all the same: the records stay, for `resume`.
        """
        name = self.path.name
        if isinstance(error, Unreachable):
            if self.run.shares:
                self.session.info(f"run: {name}: `milabench resume` finds its jobs and submits the others")
            return
        # Without a manifest it is no run yet: a script could not be made.
        jobs = open_jobs(self.run) if (self.path / MANIFEST).exists() else {}
        if not jobs:
            remove(self.path, self.path.parent, is_quiet=True)
            return
        with contextlib.suppress(Unreachable):
            self.scheduler.cancel(list(jobs.values()))
            self.session.info(f"run: {name}: cancelled the jobs submitted before: {_names(jobs.values())}")

    def follow(self, until: Until = "ended") -> bool:
        """Follow the jobs. See `follow_jobs`."""
        return follow_jobs(self.path, self.writer, self.scheduler, self.session, until=until)

    def follow_to_end(self, *, leave: bool) -> int:
        """Follow the jobs to the end of the run, and return its exit code. Say how to go on where we leave before."""
        if leave or not self.follow():
            self.session.info(
                f"run: the jobs of {self.path.name} go on: `milabench status` shows them, `resume` follows them and harvests"
                " what has ended, `cancel` ends them"
            )
            return DONE if leave else INTERRUPTED
        return self.finish()

    def finish(self) -> int:
        """Journal the end of a run all of whose jobs have ended, report it, and return the exit code."""
        has_passed = end_run(self.path, self.writer)
        return DONE if report_run(self.path, self.session) and has_passed else STEPS_FAILED

    def adopt(self) -> None:
        """Journal the jobs of which only a submission was journaled: the scheduler knows them by the marker of the run."""
        run = self.run
        if not any(share.is_submitting for share in run.shares.values()):
            return
        known = {job.id for share in run.shares.values() for job in share.jobs}
        for handle in self.scheduler.adopt(marker_of(run)):
            share = share_of_job(run, handle)
            if handle.id not in known and share is not None and run.shares[share].is_submitting:
                with writing(self.path):
                    self.writer.journal({"share": share, "state": "submitted", "job": handle.id})
                self.session.info(f"resume: {run.name}: found job {handle.id} of share {share}")

    def batches_again(self, run: Run, todo: set[str], *, force: bool) -> list[JobBatch]:
        """Return the jobs for the steps that did not pass. Raises RecordError where the plan has changed, unless forced."""
        unbound = tuple((name, "") for name in stated_nodes(run))
        planned, _, differences = planned_again(run, self.session, force=force, bound_nodes=unbound, ask_nodes=False)
        if differences:
            self.writer.journal({"run": "mixed", "differs": list(differences)})
        require_request_ready(planned.request, planned.plan)
        shares = [share for share in run.shares.values() if share.name in todo]
        submissions = {share.name: len(share.jobs) + share.is_submitting for share in run.shares.values()}
        system = planned.request.context.system
        return job_batches(shares, system, marker_of(run), run.path, submission_of(run).max_jobs, submissions)


@contextlib.contextmanager
def _held(path: Path, orchestrator: Orchestrator, session: Session) -> Iterator[_JobRun]:
    """Hold a submitted run. Raises Unreachable where another orchestrator does, RecordError."""
    with interrupts().deferred(), hold_run(path, orchestrator), contextlib.closing(RunWriter(path)) as writer:
        yield _JobRun(writer, scheduler_of(open_run(path)), session)


def _submit_run(budgeted: BudgetedPlan, prepared: PreparedRuns, session: Session, *, detach: bool) -> tuple[Path, int]:
    planned, submission = budgeted.planned, prepared.settings.submit
    assert submission is not None
    context = planned.request.context
    marker, shares = secrets.token_hex(6), planned_shares(planned, submission)
    description = describe_run(
        planned, stamp=prepared.stamp, validations=prepared.checks, replicates=budgeted.replicates
    )
    engine = context.system.engine or ""
    jobs = job_system(engine)
    entry = submission_entry(shares, submission, engine, marker, prepared.settings.retry)
    description = replace(description, manifest={**description.manifest, "submission": entry})
    files = stems(planned.plan.steps)
    # Who follows asks again by itself; somebody waits for a submission.
    asked, scheduler = jobs.connect(say=session.info), jobs.connect()
    with contextlib.closing(create_run(Path(context.dirs.base), description.name, datetime.now())) as writer:
        path, ours = writer.path, _JobRun(writer, scheduler, session)
        orchestrator = this_orchestrator(new_marker(path.name))
        with interrupts().deferred(), hold_run(path, orchestrator):
            try:
                batches = job_batches(shares, context.system, marker, path, submission.max_jobs)
                write_manifest(writer, with_stems(planned.plan, files), context, description, files)
                with writing(path):
                    writer.journal({"run": "started", **orchestrator.to_json()})
                    is_whole = ours.submit(batches, asked, submission.max_jobs)
            except MilabenchError as error:
                ours.withdraw(error)
                raise
            return path, ours.follow_to_end(leave=detach or not is_whole)


def resume_jobs(path: Path, session: Session, *, force: bool = False, detach: bool = False) -> int:
    """Adopt running jobs, harvest ended jobs, submit the steps that did not pass again. Return the exit code.

    Raises Unreachable when another orchestrator follows the run or the scheduler does not answer, RecordError for a run that
    is not as it was planned.
    """
    orchestrator = this_orchestrator(new_marker(path.name))
    with _held(path, orchestrator, session) as ours:
        ours.adopt()
        if open_jobs(ours.run):
            session.info(f"resume: {path.name}: asking the scheduler about its jobs")
            if not ours.follow("known"):
                return INTERRUPTED
        run = ours.run
        living = open_jobs(run)
        todo = {share.name for share in run.shares.values() if share.name not in living and share.unpassed}
        count = sum(len(share.steps) for share in run.shares.values())
        left = sum(len(share.unpassed) for share in run.shares.values())
        if not todo and not living:
            session.info(f"resume: {run.name} is finished: all of its {count} steps have passed")
            if not run.transitions or run.transitions[-1].get("verdict") != "passed":
                return ours.finish()
            return DONE
        session.info(
            f"resume: {run.name}: {count - left} of {count} steps have passed, jobs that go on: {len(living)}, to be"
            f" submitted again: {len(todo)}"
        )
        is_whole = True
        with writing(path):
            ours.writer.journal({"run": "started", **orchestrator.to_json()})
            if todo:
                batches = ours.batches_again(run, todo, force=force)
                going_on = [handle.id for handle in living.values()]
                is_whole = ours.submit(batches, ours.scheduler, submission_of(run).max_jobs, going_on)
        return ours.follow_to_end(leave=detach or not is_whole)


def cancel_jobs(run: Run, session: Session) -> bool:
    """Cancel the jobs of a run that have not ended, and wait until they have. False where all have ended.

    Raises Unreachable, where the scheduler is silent.

    Whoever follows the run, on whatever host, records their ends. If nobody follows it, we do.
    """
    if not open_jobs(run):
        return False
    orchestrator = this_orchestrator(new_marker(run.path.name))
    try:
        with _held(run.path, orchestrator, session) as ours:
            ours.adopt()
            _cancel(ours.run, ours.scheduler, session)
            if ours.follow():
                ours.finish()
    except Unreachable:
        if (holder := holder_of(run.path)) is None or holder.marker == orchestrator.marker:
            raise
        _cancel(run, scheduler_of(run), session)
        session.info(f"cancel: {run.name}: {holder} follows them, and records their ends. Waiting for it")
        wait_for_release(run.path)
    return True


def _cancel(run: Run, scheduler: Scheduler, session: Session) -> None:
    jobs = list(open_jobs(run).values())
    if jobs:
        scheduler.cancel(jobs)
        session.info(f"cancel: {run.name}: asked the scheduler to end {_names(jobs)}")


def _names(jobs: Collection[JobHandle]) -> str:
    """Return jobs for a person: all of a few, else the first and how many more."""
    names = [job.id for job in jobs]
    return f"job{'s' * (len(names) > 1)} {some_of(names, NAMED)}"
