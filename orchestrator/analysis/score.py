"""One number for a suite: the weighted geometric mean of what its benchmarks reached, and how much of it is covered.

Units of single benchmarks cancel in the ratio of two such numbers, whatever they are (Fleming & Wallace 1986).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.analysis.intervals import Interval, t_quantile
from orchestrator.analysis.spread import geometric_mean


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What one benchmark brings to a score.

    `value` is None when it has no number that may count: it did not pass, or is invalid. `weight` is None when not
    known. `log_spread` is the standard deviation of the logarithms of its `n` independent values.
    """

    value: float | None
    weight: float | None
    log_spread: float | None = None
    n: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """The index of a suite; `complete` says how many of the benchmarks that should count do.

    `reference` is None: the index of raw rates, comparable only with one of the same suite and the same `complete` set.
    """

    value: float | None
    ci95: Interval | None
    complete: tuple[int, int]
    is_weighted: bool
    reference: str | None = None


def score(entries: Sequence[Entry]) -> Score:
    """The score of a suite's benchmarks, all of them given, also those that did not run.

    A suite whose weights are all zero is scored unweighted. A benchmark of unknown weight is counted as wanted.
    """
    is_weighted = any(entry.weight for entry in entries)
    wanted = [entry for entry in entries if not is_weighted or entry.weight is None or entry.weight > 0]
    counted = [
        (entry, (entry.weight or 0.0) if is_weighted else 1.0)
        for entry in wanted
        if entry.value is not None and entry.value > 0 and not (is_weighted and entry.weight is None)
    ]
    value = geometric_mean([e.value or 0.0 for e, _ in counted], [w for _, w in counted]) if counted else None
    return Score(
        value=value,
        ci95=None if value is None else _interval(math.log(value), counted),
        complete=(len(counted), len(wanted)),
        is_weighted=is_weighted,
    )


def _interval(centre: float, counted: Sequence[tuple[Entry, float]]) -> Interval | None:
    """L +- t sqrt(V), V = sum w^2 s^2/n / (sum w)^2, degrees of freedom after Satterthwaite (docs/methodology.md, 1.4).

    None unless every benchmark has at least three values.
    """
    total = math.fsum(weight for _, weight in counted)
    parts: list[tuple[float, int]] = []
    for entry, weight in counted:
        if entry.log_spread is None or entry.n < 3:
            return None
        parts.append(((weight / total) ** 2 * entry.log_spread**2 / entry.n, entry.n - 1))
    variance = math.fsum(part for part, _ in parts)
    if variance == 0:
        return math.exp(centre), math.exp(centre)
    freedom = variance**2 / math.fsum(part**2 / degrees for part, degrees in parts)
    half = t_quantile(0.975, freedom) * math.sqrt(variance)
    return math.exp(centre - half), math.exp(centre + half)
