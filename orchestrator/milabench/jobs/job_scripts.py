"""The batch scripts that a planned run would give to a scheduler, to be read before anything is submitted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from milabench.jobs.submission import job_batches, planned_shares
from milabench.schedulers.scheduler import JobBatch, JobRequest, job_system
from milabench.seams import handler
from milabench.workflow.recorded_nodes import SHARE

if TYPE_CHECKING:
    from milabench.workflow.options import Submission
    from milabench.workflow.planning import PlannedRequest

MARKER = "MARKER"
"""Placeholder of the marker of a run, which it gets when it begins."""
RUN = "RUN"
"""Placeholder of the name of its directory."""


def job_scripts(planned: PlannedRequest, submission: Submission | None) -> tuple[JobBatch, ...]:
    """Return the jobs of a run by jobs, or the job which holds its nodes. Empty where we have nodes already.

    Raises ConfigError for options that Slurm would read as something else.
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
