"""What `milabench runs` and `status` print of a run for programs, and where the jobs of its shares are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from milabench.analysis.run_status import RunStatus
from milabench.events.shares import Share, ShareJob
from milabench.schedulers.scheduler import JobState
from milabench.workflow.run_lookup import RunHandle


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareState:
    """Where the job of a share is, as `status` shows it.

    `stage` is `not submitted`, `submitting`, a value of `events.shares.JobStage`, or `died`: begun, not ended, and nobody
    executes it. `state` and `reason` are the scheduler's words, `done` the number of its `steps` that have ended.
    """

    share: str
    job: str
    stage: str
    state: str
    reason: str
    result: str
    failure: str
    nodes: tuple[str, ...]
    steps: int
    done: int


def share_states(handle: RunHandle, live: Mapping[str, JobState]) -> list[ShareState]:
    """Return where each share of a run is, by its files and, where it was asked, by the scheduler's word on its job (`live`)."""
    return [_share_state(handle, share, live.get(share.name)) for share in handle.run.shares.values()]


def _share_state(handle: RunHandle, share: Share, live: JobState | None) -> ShareState:
    job = share.job or ShareJob(id="")
    stage: str = "submitting" if share.is_submitting else job.stage if job.id else "not submitted"
    if stage == "running" and share.name not in handle.workers and (live is None or live.phase == "unknown"):
        stage = "died"
    if live is not None and live.phase in ("pending", "running", "ended"):
        job = replace(job, state=live.state, reason=live.reason, result=live.result, nodes=live.nodes or job.nodes)
        stage = live.phase
    return ShareState(
        share=share.name,
        job=job.id,
        stage=stage,
        state=job.state,
        reason="" if job.reason == "None" or stage == "running" else job.reason,
        result=job.result,
        failure=job.failure,
        nodes=job.nodes or share.ran_on,
        steps=len(share.steps),
        done=len(share.steps) - len(share.unended),
    )


def status_json(status: RunStatus, state: str) -> dict[str, object]:
    """Return the status as `runs --json` and `status --json` print it. `state` is the verdict, or running, or cut off."""
    return {
        "run": status.name,
        "phase": status.phase,
        "verdict": state,
        "planned": len(status.steps),
        "counts": status.counts,
        "benchmarks": list(status.benches),
        "began": status.began,
        "ended": status.ended,
    }
