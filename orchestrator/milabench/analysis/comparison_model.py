"""What a comparison holds: the systems with their sessions, per benchmark the sides and their contrasts, the indices."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from functools import cached_property, lru_cache
from itertools import islice
from typing import Any, Literal

from milabench.analysis.intervals import Interval
from milabench.analysis.job_mix import Costs, JobMix
from milabench.analysis.replicates import LEAST
from milabench.analysis.sample_statistics import geometric_mean
from milabench.analysis.serving_model import ServingCurve
from milabench.analysis.summary_model import BenchSummary, Failure, Summary, Validity
from milabench.analysis.throughput import Direction
from milabench.analysis.two_samples import MARGIN, LogMean, Verdict, log_mean_of
from milabench.dataclass import dataclass
from milabench.events.values import as_mapping, mappings_in

Per = Literal["system", "instance"]


def logs(values: Iterable[float], direction: Direction) -> list[float]:
    """Return the logarithms, above which more is better."""
    sign = -1.0 if direction == "lower" else 1.0
    return [sign * math.log(value) for value in values]


@dataclass(frozen=True, kw_only=True)
class System:
    """What is compared: a run under the `name` it is called by, its summary, what it costs, its manifest for what differs.

    `later` are further runs of the same system, each a session of its own.
    """

    name: str
    summary: Summary
    costs: Costs = field(default_factory=Costs)
    manifest: Mapping[str, Any] = field(default_factory=dict)
    later: tuple[System, ...] = ()

    @property
    def sessions(self) -> tuple[System, ...]:
        """Its runs, the first one included."""
        return (replace(self, later=()), *self.later) if self.later else (self,)

    @property
    def benches(self) -> list[tuple[str, BenchSummary]]:
        """The benchmarks of all sessions by name, each with what tells its session from the others (empty for one)."""
        return [
            (f"{session.summary.run} " if self.later else "", bench)
            for session in self.sessions
            for bench in sorted(session.summary.benchmarks, key=lambda bench: bench.bench)
        ]

    @cached_property
    def steps(self) -> Mapping[str, list[Mapping[str, Any]]]:
        """The planned steps of each benchmark, as the manifest has them."""
        steps: dict[str, list[Mapping[str, Any]]] = {}
        for step in mappings_in(as_mapping(self.manifest.get("plan")).get("steps")):
            steps.setdefault(str(step.get("bench")), []).append(step)
        return steps

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
            (run + b.bench, b.validity, b.reasons) for run, b in self.benches if b.validity in ("suspect", "invalid")
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemResult:
    """What one system reached in one benchmark.

    `values` has one number for each launch: the geometric mean of its instances, times the instances where whole systems
    are compared, in `units`; `sessions` how many of these, in order, are of each run. `value` is the geometric mean of the
    sessions' geometric means with its `ci95` (None below three launches), `spread` the standard deviation of the launches'
    logarithms. `weight` is that of its own suite. `devices` is how many devices (of a processor: instances) and `nodes` how many
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
    sessions: tuple[int, ...] = ()
    weight: float | None = None
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

    @property
    def by_session(self) -> list[tuple[float, ...]]:
        """The values of each run."""
        return _by_session(self.values, self.sessions)

    @property
    def replicates(self) -> list[float]:
        """The independent values: of several runs, the geometric mean of each; of one, its launches."""
        return list(map(geometric_mean, self.by_session)) if len(self.sessions) > 1 else list(self.values)

    @property
    def log_mean(self) -> LogMean | None:
        """The mean of its logarithms, above which more is better; None below three launches."""
        return _log_mean(self.values, self.sessions, self.direction)


def _by_session(values: Iterable[float], sessions: Iterable[int]) -> list[tuple[float, ...]]:
    rest = iter(values)
    return [tuple(islice(rest, count)) for count in sessions]


# Each side is asked for it some ten times, the first of a row by all others.
@lru_cache(maxsize=1024)
def _log_mean(values: tuple[float, ...], sessions: tuple[int, ...], direction: Direction) -> LogMean | None:
    if len(values) < LEAST:
        return None
    return log_mean_of([logs(launches, direction) for launches in _by_session(values, sessions)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """One system over the first one in one benchmark; above 1 it is better.

    `ci95` and `ci90` are of the ratio, after Welch on logarithms with `freedom` after Satterthwaite; None below three launches
    on a side. `p` is that of the difference being within the margin, `p_holm` corrected for all contrasts of the comparison,
    `p_bh` for screening; `p_equal_holm`, corrected too, that of its being beyond the margin. `needed` is about how many
    launches on each side (`needed_unit`: or sessions) would decide, when the verdict is INCONCLUSIVE and that can be said; else
    `note` says why not. `detectable` is the relative difference that would be found in half of cases with such data.
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
    verdict: Verdict = "INCONCLUSIVE"
    needed: int | None = None
    needed_unit: Literal["launches", "sessions"] = "launches"
    detectable: float | None = None
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

    `weight` is that of the first system's suite, or of the weight profile; each side has that of its own. `margin` is the
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
    """The weighted geometric mean of the ratios of one system over the first one, and how far it can be trusted.

    `complete` (k, K): k of the K benchmarks that should count do, the same for both. `ci95` is conditional on this suite.
    `without` is the index when each benchmark in turn is left out. `weights_within` is the largest relative change of all
    weights, each for itself, under which the system stays on its side of 1: 0.5 is "for all weights within 50 %"; 1 is
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
    margin: float = MARGIN
    suspects: int = 0
    weights_of: str = ""
    detectable: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveRatio:
    """A number of one point of a sweep, on one system over the first one; without a `point`, of the curve: its area.

    `metric` is a name of METRICS, or `area`. `first` and `value` are in `units`, `launches` and `sessions` how many are behind
    each of the two. The intervals of the contrast hold together, for all points of one metric of one curve.
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
    """The curves of one benchmark; `ratios` by metric, then by point in the order of the sweep, then by system.

    `apart` says what has no ratio, and why: a point, the area, or a system.
    """

    bench: str
    margin: float
    curves: tuple[SystemCurve, ...]
    ratios: tuple[CurveRatio, ...]
    apart: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Everything that a comparison says; reports only write it down.

    `excluded` are benchmarks that are in no index: name and why. `warnings` are what a reader must know before the first
    number (different suites, versions or profiles; a run still going), and `differs` names in one line what is not the same.
    `has_work`: the work of the job mix was declared, not what the first system does in an hour for each unit of weight.
    `sentence` is the summary in one sentence that may be quoted. `curves` are of the benchmarks that sweep over a server.
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
