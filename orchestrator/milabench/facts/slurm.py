"""The nodes of a Slurm allocation, from the variables that Slurm sets in it; no command is run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatedNode:
    """A node of an allocation: its name in Slurm, the job that holds it (each component of a heterogeneous job is one)."""

    name: str
    job: str
    cpus: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """The allocation of a job; `here` is the name of the node that we run on, empty outside of its nodes."""

    job: str
    nodes: tuple[AllocatedNode, ...]
    here: str = ""


def allocation_of(environ: Mapping[str, str]) -> Allocation | None:
    """Return the allocation that these variables describe; None outside of one. Raises ConfigError for what cannot be read."""
    raise NotImplementedError


def expand_nodelist(text: str) -> tuple[str, ...]:
    """Return the names that a node list such as `n[1-3,5],gpu[01-02]-ib` stands for. Raises ValueError."""
    raise NotImplementedError
