"""How numbers of benchmarks vary between launches, nodes and within a launch, drawn from a seed."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from random import Random

Logs = list[list[float]]
"""Deviations of the logarithm of a speed, by launch and node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunNoise:
    """How one benchmark varies: standard deviations of logarithms, and shares, all of one number of one node in one launch.

    `launches` is what all nodes of a launch share, `nodes` what a node keeps from launch to launch, `within` the rest. `outliers`
    is the share of numbers that are slow as a bad node is, `failures` that of steps that fail.
    """

    launches: float = 0.0
    nodes: float = 0.0
    within: float = 0.0
    outliers: float = 0.0
    failures: float = 0.0

    def logs(
        self, draw: Random, launches: int, nodes: int, *, slowdown: float = 0.0, bad: Collection[int] = ()
    ) -> Logs:
        """Return what so many launches on so many nodes deviate by; `bad` nodes, and outliers, are slower by `slowdown`."""
        slow = math.log1p(-slowdown)
        own = [draw.gauss(0, self.nodes) + (slow if node in bad else 0.0) for node in range(nodes)]
        rows = []
        for _ in range(launches):
            shared = draw.gauss(0, self.launches)
            row = [shared + node + draw.gauss(0, self.within) for node in own]
            if self.outliers:
                row = [value + slow if draw.random() < self.outliers else value for value in row]
            rows.append(row)
        return rows
