"""A number for a suite: the weighted geometric mean of its benchmarks' scores, and how many of them it covers.

Units of single benchmarks cancel in the ratio of two such numbers, whatever they are (Fleming & Wallace 1986).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from msgspec import Struct, field

from milabench.analysis.intervals import Interval
from milabench.analysis.json_codec import OPTIONAL
from milabench.analysis.sample_statistics import geometric_mean
from milabench.analysis.two_samples import Estimate, LogMean, weighted_variances
from milabench.events.stored_json import Number, Whole


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreEntry:
    """A benchmark's part of a score.

    `value` is None when it has no number that may count: it did not pass, or is invalid. `weight` is None when not
    known. `levels` are the logarithms of the sides that it is a ratio of. None where their variances are not known.
    """

    value: float | None
    weight: float | None
    levels: tuple[LogMean, ...] | None = None
    is_suspect: bool = False


class Score(Struct, frozen=True, kw_only=True):
    """The index of a suite. `complete` says how many of the benchmarks that should count do.

    `reference` is the name and version of the run that the rates are relative to. Without a reference there is no value except
    `is_compat`. `is_compat`: the score of milabench 1.3, see `compat_score`.
    `suspects` of the benchmarks that count are suspect. `weights_of` is the weight profile. Empty: the suite's own weights.
    """

    value: Number | None = None
    ci95: Interval | None = None
    reference: str | None = None
    complete: tuple[Whole, Whole] = (0, 0)
    is_weighted: bool = field(default=False, name="weighted")
    is_compat: bool = field(default=False, name="compat")
    suspects: Whole = 0
    weights_of: Annotated[str, OPTIONAL] = ""


def score(entries: Sequence[ScoreEntry]) -> Score:
    """Return the score of a suite's benchmarks, all of them given, also those that did not run.

    A suite whose weights are all zero is scored unweighted. A benchmark of unknown weight is counted as wanted.
    """
    counted, wanted, is_weighted = counted_entries(entries)
    estimate = log_index_estimate(counted)
    return Score(
        value=geometric_mean([e.value or 0.0 for e, _ in counted], [w for _, w in counted]) if counted else None,
        ci95=None if estimate is None else estimate.ratio_interval(),
        complete=(len(counted), wanted),
        is_weighted=is_weighted,
        suspects=sum(entry.is_suspect for entry, _ in counted),
    )


def counted_entries(entries: Sequence[ScoreEntry]) -> tuple[list[tuple[ScoreEntry, float]], int, bool]:
    """Return (the entries that count with their weights, how many should count, whether there are weights)."""
    is_weighted = any(entry.weight for entry in entries)
    wanted = [entry for entry in entries if not is_weighted or entry.weight is None or entry.weight > 0]
    counted = [
        (entry, (entry.weight or 0.0) if is_weighted else 1.0)
        for entry in wanted
        if entry.value is not None and entry.value > 0 and not (is_weighted and entry.weight is None)
    ]
    return counted, len(wanted), is_weighted


def log_index_estimate(counted: Sequence[tuple[ScoreEntry, float]]) -> Estimate | None:
    """Return the logarithm of the index with its error, after Satterthwaite (docs/explanation/methodology.md, 1.4).

    Of single sessions V = sum w^2 (s_A^2/n_A + s_B^2/n_B) / (sum w)^2. Possible costs of disturbances are deviations too. None
    unless there is a benchmark and the variances of all are known.
    """
    total = math.fsum(weight for _, weight in counted)
    levels = [entry.levels for entry, _ in counted if entry.levels is not None]
    if not levels or len(levels) < len(counted):
        return None
    shares = [weight / total for _, weight in counted]
    parts = [part for side in zip(*levels, strict=True) for part in weighted_variances(side, shares)]
    centre = math.fsum(weight * math.log(entry.value or 1.0) for entry, weight in counted) / total
    disturbed = [share * side.disturbed for share, level in zip(shares, levels, strict=True) for side in level]
    return Estimate.of_variances(centre, [*parts, *((each**2, math.inf) for each in disturbed if each)])


def weights_that_turn(logs: Sequence[float], weights: Sequence[float]) -> float | None:
    """Return the relative change, up to 1, of each weight alone that just brings the index to 1. 1: no weights above zero do.

    The worst case raises the weights of logarithms of one sign and lowers the others by the same share.
    """
    most = math.fsum(weight * abs(log) for log, weight in zip(logs, weights, strict=True))
    if not most:
        return None
    return abs(math.fsum(weight * log for log, weight in zip(logs, weights, strict=True))) / most


def compat_score(entries: Sequence[tuple[float | None, float, float]]) -> float | None:
    """Return the score of milabench 1.3 from (rate of the system, weight, share of steps that passed) of each benchmark.

    exp of the weighted mean of ln(rate x share + 1), a benchmark without a rate counting 0: it changes with the units
    of a benchmark and hides failures, and is only for looking up old figures. The rates of our own records are those
    after warm-up, items over the seconds within steps.
    """
    total = math.fsum(weight for _, weight, _ in entries)
    if not total:
        return None
    return math.exp(math.fsum(w * math.log1p(max(rate or 0.0, 0.0) * share) for rate, w, share in entries) / total)
