"""Systems compared: per benchmark a ratio with its interval and a verdict, over all of them an index.

The others are compared with the first system. A ratio > 1 means better. For lower-is-better metrics it
is inverted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from milabench.analysis.comparison_model import (
    Comparison,
    ComparisonRow,
    CurveComparison,
    Index,
    Per,
    System,
    SystemResult,
)
from milabench.analysis.comparison_words import excluded_benches, sentence_on, warnings_on
from milabench.analysis.contrasts import contrast_of, with_verdicts
from milabench.analysis.job_mix import JobMix, JobTask, job_mix
from milabench.analysis.sample_statistics import geometric_mean, means_without_each
from milabench.analysis.score import Score, ScoreEntry, counted_entries, log_index_estimate, score, weights_that_turn
from milabench.analysis.sides import noise_of, sides_of
from milabench.analysis.system_diff import difference_line
from milabench.analysis.two_samples import DEFAULT_MARGIN, judge_family
from milabench.seams import made_by


def compare_systems(
    systems: Sequence[System],
    *,
    margin: float = DEFAULT_MARGIN,
    per: Per = "system",
    weights: Mapping[str, float] | None = None,
    weights_of: str = "",
    work: Mapping[str, float] | None = None,
    across: bool = False,
) -> Comparison:
    """Compare systems with the first of them. Raises ValueError below two.

    `margin` is the relative difference below which nothing is called faster or slower. `weights` replaces the suites'
    weights: benchmarks that it does not name weigh nothing, and `weights_of` is the name of the weights. Without it, suites of
    unlike weights give an index each. `work` declares the items of each benchmark in the job mix. `across` also
    compares benchmarks that do other work.
    """
    if len(systems) < 2:
        raise ValueError("a single system cannot be compared")
    names = sorted({bench.bench for system in systems for _, bench in system.benches})
    rows = with_verdicts(
        [_row(name, systems, sides_of(name, systems, per, across=across), margin, weights, per) for name in names]
    )
    indices = _indices(systems, rows, margin, None if weights is None else weights_of)
    curves: tuple[CurveComparison, ...] = ()
    if any(bench.serving is not None for _, bench in systems[0].benches):
        curves = made_by("curves: comparison", curves, systems, margin=margin, across=across)
    comparison = Comparison(
        systems=tuple(systems),
        rows=tuple(rows),
        indices=tuple(indices),
        job_mix=_job_mixes(systems, rows, indices, work),
        excluded=tuple(excluded_benches(rows, curves)),
        warnings=tuple(warnings_on(systems, rows, curves)),
        differs=difference_line(systems, names),
        margin=margin,
        per=per,
        has_work=work is not None,
        curves=curves,
    )
    return replace(comparison, sentence=sentence_on(comparison))


def _row(
    name: str,
    systems: Sequence[System],
    sides: Sequence[SystemResult],
    margin: float,
    weights: Mapping[str, float] | None,
    per: Per,
) -> ComparisonRow:
    # A benchmark that is missing on the first side has its units and its weight from the others.
    first = sides[0]
    named = next((side for side in sides if side.units), first)
    weight = next((side.weight for side in sides if side.weight is not None), None)
    return ComparisonRow(
        bench=name,
        units=named.units,
        direction=named.direction,
        weight=weight if weights is None else weights.get(name, 0.0),
        margin=max(margin, *(noise_of(system, name) for system in systems)),
        sides=tuple(sides),
        contrasts=tuple(contrast_of(first, side, per) for side in sides[1:]),
    )


def _entry(row: ComparisonRow, column: int, weight: float | None) -> ScoreEntry:
    contrast, first, own = row.contrasts[column], row.sides[0].log_mean, row.sides[column + 1].log_mean
    return ScoreEntry(
        value=None if contrast is None else contrast.ratio,
        weight=weight,
        levels=None if first is None or own is None else (first, own),
        is_suspect=contrast is not None and contrast.is_suspect,
    )


def _indices(systems: Sequence[System], rows: Sequence[ComparisonRow], margin: float, given: str | None) -> list[Index]:
    """Return the index of each system over the first. Several form a family of claims.

    Where two suites' weights differ and none are given, an index by each: neither side's are right. `given` names the weights
    that are.
    """
    indices, estimates = [], []
    for column, system in enumerate(systems[1:]):
        for weights_of, weights in _weights(systems[0].name, system.name, rows, column, given):
            entries = [_entry(row, column, weight) for row, weight in zip(rows, weights, strict=True)]
            row_of = {id(entry): row for entry, row in zip(entries, rows, strict=True)}
            counted = [(row_of[id(entry)], entry.value or 1.0, weight) for entry, weight in counted_entries(entries)[0]]
            index = _index(system.name, score(entries), counted, margin)
            indices.append(replace(index, weights_of=weights_of))
            estimates.append(log_index_estimate(counted_entries(entries)[0]))
    judgements = judge_family(estimates, [index.margin for index in indices])
    return [
        index if judgement is None else replace(index, verdict=judgement.verdict, detectable=judgement.detectable)
        for index, judgement in zip(indices, judgements, strict=True)
    ]


def _weights(
    first: str, other: str, rows: Sequence[ComparisonRow], column: int, given: str | None
) -> list[tuple[str, list[float | None]]]:
    """Return the weights of the rows, for an index. For two, by name, where the weights of the suites are not in proportion."""
    pairs = [(row.sides[0].weight, row.sides[column + 1].weight) for row in rows]
    known = [(a, b) for a, b in pairs if a is not None and b is not None]
    total_a, total_b = math.fsum(a for a, _ in known), math.fsum(b for _, b in known)
    are_alike = bool(total_a) == bool(total_b) and all(math.isclose(a * total_b, b * total_a) for a, b in known)
    if given is not None or are_alike:
        return [(given or "", [row.weight for row in rows])]

    def preferring(own: int) -> list[float | None]:
        # A benchmark that one of them lacks has the other's weight.
        sources = ((pair[own], pair[1 - own], row.weight) for row, pair in zip(rows, pairs, strict=True))
        return [next((weight for weight in weights if weight is not None), None) for weights in sources]

    return [(first, preferring(0)), (other, preferring(1))]


def _index(system: str, whole: Score, counted: Sequence[tuple[ComparisonRow, float, float]], margin: float) -> Index:
    """Return an index and how it depends on its (benchmark, ratio, weight)."""
    ratios, weights = [ratio for _, ratio, _ in counted], [weight for _, _, weight in counted]
    benches = [row.bench for row, _, _ in counted]
    without = dict(zip(benches, means_without_each(ratios, weights), strict=True)) if len(counted) > 1 else {}
    # Weights are opinions: the reader is told how far they may be changed before the ranking does.
    turn = weights_that_turn([math.log(ratio) for ratio in ratios], weights)
    if any(row.margin > margin for row, _, _ in counted):
        # By how much an index may differ where no benchmark differs by more than its own margin.
        margin = geometric_mean([1 + row.margin for row, _, _ in counted], weights) - 1
    return Index(
        system=system,
        value=whole.value,
        ci95=whole.ci95,
        complete=whole.complete,
        is_weighted=whole.is_weighted,
        without=without,
        weights_within=turn,
        holds=_holds(turn, len(counted)),
        margin=margin,
        suspects=whole.suspects,
    )


def _holds(turn: float | None, counted: int) -> str:
    if turn is None or not counted:
        return ""
    if counted == 1:
        return "only one benchmark counts: weights change nothing"
    if turn >= 1:
        return "the same order for all weights"
    least = math.floor(100 * turn)
    if turn >= 0.5:
        return f"the same order for weights changed by up to {least} %"
    return f"the order changes with weights changed by more than {least} %"


def _job_mixes(
    systems: Sequence[System], rows: Sequence[ComparisonRow], indices: Sequence[Index], work: Mapping[str, float] | None
) -> tuple[JobMix, ...]:
    """Return the needs of the same work on each system, from the benchmarks that count on every system and have work."""
    is_weighted = any(row.weight for row in rows)
    common = [row for row in rows if row.contrasts and all(contrast is not None for contrast in row.contrasts)]
    mixes = []
    index_of = {index.system: index for index in reversed(indices)}  # of two the one by the first system's weights
    for column, system in enumerate(systems):
        tasks = []
        for row in common:
            first, side = row.sides[0], row.sides[column]
            weight = (row.weight or 0.0) if is_weighted else 1.0
            amount = work.get(row.bench, 0.0) if work is not None else weight * 3600 * _rate(first)
            if amount > 0:
                tasks.append(
                    JobTask(
                        work=amount,
                        rate=_rate(side),
                        level=side.log_mean,
                        joules_per_item=side.joules_per_item if side.direction == "higher" else None,
                    )
                )
        mix = job_mix(system.name, tasks, system.costs)
        if mix is not None:
            mixes.append(mix)
    if not mixes:
        return ()
    return (mixes[0], *(_relative(mix, mixes[0], index_of[mix.system]) for mix in mixes[1:]))


def _rate(side: SystemResult) -> float:
    assert side.value is not None
    return side.value if side.direction == "higher" else 1 / side.value


def _relative(mix: JobMix, first: JobMix, index: Index) -> JobMix:
    """Add the index per watt and per money over the first system's: mean power, and money an hour, during the mix."""
    per_watt = per_money = None
    if index.value is not None and mix.energy_kwh and first.energy_kwh and mix.energy_from == first.energy_from:
        per_watt = index.value * (first.energy_kwh / first.time_h) / (mix.energy_kwh / mix.time_h)
    if index.value is not None and mix.cost and first.cost and mix.currency == first.currency:
        per_money = index.value * (first.cost / first.time_h) / (mix.cost / mix.time_h)
    return replace(mix, per_watt=per_watt, per_money=per_money)
