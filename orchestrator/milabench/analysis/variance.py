"""Variation on two levels, within processes and between them (Kalibera and Jones 2013); docs/explanation/methodology.md, 1.0."""

from __future__ import annotations

import math

from milabench.analysis.intervals import t_quantile


def share_of_processes(within: float, between: float, iterations: float) -> float:
    """Return the intraclass correlation, 0 to 1, from standard deviations: of iterations in a process, and of processes' means.

    T2^2 / (T2^2 + S1^2) with T2^2 = S2^2 - S1^2 / r: r iterations stand for a process (the harmonic mean of their numbers).
    """
    process = max(0.0, between**2 - within**2 / iterations)
    return process / (process + within**2) if process or within else 0.0


def least_difference(log_spread: float, n: int) -> float | None:
    """Return the relative difference that n processes a side would find in 80 of 100 cases, at 5 %; None below two processes.

    (t_{.975,2n-2} + t_{.80,2n-2}) s sqrt(2/n), with s the standard deviation of the logarithms.
    """
    if n < 2:
        return None
    return (t_quantile(0.975, 2 * n - 2) + t_quantile(0.80, 2 * n - 2)) * log_spread * math.sqrt(2 / n)


def most_bounds(q: float, level: float = 0.95) -> int:
    """Return the sample size n at which the largest value bounds the q-quantile with this confidence: 1 - q^n >= level."""
    n = math.ceil(math.log(1 - level) / math.log(q))
    return n if 1 - q**n >= level else n + 1
