"""Variation on two levels, within processes and between them (Kalibera and Jones 2013); docs/methodology.md, 1.0."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from milabench.analysis.intervals import Interval, t_quantile
from milabench.analysis.spread import mean, stdev


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """`within` is the mean square of iterations, `between` the variance of process means, `process` what processes add.

    `process` (T2^2) may be negative: then processes add nothing that can be seen. `icc` is its share of the whole, 0 to 1.
    `ci95` is of the mean, by the means of processes.
    """

    mean: float
    within: float
    between: float
    process: float
    icc: float
    ci95: Interval


def levels(table: Sequence[Sequence[float]]) -> Levels:
    """The levels of a table with one row of iterations, all equally many, for each process. ValueError for other shapes."""
    rows, columns = len(table), len(table[0]) if table else 0
    if rows < 2 or columns < 2 or any(len(row) != columns for row in table):
        raise ValueError("two processes or more, with equally many iterations, two or more each")
    means = [mean(row) for row in table]
    within = mean([stdev(row) ** 2 for row in table])
    between = stdev(means) ** 2
    process = between - within / columns
    centre = mean(means)
    half = t_quantile(0.975, rows - 1) * math.sqrt(between / rows)
    visible = max(process, 0.0)
    icc = visible / (visible + within) if visible + within else 0.0
    return Levels(
        mean=centre, within=within, between=between, process=process, icc=icc, ci95=(centre - half, centre + half)
    )


def iterations_per_process(found: Levels, *, process_cost: float, iteration_cost: float) -> int | None:
    """How many iterations a process is worth: ceil sqrt((c2/c1) (S1^2/T2^2)); None when processes add no variation."""
    if found.process <= 0:
        return None
    return max(1, math.ceil(math.sqrt(process_cost / iteration_cost * found.within / found.process)))


def share_of_processes(within: float, between: float, iterations: float) -> float:
    """The intraclass correlation, 0 to 1, from standard deviations: of iterations in a process, and of processes' means.

    T2^2 / (T2^2 + S1^2) with T2^2 = S2^2 - S1^2 / r: r iterations stand for a process (the harmonic mean of their numbers).
    """
    process = max(0.0, between**2 - within**2 / iterations)
    return process / (process + within**2) if process or within else 0.0


def least_difference(log_spread: float, n: int) -> float | None:
    """The relative difference that n processes a side would find in 80 of 100 cases, at 5 %; None below two processes.

    (t_{.975,2n-2} + t_{.80,2n-2}) s sqrt(2/n), with s the standard deviation of the logarithms.
    """
    if n < 2:
        return None
    return (t_quantile(0.975, 2 * n - 2) + t_quantile(0.80, 2 * n - 2)) * log_spread * math.sqrt(2 / n)


def most_bounds(q: float, level: float = 0.95) -> int:
    """How many values it takes until their largest one bounds the q-quantile with this confidence: 1 - q^n >= level."""
    n = math.ceil(math.log(1 - level) / math.log(q))
    return n if 1 - q**n >= level else n + 1
