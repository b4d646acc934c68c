"""The nodes of a Slurm allocation, from the variables that Slurm sets in it. No command is run."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping

from milabench.errors import ConfigError
from milabench.facts.allocated_nodes import MAX_NAMES, AllocatedNode, Allocation, expand_nodelist

_CPUS = re.compile(r"([0-9]+)(?:\(x([0-9]+)\))?")


def allocation_of(environ: Mapping[str, str]) -> Allocation | None:
    """Return the allocation that these variables describe. None outside of an allocation.

    Raises ConfigError for unreadable values.
    """
    job = environ.get("SLURM_JOB_ID", "")
    if not job:
        return None
    if not job.isascii() or not job.isdigit():
        raise ConfigError(f"SLURM_JOB_ID={job}: is not the number of a job. --engine local runs on this machine alone")
    tasks = environ.get("SLURM_STEP_NUM_TASKS", "1") if "SLURM_STEP_ID" in environ else "1"
    if tasks != "1":
        raise ConfigError(
            f"SLURM_STEP_NUM_TASKS={tasks}: srun starts milabench {tasks} times, and each would run the whole suite. Start"
            " it once, without srun or by `srun --overlap --ntasks=1`: it reaches the other nodes by itself"
        )
    components = _whole_number(environ, "SLURM_HET_SIZE")
    # Slurm's own way to write a component; srun takes no other than the leader's id with its number.
    jobs = {f"_HET_GROUP_{number}": f"{job}+{number}" for number in range(components)} or {"": job}
    nodes: dict[str, AllocatedNode] = {}
    for suffix, component in jobs.items():
        for node in _nodes_of(environ, suffix, component):
            nodes.setdefault(node.name, node)
    here = environ.get("SLURMD_NODENAME", "")
    return Allocation(job=job, nodes=tuple(nodes.values()), here=here if here in nodes else "")


def _nodes_of(environ: Mapping[str, str], suffix: str, job: str) -> Iterator[AllocatedNode]:
    """Yield the nodes of a job, or of a component of a heterogeneous job."""
    variable = f"SLURM_JOB_NODELIST{suffix}"
    text = environ.get(variable, "")
    try:
        names = expand_nodelist(text)
    except ValueError as error:
        raise ConfigError(f"{variable}={text}: {error}. --engine local runs on this machine alone") from None
    if not names:
        what = f"{variable}: is not set, although SLURM_JOB_ID says that this is job {job}"
        raise ConfigError(f"{what}. --engine local runs on this machine alone")
    cpus = _expand_counts(environ.get(f"SLURM_JOB_CPUS_PER_NODE{suffix}", ""))
    for name, count in itertools.zip_longest(names, cpus[: len(names)]):
        yield AllocatedNode(name=name, job=job, cpus=count)


def _whole_number(environ: Mapping[str, str], variable: str) -> int:
    text = environ.get(variable, "") or "0"
    if not text.isascii() or not text.isdigit() or int(text) > MAX_NAMES:
        raise ConfigError(
            f"{variable}={text}: is not a number of components. --engine local runs on this machine alone"
        )
    return int(text)


def _expand_counts(text: str) -> list[int]:
    """Return the processors of each node in `4(x2),8`. Empty where it cannot be read: they are only informative."""
    counts: list[int] = []
    for part in text.split(",") if text else ():
        match = _CPUS.fullmatch(part)
        if match is None or int(match[2] or 1) > MAX_NAMES:
            return []
        counts += [int(match[1])] * int(match[2] or 1)
    return counts
