"""Slurm as a batch scheduler among others: its commands, its scripts, and its variables in a job."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from milabench.facts.allocated_nodes import Allocation
from milabench.plan.system import nodes_in
from milabench.schedulers.scheduler import JobText, Scheduler
from milabench.slurm.job_variables import allocation_of
from milabench.slurm.scheduler import COMMAND_S, SlurmScheduler
from milabench.slurm.script import batch_script

if TYPE_CHECKING:
    from milabench.config.schema import SystemConfig


class SlurmJobs:
    """`JobSystem` of Slurm."""

    def connect(self, *, timeout_s: float | None = None, say: Callable[[str], object] = lambda _: None) -> Scheduler:
        """Return the Slurm of this machine."""
        return SlurmScheduler(os.environ, COMMAND_S if timeout_s is None else timeout_s, say)

    def script(self, system: SystemConfig, job: JobText) -> str:
        """Return the batch script of a job.

        A job that was planned for nodes of `slurm.nodelist` runs on these. Any other runs on the planned number of nodes.
        """
        options = replace(system.slurm, nodes=len(job.nodes))
        if set(nodes_in(system.slurm.nodelist, "nodelist")).issuperset(job.nodes):
            options = replace(options, nodelist=",".join(job.nodes), exclude="")
        return batch_script(options, job)

    def allocation(self, environ: Mapping[str, str]) -> Allocation | None:
        """Return the nodes of the job that these variables are of. See `JobSystem.allocation`."""
        return allocation_of(environ)

    def job_id(self, environ: Mapping[str, str]) -> str:
        """Return the id of that job."""
        array, task = environ.get("SLURM_ARRAY_JOB_ID"), environ.get("SLURM_ARRAY_TASK_ID")
        return f"{array}_{task}" if array and task else environ.get("SLURM_JOB_ID", "")


SLURM = SlurmJobs()


def nodes_of_partition(
    partition: str, excluded: tuple[str, ...], say: Callable[[str], object]
) -> tuple[list[str], dict[str, str]]:
    """Return the nodes of a partition that take jobs, and the state of those that do not."""
    return SlurmScheduler(os.environ, say=say).nodes(partition, excluded)
