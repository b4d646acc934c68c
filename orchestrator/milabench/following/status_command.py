"""`milabench status`."""

from __future__ import annotations

import json
import shlex
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from milabench import seams
from milabench.cli.options import base_option, json_option, run_argument
from milabench.events.shares import Share, ShareJob
from milabench.shown import visible_line

if TYPE_CHECKING:
    from milabench.schedulers.scheduler import JobState
    from milabench.workflow.run_lookup import RunHandle

SHOWN = 10


@click.command("status")
@run_argument
@base_option
@json_option
def command(run: str | None, base: Path | None, as_json: bool) -> None:
    """Show a run's progress. Default: the latest run."""
    from milabench.workflow.run_lookup import resolve_run, run_handle

    handle = resolve_run(base, run)
    live: Mapping[str, JobState] = {}  # where no scheduler was asked
    if handle.run.shares and seams.takes_part("ends of jobs"):
        asked, live = seams.handler("ends of jobs")(
            handle.run, lambda note: click.echo(f"note: {visible_line(note)}", err=True)
        )
        handle = run_handle(asked)
    now = time.time()
    # A name of the records makes no line of its own.
    lines = [] if as_json else map(visible_line, status_lines(handle, now, live))
    click.echo(json.dumps(handle_json(handle, now, live), indent=1) if as_json else "\n".join(lines))


def handle_json(handle: RunHandle, now: float, live: Mapping[str, JobState]) -> dict[str, object]:
    """Return the state of a run, its orchestrator, the steps that run, and its shares. See `status_lines`."""
    shares = [asdict(state) for state in share_states(handle, live)]
    return {
        "schema": 1,
        **status_json(handle),
        "path": str(handle.run.path),
        "orchestrator": None if handle.holder is None else handle.holder.to_json(),
        "allocation": None if handle.allocation is None else handle.allocation.to_json(),
        **({"shares": shares} if shares else {}),
        "running": [
            {"step": tried.step, "attempt": tried.number, "pid": tried.entry.get("pid"), "seconds": now - tried.began}
            for tried in handle.running
            if tried.began is not None
        ],
    }


def status_lines(handle: RunHandle, now: float, live: Mapping[str, JobState]) -> list[str]:
    """Return the status as text for a person.

    `live` is the scheduler's present state of its jobs, by share, where it was asked.
    """
    from milabench.events.attempts import with_node
    from milabench.execute.detach import LOG
    from milabench.workflow.recorded_nodes import held_text

    path, status, holder = handle.run.path, handle.status, handle.holder
    done = sum(tried is not None and tried.outcome is not None for tried in status.steps.values())
    counts = ", ".join(
        f"{count} {'not done' if outcome == 'missing' else outcome}" for outcome, count in status.counts.items()
    )
    holds = f", by {holder}" if holder is not None else ""
    lines = [f"{handle.run.name}: {handle.state_text}{holds}; {done}/{len(status.steps)} steps done: {counts}"]
    if killed := handle.kills_for_memory:
        times = f"{killed} time{'s' * (killed > 1)}"
        lines.append(
            f"memory   since it began, the kernel killed {times} for lack of memory, perhaps its orchestrator too"
        )
    if handle.allocation is not None:
        lines.append(f"nodes    {handle.allocation}{'' if holder is not None else held_text(handle.allocation)}")
    lines += share_lines(handle, live)
    lines += _running_lines(handle, now)
    failed = [tried for tried in status.steps.values() if tried is not None and tried.outcome == "failed"]
    lines += [f"failed   {with_node(tried.step, tried.node)}: {tried.why}: {tried.detail}" for tried in failed[:SHOWN]]
    if len(failed) > SHOWN:
        lines.append(f"         and {len(failed) - SHOWN} more")
    lines.append(f"records  {path}")
    if handle.is_detached:
        lines.append(f"log      {path / LOG}")
    return [*lines, "", f"next: {_next_command(handle)}"]


def _next_command(handle: RunHandle) -> str:
    """Return the command that continues, shows or reports a run."""
    from milabench.workflow.run_lookup import ACTIVE_STATES

    path = shlex.quote(str(handle.run.path))
    if handle.state in ACTIVE_STATES:
        return f"`milabench resume {path}`: shows its progress" if handle.is_detached else f"`milabench status {path}`"
    if handle.status.counts.keys() - {"passed", "skipped"}:
        return f"`milabench resume {path}`: runs the steps that did not pass"
    return f"`milabench report {path}`: its numbers"


def _running_lines(handle: RunHandle, now: float) -> list[str]:
    """Return the steps that run, and the command that shows the first step's processes."""
    from milabench.report.labels import duration

    lines = []
    for tried in handle.running:
        since = f" for {duration(now - tried.began)}" if tried.began is not None else ""
        node = f" on {tried.node}" if handle.run.shares else ""
        lines.append(f"running  {tried.step}{since} (pid {tried.entry.get('pid')}{node})")
    if lines and seams.takes_part("hangs"):
        lines.append(f"stacks   milabench stacks {shlex.quote(handle.running[0].step)}")
    return lines


def share_lines(handle: RunHandle, live: Mapping[str, JobState]) -> list[str]:
    """Return the jobs of a run: how many are where, and each that is not done."""
    states = share_states(handle, live)
    if not states:
        return []
    counts = ", ".join(f"{count} {stage}" for stage, count in Counter(state.stage for state in states).items())
    lines = [f"jobs     {len(states)}: {counts}"]
    undone = [state for state in states if state.stage != "ended" or state.failure]
    for state in undone[:SHOWN]:
        job = f"job {state.job}" if state.job else "no job"
        where = f" on {', '.join(state.nodes)}" if state.nodes else ""
        why = f": {state.failure or state.reason}" if state.failure or state.reason else ""
        done = f", {state.done}/{state.steps} steps done"
        lines.append(f"         {state.share}: {job}, {state.stage}{where}{why}{done}")
    if len(undone) > SHOWN:
        lines.append(f"         and {len(undone) - SHOWN} more")
    return lines


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


def status_json(handle: RunHandle) -> dict[str, object]:
    """Return the status of a run as `runs --json` and `status --json` print it."""
    status = handle.status
    return {
        "run": status.name,
        "phase": status.phase,
        "verdict": handle.state,
        "planned": len(status.steps),
        "counts": status.counts,
        "benchmarks": list(status.benches),
        "began": status.began,
        "ended": status.ended,
    }
