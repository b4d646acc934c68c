"""How numbers of benchmarks vary between launches, nodes and within a launch: measured on a run, or stated; drawn from a seed."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from milabench.analysis.intervals import LEAST_LAUNCHES
from milabench.analysis.sample_statistics import mean, stdev
from milabench.analysis.summary_model import BenchSummary
from milabench.errors import NothingSelected

Logs = list[list[float]]
"""Deviations of the logarithm of a speed, by launch and node."""


class Draw(Protocol):
    """A seeded generator of random numbers; `random.Random` is one."""

    def gauss(self, mu: float, sigma: float) -> float:
        """Return a normal number."""

    def random(self) -> float:
        """Return a number from 0 to 1, each as likely."""

    def sample(self, population: Sequence[int], k: int) -> list[int]:
        """Return k of the numbers, each at most once."""


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

    def logs(self, draw: Draw, launches: int, nodes: int, *, slowdown: float = 0.0, bad: Collection[int] = ()) -> Logs:
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


KEYS: Final = ("launches", "nodes", "within", "outliers", "failures")


def stated(noise: RunNoise, shares: Mapping[str, float]) -> RunNoise:
    """Return the noise with what is stated of it instead, relative spreads and shares by `KEYS`."""
    return replace(noise, **{name: share if name in KEYS[3:] else math.log1p(share) for name, share in shares.items()})


def measured_noise(bench: BenchSummary, source: str) -> RunNoise:
    """Return how a benchmark varied over the launches and nodes of a run, by analysis of variance.

    A node's instances are averaged. A run on one node shows nothing of `nodes` and `within`: they are 0. Raises NothingSelected
    below three complete launches.
    """
    cells: dict[int, dict[str, list[float]]] = {}
    for process in bench.processes:
        if process.throughput.value > 0:
            node = process.slot.rpartition("/")[0]
            cells.setdefault(process.repeat, {}).setdefault(node, []).append(math.log(process.throughput.value))
    nodes = {node for row in cells.values() for node in row}
    rows = [[mean(row[node]) for node in sorted(nodes)] for row in cells.values() if row.keys() == nodes]
    if len(rows) < LEAST_LAUNCHES:
        what = f"has {len(rows)} launches of {bench.bench!r}; three at least show how it varies"
        raise NothingSelected(f"{source}: {what}; name another run, or state it: --noise launches=1%")
    of_launches = [mean(row) for row in rows]
    spread = stdev(of_launches)
    if len(nodes) == 1:
        return RunNoise(launches=spread)
    of_nodes = [mean(column) for column in zip(*rows, strict=True)]
    whole = mean(of_launches)
    squares = math.fsum(
        (value - launch - node + whole) ** 2
        for row, launch in zip(rows, of_launches, strict=True)
        for value, node in zip(row, of_nodes, strict=True)
    )
    within = squares / ((len(rows) - 1) * (len(nodes) - 1))
    return RunNoise(
        launches=math.sqrt(max(0.0, spread**2 - within / len(nodes))),
        nodes=math.sqrt(max(0.0, stdev(of_nodes) ** 2 - within / len(rows))),
        within=math.sqrt(within),
    )
