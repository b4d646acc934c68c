"""Submits a run as jobs of a scheduler, one for each share of its plan: the jobs, their order, and the entries written first.

A submission is journaled before it is made and after it, so that a job is known whenever an orchestrator dies: a job that was
not heard of any more is found by its name.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from milabench.errors import RecordError, UsageError
from milabench.events.run_writer import RunWriter
from milabench.events.shares import Share
from milabench.events.values import as_mapping
from milabench.jobs.planned_shares import shares_of
from milabench.plan.ab import SIDES, side_name
from milabench.plan.method import reached_nodes
from milabench.plan.system import nodes_in
from milabench.schedulers.scheduler import (
    JobBatch,
    JobHandle,
    JobRequest,
    JobSystem,
    JobText,
    Scheduler,
    job_name,
    job_system,
)
from milabench.seams import handler
from milabench.workflow.context import read_suite_only
from milabench.workflow.options import Session, Submission, SuiteOptions
from milabench.workflow.planning import PlannedRequest
from milabench.workflow.recorded_nodes import SHARE

if TYPE_CHECKING:
    from milabench.config.schema import SystemConfig
    from milabench.events.rundir import Run
    from milabench.execute.retry_policy import RetryPolicy

SLURM = "slurm"
JOBS = "jobs"
"""The folder of a run directory that holds the jobs' scripts and output."""
MARKER, RUN = "MARKER", "RUN"
"""Placeholders of the marker of a run and of its directory's name, which it gets when it begins."""


def _task_of(handle: JobHandle) -> int | None:
    """Return the number of a task of an array, None for another job."""
    number = handle.id.partition(";")[0].partition("_")[2]
    return int(number) if number.isdecimal() else None


def share_of_job(run: Run, handle: JobHandle) -> str | None:
    """Return the share for which a job of this name was submitted, by the journal. None for a job that it does not name."""
    task = _task_of(handle)
    for entry in run.journal:
        if entry.get("state") == "submitting" and (entry.get("name"), entry.get("task")) == (handle.name, task):
            return str(entry.get("share"))
    return None


def job_system_of(run: Run) -> JobSystem:
    """Return the batch scheduler that a run was submitted to.

    Raises RecordError for a scheduler that this version does not know.
    """
    try:
        return job_system(str(as_mapping(run.manifest.get("submission")).get("scheduler")))
    except UsageError as error:
        raise RecordError(f"{run.path}: was submitted to {error}") from None


def scheduler_of(run: Run, *, timeout_s: float | None = None) -> Scheduler:
    """Return the scheduler that a run was submitted to. Each of its commands has `timeout_s`. See `job_system_of`."""
    return job_system_of(run).connect(timeout_s=timeout_s)


def for_jobs(options: SuiteOptions, session: Session) -> SuiteOptions:
    """Return the options of a run by jobs: planned for nodes as they are stated, of which `distribute` names all.

    Raises UsageError and Unreachable where the nodes cannot be asked for.
    """
    # The jobs get nodes of their own, whatever allocation the command is typed in.
    environ = {name: value for name, value in options.environ.items() if not name.startswith("SLURM_")}
    is_allocated = bool(options.environ.get("SLURM_JOB_ID"))
    options = replace(options, ask_nodes=False, environ=environ)
    if is_allocated:
        # There Slurm is what a plain `run` uses too, unless the system file says otherwise.
        system = read_suite_only(options).system
        if system.engine is None and not system.nodes:
            options = replace(options, engine=SLURM)
    if not options.distribute:
        return options
    system = read_suite_only(options).system
    if system.engine != "slurm":
        raise UsageError("--distribute makes jobs of Slurm. Add --engine slurm, or engine: slurm to the system file")
    slurm = system.slurm
    excluded = nodes_in(slurm.exclude, "exclude")
    names = [name for name in nodes_in(slurm.nodelist, "nodelist") if name not in excluded]
    if not names:
        names, unusable = handler("nodes of a partition")(slurm.partition, excluded, session.info)
        for name, state in unusable.items():
            session.warn(f"{name}: is left out: Slurm says that it is {state}")
    if not names:
        raise UsageError("--distribute: no node of the partition takes jobs. Name others by --slurm-arg nodelist=...")
    return replace(options, slurm_args=(*options.slurm_args, f"nodelist={','.join(names)}"))


def planned_shares(planned: PlannedRequest, submission: Submission) -> tuple[Share, ...]:
    """Return the shares of a planned request."""
    request = planned.request
    compared = [(request.baseline, bench.config.name) for bench in request.context.benches] if request.baseline else []
    return shares_of(
        planned.plan,
        planned.bundles,
        compared=compared,
        reached={
            side_name(bench.config.name, name) if request.is_ab else bench.config.name: reached_nodes(
                bench.config, side.plan_context.facts
            )
            for name, side in zip(SIDES, request.sides, strict=False)
            for bench in side.benches
        },
        array=submission.array,
        distribute=request.context.options.distribute,
    )


def job_batches(
    shares: Sequence[Share],
    system: SystemConfig,
    marker: str,
    run: Path,
    max_jobs: int | None,
    submissions: Mapping[str, int] = {},
) -> list[JobBatch]:
    """Return the jobs for the shares of a run, in order. Pure, so that it can be shown before.

    `submissions` counts those that each share has behind it: no two jobs of a run have the same name.
    """
    jobs = job_system(system.engine or "")
    arrays: dict[str, list[Share]] = {}
    for share in shares:
        arrays.setdefault(share.array or share.name, []).append(share)
    batches = []
    for together in arrays.values():
        first = together[0]
        before = submissions.get(first.name, 0)
        name = f"{first.name}-{before + 1}" if before else first.name
        tasks = tuple(share.name for share in together) if len(together) > 1 else ()
        words = (sys.executable, "-m", "milabench", "job", "--run", str(run), "--share")
        job = JobText(
            marker=marker,
            share=name,
            nodes=first.nodes,
            command=words if tasks else (*words, first.name),
            output=run / JOBS / f"{first.name}.out",
            tasks=tasks,
        )
        request = JobRequest(
            name=job_name(marker, name),
            script=jobs.script(system, job),
            path=run / JOBS / f"{name}.sh",
            tasks=len(tasks),
            at_once=min(max_jobs or 0, len(tasks)),
        )
        batches.append(JobBatch(shares=tuple(share.name for share in together), request=request))
    return batches


def job_scripts(planned: PlannedRequest, submission: Submission | None) -> tuple[JobBatch, ...]:
    """Return the jobs of a planned run by jobs, or the job which holds its nodes. Empty where we have nodes already.

    They can be read before anything is submitted. Raises ConfigError for options that Slurm would read as something else.
    """
    context = planned.request.context
    base = Path(context.dirs.base)
    if submission is None:
        system = job_system(context.system.engine or "slurm")
        if context.allocation is None or system.allocation(context.options.environ) is not None:
            return ()
        script = handler("requests for nodes").holder_script(context.system.slurm, base, MARKER)
        return (JobBatch(request=JobRequest(name=SHARE, script=script, path=base)),)
    shares = planned_shares(planned, submission)
    batches = job_batches(shares, context.system, MARKER, base / "runs" / RUN, submission.max_jobs)
    bench_of = {step.id: step.bench for step in planned.plan.steps}
    benches = {share.name: [bench_of[step] for step in share.steps] for share in shares}
    return tuple(
        replace(batch, benchmarks=tuple(dict.fromkeys(bench for share in batch.shares for bench in benches[share])))
        for batch in batches
    )


def submission_entry(
    shares: Sequence[Share], submission: Submission, scheduler: str, marker: str, retry: RetryPolicy
) -> dict[str, object]:
    """Return the manifest's entry of a submission."""
    return {
        "marker": marker,
        "scheduler": scheduler,
        "shares": {
            share.name: {
                "steps": list(share.steps),
                "nodes": list(share.nodes),
                **({"array": share.array} if share.array else {}),
            }
            for share in shares
        },
        **asdict(submission),
        "retry": {"wait": retry.wait, "max_retries": retry.max_retries, "max_failures": retry.max_failures},
    }


def marker_of(run: Run) -> str:
    """Return the marker of a run's jobs, by which the scheduler knows them."""
    return str(as_mapping(run.manifest.get("submission")).get("marker"))


def output_of(run: Run, share: str) -> str:
    """Return the file below a run directory that has the output of the last job of a share."""
    outputs = [entry["output"] for entry in run.journal if entry.get("share") == share and "output" in entry]
    return str(outputs[-1]) if outputs else JOBS


def submission_of(run: Run) -> Submission:
    """Return how a run was submitted."""
    entry = as_mapping(run.manifest.get("submission"))
    most = entry.get("max_jobs")
    return Submission(max_jobs=most if isinstance(most, int) and most > 0 else None, array=entry.get("array") is True)


def submit_jobs(
    batches: Sequence[JobBatch],
    scheduler: Scheduler,
    writer: RunWriter,
    *,
    max_jobs: int | None,
    living: Sequence[str],
) -> Iterator[tuple[str, JobHandle]]:
    """Submit batches in order, and yield the job of each share when it is in the journal.

    At most `max_jobs` run at once, of the `living` ones too, without anybody who would have to watch: a job begins when
    one before it has ended. Raises the errors of `Scheduler.submit`.
    """
    before = [handle.partition("_")[0] for handle in living]
    has_arrays = any(batch.request.tasks for batch in batches)
    (writer.path / JOBS).mkdir(exist_ok=True)
    for batch in batches:
        request = batch.request
        if max_jobs is not None:
            # An array has a limit of its own: nothing else runs beside it.
            waits_for = before if has_arrays else before[-max_jobs:][:1] if len(before) >= max_jobs else []
            request = replace(request, after=tuple(dict.fromkeys(waits_for)))
        writer.journal_all(
            {
                "share": share,
                "state": "submitting",
                "name": request.name,
                "output": f"{JOBS}/{batch.shares[0]}.out{f'.{task}' if request.tasks else ''}",
                **({"task": task} if request.tasks else {}),
            }
            for task, share in enumerate(batch.shares)
        )
        handles = scheduler.submit([request])
        by_share = {batch.shares[_task_of(handle) or 0]: handle for handle in handles}
        writer.journal_all(
            {"share": share, "state": "submitted", "job": handle.id} for share, handle in by_share.items()
        )
        before = [*(() if has_arrays else before), handles[0].id.partition("_")[0]]
        yield from by_share.items()
