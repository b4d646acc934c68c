"""A run directory -> what the run came to, benchmark by benchmark; its JSON form is docs/protocol.md, section 6.

A replicate is a fresh process: an instance of a `per_gpu` or `njobs` benchmark, or all the processes of a job that
spans devices or nodes, each time it is repeated. Steps inside a process are sub-samples and never widen the sample.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from milabench.analysis.ab import AB, ab_of
from milabench.analysis.cases import cases_of
from milabench.analysis.intervals import Interval, log_t_interval
from milabench.analysis.machine import described_system, recorded_accelerators, versions
from milabench.analysis.measure import Direction, Measurement, Metric, Throughput, Window
from milabench.analysis.score import Entry, Score, score
from milabench.analysis.spread import geometric_mean, log_stdev, median, pooled_log_stdev
from milabench.analysis.steady_state import Steadiness
from milabench.analysis.steps import CourseOf, StepResult, SupersededAttempt, planned_steps, step_result
from milabench.analysis.validity import LEAST_OVERLAP, ChecksOf, overlap, unchecked, validation_json
from milabench.analysis.variance import least_difference, share_of_processes
from milabench.events.attempts import attempts
from milabench.events.json_access import as_mapping
from milabench.events.model import OutcomeName
from milabench.events.numbers import SMALLEST, finite_number, strict
from milabench.events.rundir import Run
from milabench.events.sanitize import one_line

SCHEMA = 1
Validity = Literal["valid", "suspect", "invalid"]

# Methods whose steps of one replicate are one job; the steps of the others are instances of their own.
_COUNTED = ("planned", "passed", "failed", "skipped", "missing", "cancelled")
# The worst that happened to a step is what happened to its benchmark.
_WORST_FIRST: tuple[OutcomeName, ...] = ("failed", "cancelled", "missing", "passed", "skipped")
_MESSAGES_KEPT = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicateResult:
    """One replicate that passed: the steps it consists of, where it ran, its rate."""

    steps: tuple[str, ...]
    place: str
    repeat: int
    throughput: Throughput


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A step that failed, was cancelled or never ended, and the file in which to look."""

    step: str
    why: str
    detail: str
    log: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """A step, or a whole benchmark (`step` is None), that was not run on purpose, and the reason."""

    step: str | None
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Flaky:
    """A step that passed although another attempt at it failed, and all those attempts."""

    step: str
    attempt: int
    others: tuple[SupersededAttempt, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchSummary:
    """What one benchmark came to.

    `perf` is the rate of one instance, the geometric mean over `processes`: one device for `per_gpu`, one of the n for
    `njobs`, the whole job for `multigpu` and `multinode`. `score` is perf times the `instances` that ran side by side:
    what the system did; None unless everything planned passed. `counts` are steps. Spreads are relative: `within` a
    process (between its observations), between `devices` (the means of the places), between `processes` at the same
    place; `spread` between all processes; `ci95` stands on `replicates` launches, the
    instances of each averaged. `overlap` is the share of the time in which all
    instances of a group measured, of that in which any did, 0 to 1. `validations` are the verdicts of checks, step by step.
    `ratio` is to a reference run, where there is one: above 1 is better.
    """

    bench: str
    outcome: OutcomeName
    counts: Mapping[str, int]
    ngpu: int = 0
    nodes: int = 0
    instances: int = 0
    processes: tuple[ReplicateResult, ...] = ()
    perf: float | None = None
    units: str = ""
    direction: Direction = "higher"
    ci95: Interval | None = None
    spread: float | None = None
    spread_within: float | None = None
    spread_devices: float | None = None
    spread_processes: float | None = None
    spread_replicates: float | None = None
    replicates: int = 0
    memory_peak_mib: float | None = None
    energy_j: float | None = None
    first_step_s: float | None = None
    weight: float | None = None
    score: float | None = None
    validity: Validity | None = None
    reasons: tuple[str, ...] = ()
    failures: tuple[Failure, ...] = ()
    skipped: tuple[Skip, ...] = ()
    flaky: tuple[Flaky, ...] = ()
    metrics: tuple[Mapping[str, Any], ...] = ()
    messages: tuple[str, ...] = ()
    overlap: float | None = None
    validations: tuple[Mapping[str, Any], ...] = ()
    ratio: float | None = None
    ratio_ci95: Interval | None = None

    @property
    def sem(self) -> float | None:
        """Relative standard error of the mean over replicates; None below three of them.

        The instances of one launch are no replicates: they share whatever that launch had.
        """
        n, spread = self.replicates, self.spread_replicates
        return spread / math.sqrt(n) if spread is not None and n >= 3 else None

    @property
    def mde(self) -> float | None:
        """The relative difference that two such runs would find in 80 of 100 cases; None below three replicates."""
        n, spread = self.replicates, self.spread_replicates
        return least_difference(spread, n) if spread is not None and n >= 3 else None

    @property
    def icc(self) -> float | None:
        """The share of processes in the variation of single observations, 0 to 1; None where one of its parts is not known."""
        counts = [one.throughput.observations for one in self.processes]
        if self.spread is None or self.spread_within is None or not all(counts):
            return None
        return share_of_processes(self.spread_within, self.spread, len(counts) / math.fsum(1 / n for n in counts))

    def to_json(self) -> dict[str, Any]:
        """The benchmark as docs/protocol.md, section 6, spells it."""
        return {
            "bench": self.bench,
            "outcome": self.outcome,
            "counts": dict(self.counts),
            "ngpu": self.ngpu,
            "nodes": self.nodes,
            "instances": self.instances,
            "replicates": self.replicates,
            "processes": len(self.processes),
            "perf": self.perf,
            "units": self.units,
            "direction": self.direction,
            "ci95": None if self.ci95 is None else list(self.ci95),
            "spread": self.spread,
            "spread_within": self.spread_within,
            "spread_devices": self.spread_devices,
            "spread_processes": self.spread_processes,
            "spread_replicates": self.spread_replicates,
            "mde": self.mde,
            "icc": self.icc,
            "memory_peak_MiB": self.memory_peak_mib,
            "energy_J": self.energy_j,
            "first_step_s": self.first_step_s,
            "overlap": self.overlap,
            "weight": self.weight,
            "score": self.score,
            "validity": self.validity,
            "reasons": list(self.reasons),
            "failures": [
                {"step": one.step, "why": one.why, "detail": one.detail, "log": one.log} for one in self.failures
            ],
            "skipped": [{"step": one.step, "detail": one.detail} for one in self.skipped],
            "flaky": [
                {"step": one.step, "attempt": one.attempt, "others": [asdict(each) for each in one.others]}
                for one in self.flaky
            ],
            "validations": [dict(one) for one in self.validations],
            "messages": list(self.messages),
            **(
                {}
                if self.ratio is None
                else {"ratio": self.ratio, "ratio_ci95": None if self.ratio_ci95 is None else list(self.ratio_ci95)}
            ),
            "metrics": [dict(one) for one in self.metrics],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a run came to; everything that a report shows.

    `argv` is the command line that made the run, `options` what its options came to, `software` versions by name, as far
    as recorded; `accelerators` what drivers said of each device at the start. `verdict` is passed
    when every planned step passed or was skipped. `overhead` is what control plane and agents cost: `control_cpu_s`,
    `agent_cpu_s`, and `wall_s` of the steps. `aim` and `replicates` are how precisely was to be measured and how often that
    was decided to be (docs/methodology.md, 1.0); `ab` what an A/B run came to, which has no score.
    """

    run: str
    verdict: Literal["passed", "failed", "interrupted"]
    benchmarks: tuple[BenchSummary, ...]
    score: Score
    system: Mapping[str, Any] = field(default_factory=dict)
    profile: str = ""
    is_ended: bool = True
    created: str = ""
    version: str = ""
    argv: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    software: Mapping[str, str] = field(default_factory=dict)
    overhead: Mapping[str, float] = field(default_factory=dict)
    aim: Mapping[str, Any] = field(default_factory=dict)
    replicates: Mapping[str, Any] = field(default_factory=dict)
    ab: AB | None = None
    accelerators: tuple[Mapping[str, Any], ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        """How many of the planned steps ended how."""
        return {
            outcome: sum(bench.counts[outcome] for bench in self.benchmarks)
            for outcome in _COUNTED
            if outcome != "planned"
        }

    def to_json(self) -> dict[str, Any]:
        """The summary as docs/protocol.md, section 6, spells it; strict JSON, whatever the records hold."""
        told: dict[str, Any] = {
            "schema": SCHEMA,
            "run": self.run,
            "system": dict(self.system),
            "profile": self.profile,
            "verdict": self.verdict,
            "ended": self.is_ended,
            "created": self.created,
            "version": self.version,
            "argv": list(self.argv),
            "options": dict(self.options),
            "software": dict(self.software),
            "overhead": dict(self.overhead),
            "accelerators": [dict(device) for device in self.accelerators],
            "benchmarks": [bench.to_json() for bench in self.benchmarks],
            "score": {
                "value": self.score.value,
                "ci95": None if self.score.ci95 is None else list(self.score.ci95),
                "reference": self.score.reference,
                "complete": list(self.score.complete),
                "weighted": self.score.is_weighted,
                "compat": self.score.is_compat,
                "suspects": self.score.suspects,
            },
            **({"aim": dict(self.aim), "replicates": dict(self.replicates)} if self.aim else {}),
            **({"ab": self.ab.to_json()} if self.ab is not None else {}),
        }
        return {key: strict(value) for key, value in told.items()}


def summarise(run: Run, checks: ChecksOf = unchecked, course: CourseOf | None = None) -> Summary:
    """What a run came to, from its records, wherever they stop; `checks` and `course` see every step's records on the way.

    Raises RecordError when they cannot be read.
    """
    tried = attempts(run.journal)
    results = [step_result(run, planned, tried.get(planned.id, ()), checks, course) for planned in planned_steps(run)]
    measured = [result.measured for result in results]
    profile = str(run.manifest.get("profile") or "")
    by_bench: dict[str, list[StepResult]] = {}
    for result in results:
        by_bench.setdefault(result.step.bench, []).append(result)
    arch = as_mapping(run.manifest.get("system")).get("arch")
    is_mixed = any(entry.get("run") == "mixed" for entry in run.journal)
    benches = [
        bench_summary(
            name,
            found,
            is_short=profile == "quick",
            is_mixed=is_mixed,
            has_accelerators=arch != "cpu",
            clocks=_released(run.journal),
        )
        for name, found in by_bench.items()
    ]
    benches += [skipped_bench(name, why, _weight_in_suite(run, name)) for name, why in _skipped_benches(run)]
    ab = ab_of(run.manifest, benches)
    ends = [entry for entry in run.journal if entry.get("run") == "ended"]
    argv = run.manifest.get("argv")
    return Summary(
        run=run.name,
        verdict=_verdict(
            benches, was_interrupted=run.is_ended and ends[-1:] != [] and ends[-1].get("verdict") == "interrupted"
        ),
        benchmarks=tuple(benches),
        score=scored(benches if ab is None else []),
        system=described_system(run.manifest, measured),
        profile=profile,
        is_ended=run.is_ended,
        created=str(run.manifest.get("created") or ""),
        version=str(run.manifest.get("version") or ""),
        argv=tuple(str(word) for word in argv) if isinstance(argv, list) else (),
        options=as_mapping(run.manifest.get("options")),
        software=versions(measured),
        overhead=_overhead(ends),
        aim=_numbers(run.manifest.get("aim")),
        replicates={str(name): _numbers(told) for name, told in as_mapping(run.manifest.get("replicates")).items()},
        ab=ab,
        accelerators=recorded_accelerators(measured),
    )


def _numbers(told: Any) -> dict[str, float | None]:
    """The numbers of a mapping, whole ones as such; what is none is not known."""
    return {str(name): value if finite_number(value) is not None else None for name, value in as_mapping(told).items()}


def _overhead(ends: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """What the harness cost, all the times that the run was gone on with together; a share cannot be added up."""
    total: dict[str, float] = {}
    for entry in ends:
        for name, cost in as_mapping(entry.get("overhead")).items():
            if name != "share" and (known := finite_number(cost)) is not None:
                total[name] = total.get(name, 0.0) + known
    return total


def _verdict(benches: Sequence[BenchSummary], *, was_interrupted: bool) -> Literal["passed", "failed", "interrupted"]:
    if was_interrupted:
        return "interrupted"
    return "passed" if benches and all(bench.outcome in ("passed", "skipped") for bench in benches) else "failed"


def bench_summary(
    name: str,
    results: Sequence[StepResult],
    *,
    is_short: bool = False,
    is_mixed: bool = False,
    has_accelerators: bool = True,
    clocks: Mapping[str, tuple[str, float]] | None = None,
) -> BenchSummary:
    """What one benchmark's steps came to together.

    `clocks` are the steps that were released together on several nodes: of each its group, and by how many seconds the clock
    of its node is ahead.

    `is_short`: measured with the quick profile, so that its number is only an indication. `is_mixed`: the run was gone
    on with although suite, system or environments had changed.
    """
    processes = tuple(_processes(results))
    passed = [result for result in results if result.outcome == "passed"]
    outcome = next(name for name in _WORST_FIRST if any(result.outcome == name for result in results))
    first = processes[0].throughput if processes else None
    alike = [one for one in processes if first and one.throughput.units == first.units]
    rates = [one.throughput.value for one in alike]
    launches = [geometric_mean(members) for members in _by_repeat(alike).values()]
    differs_in_units = len(alike) < len(processes)
    perf = geometric_mean(rates) if rates and not differs_in_units else None
    instances = len({one.place for one in processes})
    direction = first.direction if first else "higher"
    reasons = {reason for result in passed for reason in result.reasons}
    reasons |= {reason for result in passed for reason in result.check_reasons} if perf is not None else set()
    together = _overlap(results, clocks or {})
    reasons |= {"overlap"} if together is not None and together < LEAST_OVERLAP and perf is not None else set()
    reasons |= {"mixed"} if differs_in_units or (is_mixed and perf is not None) else set()
    reasons |= {"short"} if is_short and perf is not None else set()
    reasons |= {doubt for one in processes for doubt in _doubts(one.throughput, is_short)}
    metrics = (*(_rate_json(one) for one in processes), *_metrics_json(results))
    if len({cases_of(metrics, one.steps) for one in processes if one.throughput.basis == "metric"}) > 1:
        reasons.add("cases-differ")
    validity: Validity | None = None
    if perf is not None or differs_in_units:
        validity = "invalid" if differs_in_units else "suspect" if reasons else "valid"
    return BenchSummary(
        bench=name,
        outcome=outcome,
        counts=_counts(results),
        ngpu=len({(r.step.node, device) for r in results for device in r.step.devices}) if has_accelerators else 0,
        nodes=len({result.step.node for result in results}),
        instances=instances,
        processes=processes,
        perf=perf,
        units=first.units if first else "",
        direction=direction,
        ci95=log_t_interval(launches) if perf is not None else None,
        spread=log_stdev(rates) if perf is not None else None,
        spread_within=_pooled(one.throughput.spread_within for one in processes),
        spread_devices=_between_places(alike) if perf is not None else None,
        spread_processes=pooled_log_stdev(_by_place(alike).values()) if perf is not None else None,
        spread_replicates=log_stdev(launches) if perf is not None else None,
        replicates=len(launches),
        memory_peak_mib=max(_known(result.measured.memory_peak_mib for result in passed), default=None),
        energy_j=_total([result.measured.energy_j for result in passed]),
        first_step_s=_median(result.measured.first_step_s for result in passed),
        weight=next((result.step.weight for result in results if result.step.weight is not None), None),
        score=_bench_score(perf, instances, direction) if outcome == "passed" else None,
        validity=validity,
        reasons=tuple(sorted(reasons)),
        failures=tuple(
            Failure(step=one.step.id, why=one.why or one.outcome, detail=one.detail, log=one.log)
            for one in results
            if one.outcome in ("failed", "cancelled", "missing")
        ),
        skipped=tuple(Skip(step=one.step.id, detail=one.detail) for one in results if one.outcome == "skipped"),
        flaky=tuple(Flaky(step=one.step.id, attempt=one.attempt, others=one.others) for one in results if one.is_flaky),
        metrics=metrics,
        messages=_messages(results),
        overlap=together,
        validations=tuple(validation_json(verdict) for result in results for verdict in result.verdicts),
    )


def skipped_bench(name: str, why: str, weight: float | None) -> BenchSummary:
    """A benchmark of the suite that the plan left out, and why."""
    return BenchSummary(
        bench=name,
        outcome="skipped",
        counts={**dict.fromkeys(_COUNTED, 0), "planned": 1, "skipped": 1},
        weight=weight,
        skipped=(Skip(step=None, detail=one_line(why)),),
    )


def _processes(results: Sequence[StepResult]) -> Iterable[ReplicateResult]:
    """The replicates in which every step passed and that have a number."""
    jobs: dict[tuple[str, int], list[StepResult]] = {}
    for result in results:
        step = result.step
        place = "" if step.one_job else f"{step.node}/{step.tag}"
        jobs.setdefault((place, step.repeat), []).append(result)
    for (place, repeat), members in jobs.items():
        if all(member.outcome == "passed" for member in members):
            throughput = _job_throughput([member.measured for member in members])
            if throughput is not None and throughput.value >= SMALLEST:
                steps = tuple(member.step.id for member in members)
                yield ReplicateResult(steps=steps, place=place, repeat=repeat, throughput=throughput)


def _job_throughput(members: Sequence[Measurement]) -> Throughput | None:
    """The rate of a job: of one step its own; of several the items of all ranks over the seconds of the slowest."""
    found = [member.throughput for member in members if member.throughput is not None]
    if len(found) <= 1:
        return found[0] if found else None
    # What one step doubts is doubtful for the job, however fast that step was.
    doubts = [doubt for one in found for doubt in one.doubts]
    doubts += ["mixed"] if len({(one.units, one.basis == "metric") for one in found}) > 1 else []
    known = tuple(dict.fromkeys(doubts))
    totals = [total for one in found for total in one.totals]
    if not totals:
        # Rates of milabench 1.3 add up; a metric of the whole job is told by each node, as by each rank of one.
        values = [one.value for one in found]
        value = geometric_mean(values) if found[0].basis == "metric" else math.fsum(values)
        return replace(found[0], value=value, doubts=known)
    slowest = max(found, key=lambda one: max((total.seconds for total in one.totals), default=0.0))
    return replace(
        slowest,
        value=math.fsum(total.items for total in totals) / max(total.seconds for total in totals),
        observations=sum(one.observations for one in found),
        totals=tuple(totals),
        left_out=math.fsum(one.left_out for one in found),
        doubts=known,
    )


def _released(journal: Iterable[Mapping[str, Any]]) -> dict[str, tuple[str, float]]:
    """The steps that were released together on several nodes, of each its group and how far its node's clock is ahead, in s."""
    found: dict[str, tuple[str, float]] = {}
    for entry in journal:
        if entry.get("state") != "released":
            continue
        for step, node in as_mapping(entry.get("steps")).items():
            ahead_s = finite_number(as_mapping(as_mapping(entry.get("clocks")).get(node)).get("ahead_s"))
            if ahead_s is not None:
                found[step] = str(entry.get("group")), ahead_s
    return found


def _overlap(results: Sequence[StepResult], clocks: Mapping[str, tuple[str, float]]) -> float | None:
    """The worst overlap among the replicates of a benchmark whose instances run side by side; None for all others.

    Instances on several nodes, whose windows are those of unlike clocks, count together when they were released together.
    """
    groups: dict[tuple[int, str], list[Window | None]] = {}
    for result in results:
        if result.step.one_job:
            continue
        together, ahead_s = clocks.get(result.step.id, (result.step.node, 0.0))
        window = result.measured.window
        if window is not None and window.start is not None and window.stop is not None:
            window = replace(window, start=window.start - ahead_s, stop=window.stop - ahead_s)
        groups.setdefault((result.step.repeat, together), []).append(window)
    return min(_known(map(overlap, groups.values())), default=None)


def _counts(results: Sequence[StepResult]) -> dict[str, int]:
    counts = dict.fromkeys(_COUNTED, 0)
    counts["planned"] = len(results)
    for result in results:
        counts[result.outcome] += 1
    return counts


def _by_repeat(processes: Iterable[ReplicateResult]) -> dict[int, list[float]]:
    """The rates of the instances that were launched together, launch by launch."""
    found: dict[int, list[float]] = {}
    for one in processes:
        found.setdefault(one.repeat, []).append(one.throughput.value)
    return found


def _by_place(processes: Iterable[ReplicateResult]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for one in processes:
        found.setdefault(one.place, []).append(one.throughput.value)
    return found


def _between_places(processes: Iterable[ReplicateResult]) -> float | None:
    return log_stdev([geometric_mean(rates) for rates in _by_place(processes).values()])


def _bench_score(perf: float | None, instances: int, direction: Direction) -> float | None:
    """perf times instances; of a metric where lower is better the inverse, so that more is better in every score."""
    if perf is None or direction == "none":
        return None
    return perf * instances if direction == "higher" else instances / perf


def scored(benches: Iterable[BenchSummary]) -> Score:
    """The score of some benchmarks by their own rates and weights."""
    return score([_entry(bench) for bench in benches])


def _entry(bench: BenchSummary) -> Entry:
    counts = bench.validity != "invalid"
    return Entry(
        value=bench.score if counts else None,
        weight=bench.weight,
        log_spread=bench.spread_replicates,
        n=bench.replicates,
        is_suspect=bench.validity == "suspect",
    )


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _pooled(spreads: Iterable[float | None]) -> float | None:
    """Root mean square of what is known."""
    known = _known(spreads)
    return math.sqrt(math.fsum(value * value for value in known) / len(known)) if known else None


def _total(values: Sequence[float | None]) -> float | None:
    """The sum, None as soon as a part of it is not known."""
    known = _known(values)
    return math.fsum(known) if known and len(known) == len(values) else None


def _median(values: Iterable[float | None]) -> float | None:
    known = _known(values)
    return median(known) if known else None


def _doubts(rate: Throughput, is_short: bool) -> Iterable[str]:
    """Why a rate is suspect. A short window that was reached says nothing about steadiness, and is marked as short anyway."""
    return (doubt for doubt in rate.doubts if not (is_short and doubt == "no-steady-state" and rate.basis != "warm-up"))


def _rate_json(process: ReplicateResult) -> dict[str, Any]:
    rate = process.throughput
    return {
        "step": process.steps[0],
        "steps": list(process.steps),
        "metric": "rate",
        "value": rate.value,
        "units": rate.units,
        "direction": rate.direction,
        "basis": rate.basis,
        "place": process.place,
        "repeat": process.repeat,
        "observations": rate.observations,
        "spread_within": rate.spread_within,
        "lag1": rate.lag1,
        "doubts": list(rate.doubts),
        **({"left_out": rate.left_out} if rate.left_out else {}),
        "latency": dict(rate.latency),
        "totals": [asdict(total) for total in rate.totals],
        **({} if rate.steady is None else _steady_json(rate.steady)),
    }


def _steady_json(steady: Steadiness) -> dict[str, Any]:
    """Observations that were warm-up still, the drift over the others, and how many independent ones they are worth."""
    return {
        "warmup_left": steady.settled_at,
        "drift": steady.drift,
        "n_effective": steady.n_effective,
        "window": {"n": steady.n, "lag1": steady.lag1, "steady": steady.is_steady},
    }


def _metrics_json(results: Iterable[StepResult]) -> Iterable[dict[str, Any]]:
    for result in results:
        if result.outcome != "passed":
            continue
        measured = result.measured
        for name, value in (("loss_first", measured.losses.first), ("loss_last", measured.losses.last)):
            if value is not None:
                loss = Metric(name=name, value=value, direction="lower")
                yield _metric_json(result.step.id, loss)
        for metric in measured.metrics:
            yield _metric_json(result.step.id, metric)


def _metric_json(step: str, metric: Metric) -> dict[str, Any]:
    found: dict[str, Any] = {
        "step": step,
        "metric": metric.name,
        "value": metric.value,
        "units": metric.units,
        "direction": metric.direction,
    }
    optional = {
        "case": metric.case,
        "part": metric.part,
        "params": dict(metric.params),
        "main": metric.is_main,
        "reasons": list(metric.reasons),
    }
    found.update({key: value for key, value in optional.items() if value})
    if metric.rank is not None:
        found["rank"] = metric.rank
    return found


def _messages(results: Iterable[StepResult]) -> tuple[str, ...]:
    """What a person should know: said by the steps, or found by checks; each once."""
    found: dict[str, None] = {}  # a set that keeps its order
    for result in results:
        measured = result.measured
        if result.outcome == "passed" and measured.task and measured.throughput is None:
            found["no observation after warm-up: there is no rate"] = None
        for verdict in measured.verdicts:
            if verdict.verdict != "pass":
                found[one_line(f"{verdict.check}: {verdict.message or verdict.verdict}")] = None
        found.update(dict.fromkeys(map(one_line, measured.messages)))
    return tuple(found)[:_MESSAGES_KEPT]


def _skipped_benches(run: Run) -> Iterable[tuple[str, str]]:
    skipped = as_mapping(run.manifest.get("plan")).get("skipped")
    for entry in skipped if isinstance(skipped, list) else ():
        yield str(as_mapping(entry).get("bench", "")), str(as_mapping(entry).get("why", ""))


def _weight_in_suite(run: Run, bench: str) -> float | None:
    """The weight of a benchmark that has no step, from the resolved suite in the manifest."""
    return finite_number(as_mapping(as_mapping(run.manifest.get("suite")).get(bench)).get("weight"))
