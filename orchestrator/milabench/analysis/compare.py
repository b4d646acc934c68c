"""Systems compared: per benchmark a ratio with its interval and a verdict, over all of them an index.

The first system is the one that the others are compared with. A ratio > 1 means better; for lower-is-better metrics it
is inverted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from milabench.analysis import two_samples
from milabench.analysis.ab_run import launches
from milabench.analysis.case_sets import cases_of, differing
from milabench.analysis.energy_per_item import energies, joules_per_item
from milabench.analysis.intervals import Interval, log_t_interval
from milabench.analysis.job_mix import Costs, JobMix, JobTask, job_mix
from milabench.analysis.measure import Direction
from milabench.analysis.replicates import MOST, processes_for_ratio
from milabench.analysis.sample_statistics import geometric_mean, log_stdev, mean
from milabench.analysis.score import Score, ScoreEntry, counted_entries, log_index_estimate, score, weights_that_turn
from milabench.analysis.summary_model import BenchSummary, Failure, Summary, Validity

Per = Literal["system", "instance"]

_LEAST = 3  # launches a side, below which there is no interval


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """What is compared: a run under the `name` it is called by, its summary, what it costs, its manifest for what differs."""

    name: str
    summary: Summary
    costs: Costs = field(default_factory=Costs)
    manifest: Mapping[str, Any] = field(default_factory=dict)

    @property
    def benches(self) -> list[BenchSummary]:
        """Its benchmarks by name."""
        return sorted(self.summary.benchmarks, key=lambda bench: bench.bench)

    @property
    def failures(self) -> tuple[Failure, ...]:
        """The steps that should have passed."""
        return tuple(failure for bench in self.benches for failure in bench.failures)

    @property
    def skipped(self) -> tuple[tuple[str, str], ...]:
        """The benchmarks or steps that were left out on purpose, each with why."""
        return tuple((skip.step or bench.bench, skip.detail) for bench in self.benches for skip in bench.skipped)

    @property
    def suspects(self) -> tuple[tuple[str, Validity | None, tuple[str, ...]], ...]:
        """The numbers that are shown with a mark: benchmark, validity, reasons."""
        return tuple((b.bench, b.validity, b.reasons) for b in self.benches if b.validity in ("suspect", "invalid"))


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemResult:
    """What one system reached in one benchmark.

    `values` has one number for each launch: the geometric mean of its instances, times the instances where whole systems
    are compared, in `units`. `value` is their geometric mean with its `ci95` (None below three launches), `spread` the
    standard deviation of their logarithms. `devices` is how many devices (of a processor: instances) and `nodes` how many
    machines one launch holds; `by_device` has what each accelerator reached, where instances run on one each.
    `joules_per_item` is what an item of work took by board sensors. `counts` says whether the
    number may stand in an index: it passed as planned and is not invalid; `why_not` says in words why it does not.
    """

    system: str
    outcome: str
    units: str = ""
    direction: Direction = "higher"
    value: float | None = None
    ci95: Interval | None = None
    values: tuple[float, ...] = ()
    spread: float | None = None
    spread_within: float | None = None
    spread_devices: float | None = None
    instances: int = 0
    devices: int = 0
    nodes: int = 0
    by_device: tuple[float, ...] = ()
    joules_per_item: float | None = None
    validity: Validity | None = None
    reasons: tuple[str, ...] = ()
    memory_peak_mib: float | None = None
    energy_j: float | None = None
    first_step_s: float | None = None
    counts: bool = False
    why_not: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """One system over the first one in one benchmark; above 1 it is better.

    `ci95` and `ci90` are of the ratio, after Welch on logarithms with `freedom` after Satterthwaite; None below three launches
    on a side. `p` is that of the difference being within the margin, `p_holm` corrected for all contrasts of the comparison,
    `p_bh` for screening; `p_equal_holm`, corrected too, that of its being beyond the margin. `needed` is about how many
    launches on each side would decide, when the verdict is INCONCLUSIVE and that can be said; else `note` says why not.
    `efficiency` is the scaling efficiency where the sides differ in devices: the ratio of whole systems over that of devices.
    `ci95_devices` is what the interval would be for other devices of these kinds: devices are the sample, and not launches on
    these (None below three on a side).
    `cross_check` is the interval of the ratio of means after Fieller, `shift` the Hodges-Lehmann ratio, `rank_p` the exact
    Mann-Whitney p-value, `least_rank_p` the lowest that it can be at this size. `is_suspect`: one of the numbers is.
    """

    system: str
    ratio: float
    ci95: Interval | None = None
    ci90: Interval | None = None
    freedom: float | None = None
    p: float | None = None
    p_holm: float | None = None
    p_bh: float | None = None
    p_equal_holm: float | None = None
    verdict: two_samples.Verdict = "INCONCLUSIVE"
    needed: int | None = None
    efficiency: float | None = None
    ci95_devices: Interval | None = None
    cross_check: Interval | None = None
    shift: float | None = None
    rank_p: float | None = None
    least_rank_p: float | None = None
    is_suspect: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRow:
    """One benchmark: `sides` in the order of the systems, `contrasts` for all but the first (None where there is no ratio).

    `weight` is that of the first system's suite, or of the weight profile. `margin` is the relative difference below which
    nothing is called faster or slower here: the comparison's, or the noise of an A/A run if that is more.
    """

    bench: str
    units: str
    direction: Direction
    weight: float | None
    margin: float
    sides: tuple[SystemResult, ...]
    contrasts: tuple[Contrast | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """The weighted geometric mean of the ratios of one system over the first one, and how far it can be trusted.

    `complete` (k, K): k of the K benchmarks that should count do, the same for both. `ci95` is conditional on this suite.
    `without` is the index when each benchmark in turn is left out. `weights_within` is the largest relative change of all
    weights, each for itself, under which the system stays on its side of 1: 0.5 is "for all weights within 50 %"; 1 is
    "whatever the weights". `holds` says in words how the ranking depends on weights. `margin` is the relative difference below
    which it is not called faster or slower: the weighted mean of its benchmarks' margins. `suspects` of its numbers are suspect.
    """

    system: str
    value: float | None
    ci95: Interval | None
    complete: tuple[int, int]
    is_weighted: bool
    verdict: two_samples.Verdict = "INCONCLUSIVE"
    without: Mapping[str, float] = field(default_factory=dict)
    weights_within: float | None = None
    holds: str = ""
    margin: float = two_samples.MARGIN
    suspects: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Everything that a comparison says; reports only write it down.

    `excluded` are benchmarks that are in no index: name and why. `warnings` are what a reader must know before the first
    number (different suites, versions or profiles; a run still going). `has_work`: the work of the job mix was declared, not
    what the first system does in an hour for each unit of weight. `sentence` is the summary in one sentence that may be quoted.
    """

    systems: tuple[System, ...]
    rows: tuple[ComparisonRow, ...]
    indices: tuple[Index, ...]
    job_mix: tuple[JobMix, ...] = ()
    excluded: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()
    margin: float = 0.01
    per: Per = "system"
    has_work: bool = False
    sentence: str = ""


def compare_systems(
    systems: Sequence[System],
    *,
    margin: float = two_samples.MARGIN,
    per: Per = "system",
    weights: Mapping[str, float] | None = None,
    work: Mapping[str, float] | None = None,
) -> Comparison:
    """Compare systems with the first of them; ValueError below two.

    `margin` is the relative difference below which nothing is called faster or slower. `weights` replaces the suite's: what it
    does not name weighs nothing. `work` declares the items of each benchmark in the job mix.
    """
    if len(systems) < 2:
        raise ValueError("one system cannot be compared")
    benches = {system.name: {bench.bench: bench for bench in system.summary.benchmarks} for system in systems}
    rows = _with_verdicts(
        [
            _row(name, systems, [benches[system.name].get(name) for system in systems], margin, per, weights)
            for name in sorted({name for by_name in benches.values() for name in by_name})
        ]
    )
    indices = _indices(systems, rows, margin)
    comparison = Comparison(
        systems=tuple(systems),
        rows=tuple(rows),
        indices=tuple(indices),
        job_mix=_job_mixes(systems, rows, indices, work),
        excluded=tuple(_excluded(rows)),
        warnings=tuple(_warnings(systems, rows)),
        margin=margin,
        per=per,
        has_work=work is not None,
    )
    return replace(comparison, sentence=_sentence(comparison))


def _weight(name: str, benches: Iterable[BenchSummary | None], weights: Mapping[str, float] | None) -> float | None:
    if weights is not None:
        return weights.get(name, 0.0)
    return next((bench.weight for bench in benches if bench is not None and bench.weight is not None), None)


def _noise(summary: Summary, name: str) -> float:
    """Return the smallest relative difference above the noise that an A/A run showed; 0 for any other run."""
    pairs = summary.ab.pairs if summary.ab is not None else ()
    return max((pair.noise or 0.0 for pair in pairs if name in (pair.bench, pair.a, pair.b)), default=0.0)


def _side(system: str, bench: BenchSummary | None, per: Per) -> SystemResult:
    if bench is None:
        return SystemResult(system=system, outcome="absent", why_not="is not in this run")
    # `launches` says what the instances of a launch reached together; one of n is 1/n of it, or takes n times as long.
    n = 1 if per == "system" else bench.instances
    times = 1 / max(1, n) if bench.direction == "higher" else n
    values = () if bench.perf is None else tuple(value * times for value in launches(bench).values())
    why_not = _why_not(bench)
    return SystemResult(
        system=system,
        outcome=bench.outcome,
        units=bench.units,
        direction=bench.direction,
        value=geometric_mean(values) if values else None,
        ci95=log_t_interval(values),
        values=values,
        spread=log_stdev(values),
        spread_within=bench.spread_within,
        spread_devices=bench.spread_devices,
        instances=bench.instances,
        devices=bench.ngpu or bench.instances,
        nodes=bench.nodes,
        by_device=_by_device(bench),
        joules_per_item=_joules(bench),
        validity=bench.validity,
        reasons=bench.reasons,
        memory_peak_mib=bench.memory_peak_mib,
        energy_j=bench.energy_j,
        first_step_s=bench.first_step_s,
        counts=not why_not,
        why_not=why_not,
    )


def _by_device(bench: BenchSummary) -> tuple[float, ...]:
    """Return what each accelerator reached; nothing where a job spans several, or slots share a processor."""
    by_slot: dict[str, list[float]] = {}
    for process in bench.processes:
        if process.slot.partition("/")[2].startswith("D"):
            by_slot.setdefault(process.slot, []).append(process.throughput.value)
    is_one_each = bench.perf is not None and 0 < bench.ngpu == len(by_slot)
    return tuple(geometric_mean(values) for values in by_slot.values()) if is_one_each else ()


def _of_the_same_cases(sides: Sequence[SystemResult], benches: Sequence[BenchSummary | None]) -> list[SystemResult]:
    """Return the sides; what is a mean over other cases than the first side's does not count."""
    cases = [frozenset() if bench is None else cases_of(bench.metrics) for bench in benches]
    differences = [
        differing(cases[0], own) if sides[0].counts and side.counts else ""
        for side, own in zip(sides, cases, strict=True)
    ]
    return [
        replace(side, counts=False, why_not=f"is of other cases than {sides[0].system}: {why}") if why else side
        for side, why in zip(sides, differences, strict=True)
    ]


def _why_not(bench: BenchSummary) -> str:
    if bench.outcome != "passed":
        first = next(
            (f"{failure.why}: {failure.detail}" if failure.detail else failure.why for failure in bench.failures), ""
        )
        first = first or next((skip.detail for skip in bench.skipped), "")
        return f"{bench.outcome}: {first}" if first and first != bench.outcome else bench.outcome
    if bench.perf is None:
        return (
            "has no single number: its units differ"
            if bench.validity == "invalid"
            else "was not measured: no observation"
        )
    if bench.validity == "invalid":
        return f"invalid: {', '.join(bench.reasons)}"
    return "neither more nor less of it is better" if bench.direction == "none" else ""


def _joules(bench: BenchSummary) -> float | None:
    step_energies = energies(bench)
    joules = [joules_per_item(process, step_energies) for process in bench.processes]
    known = [value for value in joules if value is not None]
    return mean(known) if known and len(known) == len(joules) else None


def _row(
    name: str,
    systems: Sequence[System],
    benches: Sequence[BenchSummary | None],
    margin: float,
    per: Per,
    weights: Mapping[str, float] | None,
) -> ComparisonRow:
    sides = _of_the_same_cases(
        [_side(system.name, bench, per) for system, bench in zip(systems, benches, strict=True)], benches
    )
    # A benchmark that is missing on the first side has its units from the others.
    first = sides[0]
    named = next((side for side in sides if side.units), first)
    return ComparisonRow(
        bench=name,
        units=named.units,
        direction=named.direction,
        weight=_weight(name, benches, weights),
        margin=max(margin, *(_noise(system.summary, name) for system in systems)),
        sides=tuple(sides),
        contrasts=tuple(_contrast(first, side) for side in sides[1:]),
    )


def _contrast(first: SystemResult, other: SystemResult) -> Contrast | None:
    """Return the ratio of two sides with its intervals; the verdict is given when all contrasts are known."""
    if not (first.counts and other.counts) or first.units != other.units or first.direction != other.direction:
        return None
    assert first.value is not None and other.value is not None
    ratio = math.exp(*_logs([other.value / first.value], first.direction))
    has_other_devices = first.devices and other.devices and first.devices != other.devices
    contrast = Contrast(
        system=other.system,
        ratio=ratio,
        is_suspect="suspect" in (first.validity, other.validity),
        efficiency=ratio * first.devices / other.devices if has_other_devices else None,
    )
    fewest = min(len(first.values), len(other.values))
    if fewest < _LEAST:
        note = f"{fewest} on a side; there is no interval below {_LEAST} launches on each"
        return replace(contrast, note=note, needed=_LEAST)
    a, b = _logs(first.values, first.direction), _logs(other.values, first.direction)
    # Welch, never Student: with three to five launches nobody can tell that two spreads are equal.
    estimate, is_constant = two_samples.welch(a, b), len({*a}) == len({*b}) == 1
    return replace(
        contrast,
        ci95=estimate.ratio_interval(0.95),
        ci90=estimate.ratio_interval(0.90),
        ci95_devices=_for_other_devices(first, other, estimate.d),
        freedom=estimate.freedom,
        # On the numbers themselves: a method that shares no assumption with the logarithms and should agree.
        cross_check=two_samples.fieller([math.exp(value) for value in a], [math.exp(value) for value in b]),
        shift=math.exp(two_samples.hodges_lehmann(a, b)),
        rank_p=two_samples.mann_whitney_p(a, b),
        least_rank_p=two_samples.least_p(len(a), len(b)),
        note="every launch gave the same number: its digits are too few to see a spread" if is_constant else "",
    )


def _for_other_devices(first: SystemResult, other: SystemResult, d: float) -> Interval | None:
    """Return the interval when the devices are a sample of their kind: as wide as Welch's on the devices' means."""
    if min(len(first.by_device), len(other.by_device)) < _LEAST:
        return None
    estimate = two_samples.welch(_logs(first.by_device, first.direction), _logs(other.by_device, first.direction))
    low, high = estimate.interval()
    return math.exp(d + low - estimate.d), math.exp(d + high - estimate.d)


def _logs(values: Iterable[float], direction: Direction) -> list[float]:
    """Return the logarithms, above which more is better."""
    sign = -1.0 if direction == "lower" else 1.0
    return [sign * math.log(value) for value in values]


def _with_verdicts(rows: Sequence[ComparisonRow]) -> list[ComparisonRow]:
    """Return the rows with verdicts, all contrasts of all systems being one family."""
    estimates = [
        None
        if contrast is None or contrast.ci95 is None
        else two_samples.welch(_logs(row.sides[0].values, row.direction), _logs(side.values, row.direction))
        for row in rows
        for contrast, side in zip(row.contrasts, row.sides[1:], strict=True)
    ]
    family = sum(estimate is not None for estimate in estimates)
    judgements = iter(two_samples.judge_family(estimates, [row.margin for row in rows for _ in row.contrasts]))
    return [
        replace(
            row,
            contrasts=tuple(
                _judged(contrast, next(judgements), row, column, family)
                for column, contrast in enumerate(row.contrasts)
            ),
        )
        for row in rows
    ]


def _judged(
    contrast: Contrast | None, judgement: two_samples.Judgement | None, row: ComparisonRow, column: int, family: int
) -> Contrast | None:
    if contrast is None or judgement is None:
        return contrast
    contrast = replace(contrast, **asdict(judgement))
    if judgement.verdict == "INCONCLUSIVE":
        return _undecided(contrast, row, column, family)
    interval = contrast.ci95_devices
    if judgement.verdict in ("FASTER", "SLOWER") and interval is not None and interval[0] <= 1 <= interval[1]:
        # The devices that happened to be measured may be what makes the difference.
        bounds = f"[{interval[0]:.4f}, {interval[1]:.4f}]"
        note = f"true of these devices; for others of their kinds the 95 % interval is {bounds}"
        return replace(contrast, note=note)
    return contrast


def _undecided(contrast: Contrast, row: ComparisonRow, column: int, family: int) -> Contrast:
    """Add the number of launches a side that would decide, if difference and spread stayed as they are.

    For the family's strictest test; half of such repetitions would still fall short, so it is an estimate.
    """
    first, other = row.sides[0], row.sides[column + 1]
    spread = math.sqrt(((first.spread or 0.0) ** 2 + (other.spread or 0.0) ** 2) / 2)
    gap = abs(math.log(contrast.ratio)) - math.log1p(row.margin)
    # Two-sided at 5 % for a difference; two one-sided tests at 5 % for equivalence are an interval of 90 %.
    level = 1 - (0.05 if gap > 0 else 0.10) / family
    needed = processes_for_ratio(spread, math.expm1(abs(gap)), level=level) if gap and spread else MOST
    needed = max(needed, min(len(first.values), len(other.values)) + 1)
    if needed >= MOST:
        return replace(contrast, note="the difference is so near to the margin that no number of launches would decide")
    return replace(contrast, needed=needed)


def _entry(row: ComparisonRow, column: int) -> ScoreEntry:
    contrast, first, other = row.contrasts[column], row.sides[0], row.sides[column + 1]
    return ScoreEntry(
        value=None if contrast is None else contrast.ratio,
        weight=row.weight,
        log_spread=other.spread,
        n=len(other.values),
        under_spread=first.spread,
        under_n=len(first.values),
        is_suspect=contrast is not None and contrast.is_suspect,
    )


def _indices(systems: Sequence[System], rows: Sequence[ComparisonRow], margin: float) -> list[Index]:
    """Return the index of each system over the first one; several are one family of claims."""
    indices, estimates = [], []
    for column, system in enumerate(systems[1:]):
        entries = [_entry(row, column) for row in rows]
        row_of = {id(entry): row for entry, row in zip(entries, rows, strict=True)}
        counted = [(row_of[id(entry)], entry.value or 1.0, weight) for entry, weight in counted_entries(entries)[0]]
        indices.append(_index(system.name, score(entries), counted, margin))
        estimates.append(log_index_estimate(counted_entries(entries)[0]))
    judgements = two_samples.judge_family(estimates, [index.margin for index in indices])
    return [
        index if judgement is None else replace(index, verdict=judgement.verdict)
        for index, judgement in zip(indices, judgements, strict=True)
    ]


def _index(system: str, whole: Score, counted: Sequence[tuple[ComparisonRow, float, float]], margin: float) -> Index:
    """Return an index and how it depends on its (benchmark, ratio, weight)."""
    without = {}
    for left_out, _, _ in counted:
        rest = [(ratio, weight) for row, ratio, weight in counted if row is not left_out]
        if rest:
            without[left_out.bench] = geometric_mean([ratio for ratio, _ in rest], [weight for _, weight in rest])
    weights = [weight for _, _, weight in counted]
    # Weights are opinions: the reader is told how far they may be changed before the ranking does.
    turn = weights_that_turn([math.log(ratio) for _, ratio, _ in counted], weights)
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
        return "the ranking holds whatever the weights"
    least = math.floor(100 * turn)
    if turn >= 0.5:
        return f"the ranking holds for all weights within {least} %"
    return f"the ranking turns when weights change by more than {least} %"


def _job_mixes(
    systems: Sequence[System], rows: Sequence[ComparisonRow], indices: Sequence[Index], work: Mapping[str, float] | None
) -> tuple[JobMix, ...]:
    """Return what the same work takes everywhere: of the benchmarks that count on every system and have work."""
    is_weighted = any(row.weight for row in rows)
    common = [row for row in rows if row.contrasts and all(contrast is not None for contrast in row.contrasts)]
    mixes = []
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
                        log_spread=side.spread,
                        n=len(side.values),
                        joules_per_item=side.joules_per_item if side.direction == "higher" else None,
                    )
                )
        mix = job_mix(system.name, tasks, system.costs)
        if mix is not None:
            mixes.append(mix)
    if not mixes:
        return ()
    return (mixes[0], *(_relative(mix, mixes[0], index) for mix, index in zip(mixes[1:], indices, strict=True)))


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


def _excluded(rows: Iterable[ComparisonRow]) -> Iterable[tuple[str, str]]:
    for row in rows:
        reasons = [f"{side.system} {side.why_not}" for side in row.sides if side.why_not]
        counting_sides = [side for side in row.sides if side.counts]
        if len({(side.units, side.direction) for side in counting_sides}) > 1:
            reasons.append("its units differ: " + ", ".join(f"{side.system} {side.units}" for side in counting_sides))
        if reasons:
            yield row.bench, "; ".join(reasons)


def _warnings(systems: Sequence[System], rows: Sequence[ComparisonRow]) -> Iterable[str]:
    for system in systems:
        yield from _system_warnings(system, [side for row in rows for side in row.sides if side.system == system.name])
    for what, values in (
        ("profiles", [system.summary.profile for system in systems]),
        ("versions of milabench", [system.summary.version for system in systems]),
    ):
        if len(set(values)) > 1:
            yield f"{what} differ: " + ", ".join(
                f"{system.name} {value or 'not recorded'}" for system, value in zip(systems, values, strict=True)
            )
    lacking = [row.bench for row in rows if any(side.outcome == "absent" for side in row.sides)]
    if lacking:
        yield f"the suites differ: {len(lacking)} of {len(rows)} benchmarks are not in every run"


def _system_warnings(system: System, sides: Iterable[SystemResult]) -> Iterable[str]:
    summary = system.summary
    if not summary.is_ended:
        yield f"{system.name}: the run is incomplete or still active: its numbers are preliminary"
    if not summary.benchmarks:
        yield f"{system.name}: has no benchmark at all"
    if summary.profile == "quick":
        yield f"{system.name}: measured with the quick profile: every number is an indication only"
    counting = [side for side in sides if side.counts]
    if counting and max(len(side.values) for side in counting) < _LEAST:
        yield f"{system.name}: fewer than {_LEAST} launches of every benchmark: nothing is known about its spread"
    devices = max((side.devices for side in counting), default=0)
    if devices in (1, 2):
        known = "one device: nothing" if devices == 1 else "two devices: hardly anything"
        yield f"{system.name}: {known} is known about how such devices differ from each other"


def _sentence(comparison: Comparison) -> str:
    """Return the sentence to quote: with the interval, what was not decided, and what is missing."""
    first = comparison.systems[0].name
    return "; ".join(_claim(index, first, comparison, column) for column, index in enumerate(comparison.indices)) + "."


def _claim(index: Index, first: str, comparison: Comparison, column: int) -> str:
    counted, wanted = index.complete
    if index.value is None:
        return (
            f"{index.system} and {first} have no benchmark in common that counts, so nothing can be said of their speed"
        )
    over = (
        f"over {counted} of {wanted} benchmarks"
        if counted < wanted
        else f"over {counted} benchmark{'s' * (counted != 1)}"
    )
    mark = (
        ", some numbers suspect"
        if any((c := row.contrasts[column]) and c.is_suspect for row in comparison.rows)
        else ""
    )
    if index.ci95 is None:
        return (
            f"{index.system} was {index.value:.3g} times as fast as {first} {over}, but with fewer than {_LEAST} launches of a"
            f" benchmark on a side nobody knows how far that can be trusted{mark}"
        )
    low, high = index.ci95
    interval, within = f"95 % interval {low:.3f} to {high:.3f}", f"{100 * index.margin:.3g}%"
    claim = {
        "FASTER": f"{index.system} is {index.value:.3f} times as fast as {first}",
        "SLOWER": f"{index.system} is slower than {first}, at {index.value:.3f} of its speed",
        "EQUIVALENT": f"{index.system} and {first} are equally fast within {within}, ratio {index.value:.3f}",
        "DIFFERENT-BUT-SMALL": f"{index.system} and {first} differ by less than {within}, ratio {index.value:.3f}",
        "INCONCLUSIVE": f"it is not decided whether {index.system} is faster than {first}, ratio {index.value:.3f}",
    }[index.verdict]
    counts = [row.contrasts[column] for row in comparison.rows]
    verdicts = [contrast.verdict for contrast in counts if contrast is not None]
    tally = ", ".join(
        f"{verdicts.count(verdict)} {word}"
        for verdict, word in (
            ("FASTER", "faster"),
            ("SLOWER", "slower"),
            ("EQUIVALENT", "equivalent"),
            ("DIFFERENT-BUT-SMALL", "different but by little"),
            ("INCONCLUSIVE", "not decided"),
        )
        if verdict in verdicts
    )
    failed = [
        row.bench for row in comparison.rows if row.sides[column + 1].outcome in ("failed", "cancelled", "missing")
    ]
    broken = f"; {', '.join(failed)} failed on {index.system}" if failed else ""
    return f"{claim} {over} ({interval}; {tally}{mark}{broken})"
