"""The nodes that a batch scheduler has given to a job, and lists of nodes as Slurm writes them."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import dataclass

MAX_NAMES = 100_000
"""Maximum number of nodes in a list: more than any cluster has, few enough for memory."""

# What stands between commas and spaces that are in no brackets.
_ENTRY = re.compile(r"(?:\[[^\]]*\]|[^\s,])+")
_PART = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"([0-9]+)(?:-([0-9]+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatedNode:
    """A node of an allocation: its name in Slurm, the job that holds it: of a heterogeneous job its component, `12+1`."""

    name: str
    job: str
    cpus: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """The allocation of a job. `here` is the name of the node that we run on, empty outside of its nodes."""

    job: str
    nodes: tuple[AllocatedNode, ...]
    here: str = ""


def expand_nodelist(text: str) -> tuple[str, ...]:
    """Return the names in a node list such as `n[1-3,5],gpu[01-02]-ib`. Raises ValueError."""
    names: list[str] = []
    for pattern in _ENTRY.findall(text):
        parts = _PART.split(pattern)  # text, range, text, range, ..., text
        if any("[" in part or "]" in part for part in parts[::2]):
            raise ValueError(f"'{pattern}' has a bracket too many or too few")
        choices = [[part] if index % 2 == 0 else _numbers(part) for index, part in enumerate(parts)]
        if len(names) + math.prod(map(len, choices)) > MAX_NAMES:
            raise ValueError(f"'{pattern}' expands to more than {MAX_NAMES} nodes")
        names += map("".join, itertools.product(*choices))
    return tuple(names)


def _numbers(text: str) -> list[str]:
    """Return the numbers of `1-3,05`, each as wide as the first of its range."""
    numbers: list[str] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part.replace(" ", ""))
        if match is None:
            raise ValueError(f"'{part}' is not a number or a range of numbers")
        first, last = match[1], match[2] or match[1]
        if max(len(first), len(last)) > 18:
            raise ValueError(f"'{part}' has numbers that no node has")
        if int(last) < int(first):
            raise ValueError(f"the range '{part}' ends before it begins")
        if len(numbers) + int(last) - int(first) >= MAX_NAMES:
            raise ValueError(f"'{part}' expands to more than {MAX_NAMES} nodes")
        numbers += [f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1)]
    return numbers
