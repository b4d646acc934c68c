"""The content of a comparison: the systems with their sessions, per benchmark the sides and their contrasts, the indices."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Annotated, Any, Literal

from milabench.analysis.intervals import LEAST_LAUNCHES, Interval
from milabench.analysis.job_mix import Costs, JobMix
from milabench.analysis.json_codec import NOT_WRITTEN, JsonKey
from milabench.analysis.sample_statistics import geometric_mean
from milabench.analysis.serving_model import ServingCurve
from milabench.analysis.summary_model import BenchSummary, Failure, Summary, Validity
from milabench.analysis.throughput import Direction
from milabench.analysis.two_samples import (
    DEFAULT_MARGIN,
    Estimate,
    Judgement,
    LogMean,
    Verdict,
    log_mean_of,
)
from milabench.analysis.uncertainty import CONFIDENCE, NO_ALLOWANCE, Allowance, least_error, widening
from milabench.events.values import as_mapping, mappings_in
from milabench.shown import grouped

Per = Literal["system", "instance"]


def logs(values: Iterable[float], direction: Direction) -> list[float]:
    """Return the logarithms, above which more is better."""
    sign = -1.0 if direction == "lower" else 1.0
    return [sign * math.log(value) for value in values]


@dataclass(frozen=True, kw_only=True)
class System:
    """A compared system: a run under its `name`, its summary, its costs, and its manifest for differences.

    `later` are further runs of the same system, each a session of its own. `is_checkable` is False for a report that an earlier
    version wrote, which does not record the work of its benchmarks.
    """

    name: str
    summary: Summary
    costs: Costs = field(default_factory=Costs)
    manifest: Mapping[str, Any] = field(default_factory=dict)
    later: tuple[System, ...] = ()
    is_checkable: bool = True

    @cached_property
    def sessions(self) -> tuple[System, ...]:
        """Its runs, including the first."""
        return (replace(self, later=()), *self.later) if self.later else (self,)

    @cached_property
    def by_name(self) -> Mapping[str, BenchSummary]:
        """The benchmarks of its first run. Of two of the same name the first."""
        return {bench.bench: bench for bench in reversed(self.summary.benchmarks)}

    @property
    def benches(self) -> list[tuple[str, BenchSummary]]:
        """The benchmarks of all sessions by name, each with the name of its session (empty for a single session)."""
        return [
            (f"{session.summary.run} " if self.later else "", bench)
            for session in self.sessions
            for bench in sorted(session.summary.benchmarks, key=lambda bench: bench.bench)
        ]

    @cached_property
    def steps(self) -> Mapping[str, list[Mapping[str, Any]]]:
        """The planned steps of each benchmark, as the manifest has them."""
        steps = mappings_in(as_mapping(self.manifest.get("plan")).get("steps"))
        return grouped((str(step.get("bench")), step) for step in steps)

    @property
    def counts(self) -> dict[str, int]:
        """How many of the planned steps ended how, in all sessions."""
        total = Counter[str]()
        for session in self.sessions:
            total.update(session.summary.counts)
        return dict(total)

    @property
    def failures(self) -> tuple[Failure, ...]:
        """The steps that should have passed."""
        return tuple(
            replace(failure, step=run + failure.step) for run, bench in self.benches for failure in bench.failures
        )

    @property
    def skipped(self) -> tuple[tuple[str, str], ...]:
        """The benchmarks or steps that were left out on purpose, each with why."""
        return tuple(
            (run + (skip.step or bench.bench), skip.detail) for run, bench in self.benches for skip in bench.skipped
        )

    @property
    def suspects(self) -> tuple[tuple[str, Validity | None, tuple[str, ...]], ...]:
        """The numbers that are shown with a mark: benchmark, validity, reasons."""
        return tuple(
            (run + b.bench, b.validity, b.doubts) for run, b in self.benches if b.validity in ("suspect", "invalid")
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemResult:
    """The result of a system in a benchmark.

    `values` has a number for each repeat: the geometric mean of its instances, times the instances where whole systems
    are compared, in `units`. `sessions` how many of these, in order, are of each run. `value` is the geometric mean of the
    sessions' geometric means with its `ci95` (None below three repeats), `spread` the standard deviation of the repeats'
    logarithms. `weight` is from its own suite. `devices` is how many devices (of a processor: instances) and `nodes` how many
    machines a repeat holds. `by_device` has the rate of each accelerator, where each has an instance.
    `joules_per_item` is the energy of an item by board sensors. `log_mean` is the mean of its logarithms, above which
    more is better. None below three repeats. `counts` says whether the
    number may stand in an index: it passed as planned and is not invalid. `why_not` says in words why it does not.
    """

    system: str
    outcome: str
    units: str = ""
    direction: Direction = "higher"
    value: float | None = None
    ci95: Interval | None = None
    values: tuple[float, ...] = ()
    sessions: tuple[int, ...] = ()
    weight: float | None = None
    spread: float | None = None
    instances: int = 0
    devices: int = 0
    nodes: int = 0
    by_device: tuple[float, ...] = ()
    joules_per_item: float | None = None
    validity: Validity | None = None
    doubts: Annotated[tuple[str, ...], JsonKey("reasons")] = ()
    memory_peak_mib: float | None = None
    energy_j: float | None = None
    first_step_s: float | None = None
    counts: bool = False
    why_not: str = ""
    log_mean: Annotated[LogMean | None, NOT_WRITTEN] = field(default=None, repr=False)
    doubt_words: Annotated[tuple[str, ...], NOT_WRITTEN] = ()

    @property
    def by_session(self) -> list[tuple[float, ...]]:
        """The values of each run."""
        rest = iter(self.values)
        return [tuple(islice(rest, count)) for count in self.sessions]

    @property
    def replicates(self) -> list[float]:
        """The independent values: of several runs, the geometric mean of each. Of a single run, its repeats."""
        return list(map(geometric_mean, self.by_session)) if len(self.sessions) > 1 else list(self.values)


def log_level(
    sessions: Sequence[Sequence[float]],
    direction: Direction,
    allowance: Allowance = NO_ALLOWANCE,
    confidence: float = CONFIDENCE,
) -> LogMean | None:
    """Return the `log_mean` of the repeats of each session. A scatter of nearly zero is treated as luck."""
    count = sum(map(len, sessions))
    if count < LEAST_LAUNCHES:
        return None
    level = log_mean_of([logs(launches, direction) for launches in sessions])
    below, above = reversed(allowance) if direction == "lower" else allowance
    floor, wider = least_error(count) ** 2, widening(confidence, count) ** 2
    variance, within = (max(wider * part, floor) for part in (level.variance, level.within[0]))
    allowance = Allowance(below, above).one_sided
    return replace(level, variance=variance, within=(within, level.within[1]), allowance=allowance)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The evidence of a contrast: both sides, and the difference of their logarithms.

    `together` is how many intervals hold together.
    """

    first: SystemResult
    other: SystemResult
    estimate: Estimate
    together: int = 1

    def interval(self, missed: float) -> Interval:
        """Return the interval. In this share of cases one or more of those that hold together miss their ratio."""
        return self.estimate.ratio_interval(1 - missed / self.together)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """A system over the first in a benchmark. Above 1 it is better.

    `ci95` is of the ratio, after Welch on logarithms with `freedom` after Satterthwaite. None below three repeats on a
    side, and so are the values that follow from `evidence` and `judgement`. `needed` is about how many repeats on
    each side (`needed_unit`: or sessions) would decide, when the verdict is INCONCLUSIVE and that can be said. Else
    `note` says why not. `efficiency` is the scaling efficiency where the sides differ in devices: the ratio of whole
    systems over the ratio of devices. `ci95_devices` is the interval for other devices of these kinds: devices are the
    sample, and not repeats on these (None below three on a side). `is_suspect`: any of the numbers is.
    """

    system: str
    ratio: float
    ci95: Interval | None = None
    freedom: Annotated[float | None, JsonKey(followed_by=("p_holm", "p_equal_holm", "verdict"))] = None
    needed: int | None = None
    needed_unit: Annotated[Literal["launches", "sessions"], JsonKey(followed_by=("detectable",))] = "launches"
    efficiency: float | None = None
    ci95_devices: Interval | None = None
    is_suspect: bool = False
    note: str = ""
    evidence: Annotated[Evidence | None, NOT_WRITTEN] = field(default=None, repr=False)
    judgement: Annotated[Judgement | None, NOT_WRITTEN] = field(default=None, repr=False)

    @property
    def p_holm(self) -> float | None:
        """Of the difference being within the margin, corrected for all contrasts of the comparison."""
        return None if self.judgement is None else self.judgement.p_holm

    @property
    def p_equal_holm(self) -> float | None:
        """Of the difference being beyond the margin, corrected for all contrasts of the comparison."""
        return None if self.judgement is None else self.judgement.p_equal_holm

    @property
    def verdict(self) -> Verdict:
        """The verdict on the ratio among all contrasts of the comparison."""
        return "INCONCLUSIVE" if self.judgement is None else self.judgement.verdict

    @property
    def detectable(self) -> float | None:
        """The relative difference that would be found in half of cases with such data."""
        return None if self.judgement is None else self.judgement.detectable


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRow:
    """A benchmark: `sides` in the order of the systems, `contrasts` for all but the first (None where there is no ratio).

    `weight` is from the first system's suite, or from the weight profile. Each side has its own suite's. `margin` is the
    relative difference below which nothing is called faster or slower here: the comparison's, or the noise of an A/A run if that
    is more.
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
    """The weighted geometric mean of the ratios of a system over the first, and how far it can be trusted.

    `complete` (k, K): k of the K benchmarks that should count do, the same for both. `ci95` is conditional on this suite.
    `without` is the index when each benchmark in turn is left out. `weights_within` is the largest relative change of all
    weights, each for itself, under which the system stays on its side of 1: 0.5 is "for all weights within 50 %". 1 is
    "whatever the weights". `holds` says in words how the ranking depends on weights. `margin` is the relative difference below
    which it is not called faster or slower: the weighted mean of its benchmarks' margins. `suspects` of its numbers are suspect.
    `weights_of` is the weight profile that was given, or the system whose suite's weights these are where the suites' differ.
    `detectable` is the relative difference that would be found in half of cases with such data.
    """

    system: str
    value: float | None
    ci95: Interval | None
    complete: tuple[int, int]
    is_weighted: bool
    verdict: Verdict = "INCONCLUSIVE"
    without: Mapping[str, float] = field(default_factory=dict)
    weights_within: float | None = None
    holds: str = ""
    margin: float = DEFAULT_MARGIN
    suspects: int = 0
    weights_of: str = ""
    detectable: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveRatio:
    """A number of a point of a sweep, on a system over the first. Without a `point`, the area of the curve.

    `metric` is a name of POINT_METRICS, or `area`. `first` and `value` are in `units`, `launches` and `sessions` how many are
    behind each of the two. The intervals of the contrast hold together, for all points of a metric of a curve.
    """

    system: str
    point: str
    metric: str
    units: str
    first: float
    value: float
    launches: tuple[int, int]
    sessions: tuple[int, int]
    contrast: Contrast


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemCurve:
    """A curve under the name of its system, and of its run where there are several sessions."""

    name: str
    curve: ServingCurve


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveComparison:
    """The curves of a benchmark. `ratios` by metric, then by point in the order of the sweep, then by system.

    `apart` lists points, areas and systems without a ratio, and why.
    """

    bench: str
    margin: float
    curves: tuple[SystemCurve, ...]
    ratios: tuple[CurveRatio, ...]
    apart: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Everything that a comparison says. Reports only write it down.

    `excluded` are benchmarks that are in no index: name and why. `warnings` must be known before the first
    number (different suites, versions or profiles; a run still going), and `differs` names the differences in a line.
    `has_work`: the work of the job mix was declared, not derived from an hour of the first system for each unit of weight.
    `sentence` is the summary in a sentence that may be quoted. `curves` are of the benchmarks that sweep over a server.
    """

    systems: tuple[System, ...]
    rows: tuple[ComparisonRow, ...]
    indices: tuple[Index, ...]
    job_mix: tuple[JobMix, ...] = ()
    excluded: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()
    differs: str = ""
    margin: float = 0.01
    per: Per = "system"
    has_work: bool = False
    sentence: str = ""
    curves: tuple[CurveComparison, ...] = ()

    def column(self, index: Index) -> int:
        """Return which of the contrasts of a row an index is made of."""
        return [system.name for system in self.systems[1:]].index(index.system)
