"""The nodes of Slurm that a run uses: of the current or a requested allocation, and their later life."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from milabench.errors import Unreachable, UsageError
from milabench.events.rundir import Run
from milabench.facts.allocated_nodes import Allocation
from milabench.schedulers.scheduler import UNKNOWN_STATE, JobHandle
from milabench.slurm.held_nodes import (
    HeldAllocation,
    allocation_with,
    claim_again,
    forget_allocation,
    request_nodes,
)
from milabench.slurm.jobs import SLURM
from milabench.slurm.srun import job_text
from milabench.workflow.files import base_folder
from milabench.workflow.options import Session, SuiteOptions
from milabench.workflow.recorded_nodes import RecordedAllocation, recorded_allocation

if TYPE_CHECKING:
    from milabench.config.schema import SystemConfig

OURS_S = 6.0  # for each command that is asked whether we are in a job: a run need not wait for a busy controller


def hold_nodes(system: SystemConfig, ours: Allocation | None, options: SuiteOptions, session: Session) -> None:
    """Let a session use the nodes of the job that we are in, else ask for some.

    Raises ConfigError, UsageError for options that Slurm refuses, and Unreachable.
    """
    if ours is not None:
        require_given(ours, session)
        session.allocation = HeldAllocation(ours)
    else:
        slurm = system.slurm
        if wanted := session.wanted_nodes:
            slurm = replace(slurm, nodelist=",".join(wanted), nodes=len(wanted))

        def keep(held: HeldAllocation) -> None:
            session.allocation = held

        request_nodes(slurm, base_folder(options.base), session.info, keep)


def require_given(allocation: Allocation, session: Session) -> None:
    """Raise UsageError where Slurm reports that our variables belong to an ended job. No answer proves nothing."""
    job = allocation.job
    handle = JobHandle(id=job, name="")
    state = SLURM.connect(say=session.info, timeout_s=OURS_S).observe([handle]).get(job, UNKNOWN_STATE)
    if state.phase in ("absent", "ended"):
        what = "Slurm knows no such job" if state.phase == "absent" else job_text(job, state)
        raise UsageError(
            f"SLURM_JOB_ID={job}: {what}: the variables of this shell name no current allocation. Unset them, or"
            " --engine local runs on this machine alone"
        )


def jobs_that_hold(recorded: Sequence[RecordedAllocation]) -> list[RecordedAllocation]:
    """Return those whose jobs still hold their nodes, or may: Slurm is asked once."""
    states = SLURM.connect().observe([allocation.handle for allocation in recorded])
    return [each for each in recorded if states.get(each.job, UNKNOWN_STATE).phase not in ("ended", "absent")]


def give_back(allocation: RecordedAllocation) -> None:
    """Cancel the job that still holds the nodes of a run without an orchestrator. Raises Unreachable."""
    SLURM.connect().cancel([allocation.handle])
    forget_allocation(allocation.run.parent.parent, allocation.marker)


def claim_recorded(run: Run, session: Session, *, force: bool) -> None:
    """Let a run be resumed on the nodes that it had: claim them where their job lives, else ask for the same, with `force` any.

    Raises Unreachable when Slurm does not answer.
    """
    recorded = recorded_allocation(run)
    if recorded is None or not recorded.marker or session.allocation is not None:
        return
    state = SLURM.connect().observe([recorded.handle]).get(recorded.job, UNKNOWN_STATE)
    if state.phase == "unknown":
        raise Unreachable(
            f"{run.path}: Slurm does not answer about job {recorded.job}, which may still hold its nodes. Try again"
        )
    if state.phase in ("running", "pending"):
        nodes = state.nodes or recorded.nodes
        base = run.path.parent.parent
        session.allocation = claim_again(base, allocation_with(recorded.job, nodes), recorded.marker)
        session.info(f"resume: Slurm's job {recorded.job} still holds {', '.join(recorded.nodes)}")
    elif not force:
        session.wanted_nodes = recorded.nodes
