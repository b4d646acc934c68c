"""Which nodes of Slurm a command means: those of the allocation that it is in, or of one that it asks for; or of a later job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from milabench.errors import ConfigError, Unreachable, UsageError
from milabench.events.rundir import Run
from milabench.events.values import as_mapping
from milabench.execute.allocation import (
    SHARE,
    HeldAllocation,
    allocation_with,
    claim_again,
    forget_allocation,
    request_nodes,
)
from milabench.execute.srun import job_text, scheduler_here
from milabench.facts.slurm import AllocatedNode, Allocation
from milabench.plan.system import stated_allocation, stated_devices
from milabench.schedulers.scheduler import UNKNOWN_STATE, JobHandle, job_name, job_system
from milabench.workflow.files import base_folder
from milabench.workflow.options import Session, SuiteOptions

if TYPE_CHECKING:
    from milabench.config.schema import SystemConfig
    from milabench.facts.model import Node

OURS_S = 6.0  # for each command that is asked whether we are in a job: a run need not wait for a busy controller


def allocation_for(system: SystemConfig, options: SuiteOptions, session: Session) -> Allocation:
    """Return the nodes that Slurm places the steps on. Asks for them where the options say so.

    Only stated, with no job, unless the options ask to `allocate`. Raises ConfigError, UsageError for what Slurm refuses, and
    Unreachable.
    """
    engine = system.engine or "slurm"
    ours = job_system(engine).allocation(options.environ)
    require_arch(system)
    if options.bound_nodes:
        by_name = {} if ours is None else {node.name: node for node in ours.nodes}
        nodes = [by_name.get(name) or AllocatedNode(name=stated, job="") for stated, name in options.bound_nodes]
        return replace(ours or Allocation(job="", nodes=()), nodes=tuple(nodes))
    if not options.allocate:
        return stated_allocation(system, is_distributed=options.distribute) if ours is None else without_job(ours)
    if engine != "slurm":
        raise UsageError(f"--engine {engine}: it gives nodes to jobs alone; add --submit")
    if session.allocation is None and ours is not None:
        require_given(ours, session)
        session.allocation = HeldAllocation(ours)
    elif session.allocation is None:
        slurm = system.slurm
        if wanted := session.wanted_nodes:
            slurm = replace(slurm, nodelist=",".join(wanted), nodes=len(wanted))

        def keep(held: HeldAllocation) -> None:
            session.allocation = held

        request_nodes(slurm, base_folder(options.base), session.info, keep)
    assert session.allocation is not None
    return session.allocation.nodes


def require_given(allocation: Allocation, session: Session) -> None:
    """Raise UsageError where Slurm says that our variables are those of a job that is over; its silence says nothing."""
    job = allocation.job
    handle = JobHandle(id=job, name="")
    state = scheduler_here(session.info, timeout_s=OURS_S).observe([handle]).get(job, UNKNOWN_STATE)
    if state.phase in ("absent", "ended"):
        what = "Slurm knows no such job" if state.phase == "absent" else job_text(job, state)
        raise UsageError(
            f"SLURM_JOB_ID={job}: {what}: the variables of this shell are not of an allocation that we are in; unset them, or"
            " --engine local runs on this machine alone"
        )


def without_job(allocation: Allocation) -> Allocation:
    """Return the nodes of an allocation as a plan may name them, for what does nothing on them."""
    return replace(allocation, job="", nodes=tuple(replace(node, job="") for node in allocation.nodes))


def require_arch(system: SystemConfig) -> None:
    """Raise ConfigError where the nodes are to have devices, and neither the system file nor this machine says of which kind."""
    from milabench.facts.probe import this_machine

    if system.arch is None and stated_devices(system) and not this_machine().answer().devices:
        raise ConfigError(
            f"system.arch: unknown: this machine has no devices, and slurm.gpus_per_node={system.slurm.gpus_per_node} asks for"
            " nodes that have some; set it, or --arch, to their kind: cuda, rocm, xpu or hpu"
        )


def as_node_of(allocation: Allocation, machine: Node) -> Node:
    """Return this machine as one of the nodes of an allocation, at the address at which the others meet it."""
    if len(allocation.nodes) == 1:
        return machine
    from milabench.workflow.node_query import reachable

    return reachable(replace(machine, name=allocation.here))


def arch_of_nodes(allocation: Allocation, machine: Node, reported: Mapping[str, Node]) -> str:
    """Return the kind of devices of the first node that reported, or is this machine; of this machine where none has."""
    first = allocation.nodes[0].name
    node = machine if first == allocation.here else reported.get(first, machine)
    return node.devices[0].arch if node.devices else "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedAllocation:
    """The nodes that the last orchestrator of a run used, by its journal; it had asked for them itself (`marker`), or not."""

    run: Path
    job: str
    marker: str
    nodes: tuple[str, ...]

    @property
    def handle(self) -> JobHandle:
        """The job that holds them."""
        return JobHandle(id=self.job, name=job_name(self.marker, SHARE))

    def to_json(self) -> dict[str, object]:
        """Return it as `status --json` prints it."""
        return {"scheduler": "slurm", "job": self.job, "nodes": list(self.nodes)}

    def __str__(self) -> str:
        return f"{', '.join(self.nodes)}, of Slurm's job {self.job}"


def recorded_allocation(run: Run) -> RecordedAllocation | None:
    """Return the nodes of Slurm that the last orchestrator of a run used; None where it used none."""
    started: Mapping[str, Any] = next(
        (entry for entry in reversed(run.transitions) if entry.get("run") == "started"), {}
    )
    recorded = as_mapping(started.get("allocation"))
    nodes = recorded.get("nodes")
    job = str(recorded.get("job") or "")
    if not job or not isinstance(nodes, list):
        return None
    return RecordedAllocation(
        run=run.path, job=job, marker=str(recorded.get("marker") or ""), nodes=tuple(map(str, nodes))
    )


def held_jobs(recorded: Sequence[RecordedAllocation]) -> list[RecordedAllocation]:
    """Return those whose own jobs still hold their nodes, or may: Slurm is asked once."""
    own = [allocation for allocation in recorded if allocation.marker]
    if not own:
        return []
    states = scheduler_here().observe([allocation.handle for allocation in own])
    return [each for each in own if states.get(each.job, UNKNOWN_STATE).phase not in ("ended", "absent")]


def held_text(allocation: RecordedAllocation) -> str:
    """Return what to know about the nodes of a run without an orchestrator; nothing once they are given back."""
    if not held_jobs([allocation]):
        return ""
    return f"; they are still held, and given back soon, or by `milabench cancel {allocation.run.name}`"


def give_back(allocation: RecordedAllocation) -> None:
    """Cancel the job that still holds the nodes of a run without an orchestrator. Raises Unreachable."""
    scheduler_here().cancel([allocation.handle])
    forget_allocation(allocation.run.parent.parent, allocation.marker)


def claim_recorded(run: Run, session: Session, *, force: bool) -> None:
    """Let a run be resumed on the nodes that it had: claim them where their job lives, else ask for the same, with `force` any.

    Raises Unreachable when Slurm does not answer.
    """
    recorded = recorded_allocation(run)
    if recorded is None or not recorded.marker or session.allocation is not None:
        return
    state = scheduler_here().observe([recorded.handle]).get(recorded.job, UNKNOWN_STATE)
    if state.phase == "unknown":
        raise Unreachable(
            f"{run.path}: Slurm does not answer about job {recorded.job}, which may still hold its nodes; try again"
        )
    if state.phase in ("running", "pending"):
        nodes = state.nodes or recorded.nodes
        base = run.path.parent.parent
        session.allocation = claim_again(base, allocation_with(recorded.job, nodes), recorded.marker)
        session.info(f"resume: Slurm's job {recorded.job} still holds {', '.join(recorded.nodes)}")
    elif not force:
        session.wanted_nodes = recorded.nodes
