"""The steps of a benchmark -> its summary.

A replicate is a fresh process: an instance of a `per_gpu` or `njobs` benchmark, or all the processes of a job that
spans devices or nodes, each time it is repeated. Steps inside a process are sub-samples and never widen the sample.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from msgspec import structs

from milabench import seams
from milabench.analysis.case_sets import cases_of
from milabench.analysis.intervals import LEAST_LAUNCHES, log_t_interval
from milabench.analysis.job_mix import Costs
from milabench.analysis.json_codec import to_json_value
from milabench.analysis.measure import Measurement, Metric
from milabench.analysis.milabench13 import BenchFigures
from milabench.analysis.sample_statistics import geometric_mean, log_stdev, mean, median, pooled_log_stdev
from milabench.analysis.serving_model import ServingCurve
from milabench.analysis.shared_energy import with_shared_energy
from milabench.analysis.step_results import PlannedStep, SharedClocks, StepResult
from milabench.analysis.summary_io import rate_to_json
from milabench.analysis.summary_model import (
    COUNTED_OUTCOMES,
    BenchSummary,
    Failure,
    Flaky,
    KeptAnswers,
    ReplicateResult,
    Skip,
    Validation,
    Validity,
)
from milabench.analysis.throughput import LEAST_OVERLAP, Throughput
from milabench.analysis.uncertainty import (
    CONFIDENCE,
    LOWERED_BY,
    Component,
    MeasuredLaunch,
    Uncertainty,
    uncertainty_of,
)
from milabench.analysis.windows import overlap
from milabench.events.doubts import INVALID, Doubt
from milabench.events.model import OutcomeName, Verdict
from milabench.events.values import SMALLEST_NUMBER, finite_number, one_line
from milabench.shown import grouped

# A benchmark has the worst outcome of its steps.
# Skipped is last: a benchmark of which something passed and something was left out on purpose has passed.
_WORST_FIRST: tuple[OutcomeName, ...] = ("failed", "cancelled", "missing", "passed", "skipped")
_MAX_MESSAGES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConditions:
    """The conditions that all benchmarks of a run share.

    `is_short`: measured with the quick profile, so that its numbers are only indications. `is_mixed`: the run was
    resumed although suite, system or environments had changed. `costs` are the declared costs of the system.
    `is_of_milabench13`: milabench 1.3 wrote the records. `precision` is the requested relative uncertainty, None
    where none was. `confidence` is passed to `uncertainty_of`. `most_others`: repeats of which others may have taken
    more than this share are measured again, and are in no number.
    """

    is_short: bool = False
    is_mixed: bool = False
    has_accelerators: bool = True
    clocks: SharedClocks = field(default_factory=dict)
    costs: Costs = field(default_factory=Costs)
    is_of_milabench13: bool = False
    precision: float | None = None
    confidence: float = CONFIDENCE
    most_others: float | None = None


def bench_summary(name: str, results: Sequence[StepResult], conditions: RunConditions) -> BenchSummary:
    """Return the summary of a benchmark, from its steps."""
    results, answers = _compared(results, conditions.clocks)
    serving, everything = _swept(results, tuple(_processes(results)), conditions)
    processes = undisturbed(everything, conditions.most_others)
    passed = [result for result in results if result.outcome == "passed"]
    outcomes = {result.outcome for result in results}
    metrics = (*map(rate_to_json, everything), *_metrics_json(passed))
    summary = BenchSummary(
        bench=name,
        outcome=next(outcome for outcome in _WORST_FIRST if outcome in outcomes),
        counts=_counts(results),
        ngpu=_device_count(results) if conditions.has_accelerators else 0,
        nodes=len({result.step.node for result in results}),
        processes=processes,
        spread_within=_root_mean_square(process.throughput.spread_within for process in processes),
        memory_peak_mib=max(_known(result.measured.memory_peak_mib for result in passed), default=None),
        energy_j=_total([result.measured.energy_j for result in passed]),
        first_step_s=_median(result.measured.first_step_s for result in passed),
        wall_s=_wall_s(results),
        overlap=_overlap(results, conditions.clocks),
        serving=serving,
        weight=next(iter(_known(result.step.weight for result in results)), None),
        tags=next((result.step.tags for result in results if result.step.tags), ()),
        failures=tuple(_failures(results)),
        skipped=tuple(Skip(step=r.step.id, detail=r.detail) for r in results if r.outcome == "skipped"),
        flaky=tuple(Flaky(step=r.step.id, attempt=r.attempt, others=r.others) for r in results if r.is_flaky),
        validations=tuple(_validation(verdict) for result in results for verdict in result.verdicts),
        answers=answers,
        messages=(*_messages(results, serving), *_disturbed(everything, processes)),
        metrics=metrics,
        milabench13=BenchFigures.of(results) if conditions.is_of_milabench13 else None,
    )
    slots = {(result.step.repeat, slot_of(result.step)) for result in results}
    instances = max(Counter(repeat for repeat, _ in slots).values(), default=0)
    return _judged(with_rate(summary, instances, conditions.confidence), results, conditions)


def _swept(
    results: Sequence[StepResult], processes: tuple[ReplicateResult, ...], conditions: RunConditions
) -> tuple[ServingCurve | None, tuple[ReplicateResult, ...]]:
    """Return the curve of a benchmark that swept a server, and its replicates with their numbers at its best point."""
    if all(result.measured.serving is None for result in results):
        return None, processes
    swept: tuple[ServingCurve | None, tuple[ReplicateResult, ...]]
    swept = seams.handler("curves: launches")(results, processes, conditions.costs, conditions.clocks)
    return swept


def _compared(
    results: Sequence[StepResult], clocks: SharedClocks
) -> tuple[Sequence[StepResult], tuple[KeptAnswers, ...]]:
    """Return the steps as they are next to each other: wrong answers, stragglers, energy. Also the answers that agree."""
    answers: tuple[KeptAnswers, ...] = ()
    if any(result.measured.answers for result in results):
        results, answers = seams.made_by("answers", (results, answers), results)
    if any(result.measured.collectives for result in results):
        results = seams.made_by("stragglers", results, results, clocks)
    return with_shared_energy(results, clocks), answers


def undisturbed(processes: Sequence[ReplicateResult], most_others: float | None) -> tuple[ReplicateResult, ...]:
    """Return the numbers of the repeats of which others took no more than this share, if there are three. Else all."""
    disturbed = {
        each.repeat for each in processes if each.throughput.effects.get("others", 0.0) > (most_others or math.inf)
    }
    calm = tuple(each for each in processes if each.repeat not in disturbed)
    return calm if len({each.repeat for each in calm}) >= LEAST_LAUNCHES else tuple(processes)


def _disturbed(everything: Sequence[ReplicateResult], processes: Sequence[ReplicateResult]) -> Iterator[str]:
    kept = {each.repeat for each in processes}
    for each in everything:
        if each.repeat not in kept:
            share = each.throughput.effects.get("others", 0.0)
            yield f"{each.steps[0]}: others may have taken {share:.0%}: measured again, and not in the number"


def _wall_s(results: Iterable[StepResult]) -> float | None:
    """Return the seconds of all repeats, each as long as the longest of its steps. None where no step has a time."""
    ends = [(result.step.repeat, result.measured.end) for result in results]
    known = [(repeat, finite_number(end.wall_s)) for repeat, end in ends if end is not None]
    launches = grouped((repeat, wall_s) for repeat, wall_s in known if wall_s is not None)
    return math.fsum(map(max, launches.values())) if launches else None


def _device_count(results: Sequence[StepResult]) -> int:
    return len({(result.step.node, device) for result in results for device in result.step.devices})


def skipped_bench(name: str, why: str, declared: Mapping[str, object]) -> BenchSummary:
    """Return the summary of a benchmark that the plan left out, and why. `declared` is its part of the resolved suite."""
    tags = declared.get("tags")
    return BenchSummary(
        bench=name,
        outcome="skipped",
        counts={"planned": 1, **dict.fromkeys(COUNTED_OUTCOMES, 0), "skipped": 1},
        weight=finite_number(declared.get("weight")),
        tags=tuple(map(str, tags)) if isinstance(tags, list) else (),
        skipped=(Skip(step=None, detail=one_line(why)),),
    )


def with_rate(summary: BenchSummary, instances: int, confidence: float = CONFIDENCE) -> BenchSummary:
    """Return the summary with perf, its interval and spreads on every level. See docs/explanation/methodology.md, 1.0.

    Replicates in different units have no common number. At most `instances` ran concurrently. `confidence` is the confidence of
    `uncertainty_of`.
    """
    if not summary.processes:
        return summary
    first = summary.processes[0].throughput
    alike = [process for process in summary.processes if process.throughput.units == first.units]
    rates = [process.throughput.value for process in alike]
    by_launch = grouped((process.repeat, process.throughput.value) for process in alike)
    by_slot = grouped((process.slot, process.throughput.value) for process in alike)
    # The instances of a launch are not independent: they are one value.
    launches = [geometric_mean(members) for members in by_launch.values()]
    summary = structs.replace(
        summary,
        units=first.units,
        direction=first.direction,
        # A slot has another name where each replicate had a node of its own.
        instances=min(instances, len({process.slot for process in summary.processes})),
        replicates=len(launches),
    )
    if len(alike) < len(summary.processes):
        return summary
    return structs.replace(
        summary,
        perf=geometric_mean(rates),
        uncertainty=_uncertainty(alike, confidence),
        ci95=log_t_interval(launches),
        spread=log_stdev(rates),
        spread_devices=log_stdev([geometric_mean(members) for members in by_slot.values()]),
        spread_processes=pooled_log_stdev(by_slot.values()),
    )


def _uncertainty(processes: Sequence[ReplicateResult], confidence: float) -> Uncertainty:
    """Return the uncertainty of the mean of these replicates."""
    members = grouped((process.repeat, process.throughput) for process in processes)
    names = {name for process in processes for name in process.throughput.effects}
    launches = [
        MeasuredLaunch(
            rate=math.log(geometric_mean([each.value for each in own])),
            profiles=tuple(each.profile for each in own if each.profile is not None),
            effects={name: mean([each.effects.get(name, 0.0) for each in own]) for name in names},
        )
        for _, own in sorted(members.items())
    ]
    known = uncertainty_of(
        geometric_mean([process.throughput.value for process in processes]),
        launches,
        is_lower_better=processes[0].throughput.direction == "lower",
        confidence=confidence,
    )
    return replace(known, components=tuple(_located(component, processes) for component in known.components))


def _located(component: Component, processes: Sequence[ReplicateResult]) -> Component:
    """Return a component with the repeat and step that show it most. Unchanged where it concerns all of them."""
    rates = [process.throughput for process in processes]
    mean_rate = geometric_mean([rate.value for rate in rates])
    stalls = [0.0 if rate.stall is None else rate.stall.seconds for rate in rates]
    shown: Mapping[str, list[float]] = {
        "launches": [abs(math.log(rate.value / mean_rate)) for rate in rates],
        "slow stretches": [0.0 if rate.profile is None else rate.profile.slowed for rate in rates],
        "stalls": stalls,
        "rare steps": stalls,
        **{name: [rate.effects.get(name, 0.0) for rate in rates] for name in (*LOWERED_BY, "gaps")},
    }
    most = max(shown.get(component.name, ()), default=0.0)
    if component.size is None or not most:
        return component
    process = processes[shown[component.name].index(most)]
    stall = process.throughput.stall if component.name in ("stalls", "rare steps") else None
    if stall is None:
        return replace(component, repeat=process.repeat)
    return replace(component, repeat=process.repeat, step=stall.step, seconds=stall.seconds)


def _judged(summary: BenchSummary, results: Sequence[StepResult], conditions: RunConditions) -> BenchSummary:
    """Return the summary with its score, and why its number is suspect."""
    perf, every = summary.perf, {process.repeat for process in summary.processes}
    repeats = _doubts(summary, results, conditions)
    doubts = tuple(sorted(repeats))
    if perf is None:
        # Numbers in different units have no mean; nothing below can be said of no number.
        return structs.replace(summary, validity="invalid" if summary.processes else None, doubts=doubts)
    score = None
    if summary.outcome == "passed" and summary.direction != "none":
        # Inverted for a lower-is-better metric, so that more is better in every score.
        score = perf * summary.instances if summary.direction == "higher" else summary.instances / perf
    known = summary.uncertainty
    uncertainty = None if known is None else replace(known, asked=conditions.precision)
    return structs.replace(
        summary,
        score=score,
        uncertainty=uncertainty,
        validity=_validity(doubts, uncertainty),
        doubts=doubts,
        doubt_repeats={doubt: tuple(sorted(repeats[doubt])) for doubt in doubts if every - repeats[doubt]},
    )


def _doubts(summary: BenchSummary, results: Sequence[StepResult], conditions: RunConditions) -> Mapping[str, Set[int]]:
    """Return the warnings about a benchmark, each with the repeats that it is about.

    Where it has no number, only those about its measurement.
    """
    processes, overlapped, has_number = summary.processes, summary.overlap, summary.perf is not None
    cases = {cases_of(summary.metrics, each.steps) for each in processes if each.throughput.basis == "metric"}
    of_all = {
        Doubt.CASES_DIFFER: len(cases) > 1,
        Doubt.NODES_DIFFER: _are_on_different_nodes(results, processes),
        Doubt.FEW_REQUESTS: summary.serving is not None and summary.serving.has_few_requests,
        Doubt.WRONG: any(result.why == "wrong" for result in results),
        Doubt.OVERLAP: has_number and overlapped is not None and overlapped < LEAST_OVERLAP,
        Doubt.MIXED: conditions.is_mixed if has_number else bool(processes),
        Doubt.SHORT: has_number and conditions.is_short,
    }
    seen = [(doubt, process.repeat) for process in processes for doubt in process.throughput.doubts]
    for result in results:
        if result.outcome == "passed":
            doubts = (*result.doubts, *(result.check_doubts if has_number else ()))
            seen += [(doubt, result.step.repeat) for doubt in doubts]
    every = {process.repeat for process in processes}
    found: dict[str, Set[int]] = {doubt: every for doubt, holds in of_all.items() if holds}
    return found | {doubt: set(repeats) for doubt, repeats in grouped(seen).items()}


def _validity(doubts: Sequence[str], uncertainty: Uncertainty | None) -> Validity:
    """Return `imprecise` only where nothing worse is known: of a suspect number nobody knows the uncertainty."""
    if doubts:
        return "suspect" if INVALID.isdisjoint(doubts) else "invalid"
    return "valid" if uncertainty is None or uncertainty.is_enough else "imprecise"


def _failures(results: Iterable[StepResult]) -> Iterable[Failure]:
    for result in results:
        if result.outcome in ("failed", "cancelled", "missing"):
            why = result.why or result.outcome
            yield Failure(step=result.step.id, why=why, detail=result.detail, log=result.log, node=result.node)


def _processes(results: Sequence[StepResult]) -> Iterable[ReplicateResult]:
    """Yield the replicates in which every step passed and that have a number."""
    jobs = grouped(((slot_of(result.step), result.step.repeat), result) for result in results)
    for (slot, repeat), members in jobs.items():
        if all(member.outcome == "passed" for member in members):
            throughput = job_throughput([member.measured for member in members])
            if throughput is not None and throughput.value >= SMALLEST_NUMBER:
                steps = tuple(member.step.id for member in members)
                yield ReplicateResult(steps=steps, slot=slot, repeat=repeat, throughput=throughput)


def slot_of(step: PlannedStep) -> str:
    """Return where an instance runs, `node/tag`. Empty for a step of a job that spans devices."""
    return "" if step.one_job else f"{step.node}/{step.tag}"


def _are_on_different_nodes(results: Sequence[StepResult], processes: Sequence[ReplicateResult]) -> bool:
    """Return whether replicates that have a number had other nodes than others of them."""
    counted = {process.repeat for process in processes}
    nodes = grouped((result.step.repeat, result.step.node) for result in results if result.step.repeat in counted)
    return len({*map(frozenset, nodes.values())}) > 1


def job_throughput(members: Sequence[Measurement]) -> Throughput | None:
    """Return the rate of a job: of a single step its rate, of several the items of all ranks over the seconds of the slowest."""
    throughputs = [member.throughput for member in members if member.throughput is not None]
    if len(throughputs) <= 1:
        return throughputs[0] if throughputs else None
    # A doubt of one step is a doubt of the job, however fast that step was.
    doubts = [doubt for throughput in throughputs for doubt in throughput.doubts]
    if len({(throughput.units, throughput.basis == "metric") for throughput in throughputs}) > 1:
        doubts.append(Doubt.MIXED)
    known = tuple(dict.fromkeys(doubts))
    totals = [total for throughput in throughputs for total in throughput.totals]
    if not totals:
        # Rates of milabench 1.3 add up; a metric of the whole job is reported by each node, as by each rank of one.
        values = [throughput.value for throughput in throughputs]
        value = geometric_mean(values) if throughputs[0].basis == "metric" else math.fsum(values)
        return replace(throughputs[0], value=value, doubts=known)
    items, step_s = math.fsum(total.items for total in totals), max(total.step_seconds for total in totals)
    slowest = max(throughputs, key=lambda throughput: max((total.seconds for total in throughput.totals), default=0.0))
    return replace(
        slowest,
        value=items / max(total.seconds for total in totals),
        steps_rate=items / step_s if slowest.steps_rate is not None and step_s > 0 else None,
        observations=sum(throughput.observations for throughput in throughputs),
        totals=tuple(totals),
        left_out=math.fsum(throughput.left_out for throughput in throughputs),
        doubts=known,
    )


def _overlap(results: Sequence[StepResult], clocks: SharedClocks) -> float | None:
    """Return the worst overlap among the replicates of a benchmark whose instances, or steps of a job, run concurrently.

    Instances on several nodes, with windows of different clocks, count together when they were released together. None
    for a single step.
    """
    spans = []
    for result in results:
        group, ahead_s = clocks.get(result.step.id, (result.step.node, 0.0))
        window, span = result.measured.window, None
        if window is not None and window.start is not None and window.stop is not None:
            span = window.start - ahead_s, window.stop - ahead_s
        spans.append(((result.step.repeat, group), span))
    return min(_known(map(overlap, grouped(spans).values())), default=None)


def _counts(results: Sequence[StepResult]) -> dict[str, int]:
    counts = {"planned": len(results), **dict.fromkeys(COUNTED_OUTCOMES, 0)}
    for result in results:
        counts[result.outcome] += 1
    return counts


def _validation(verdict: Verdict) -> Validation:
    return Validation(
        step=verdict.step,
        check=verdict.check,
        verdict=verdict.verdict,
        numbers=verdict.numbers,
        message=verdict.message,
    )


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _root_mean_square(spreads: Iterable[float | None]) -> float | None:
    """Return the root mean square of the known values."""
    known = _known(spreads)
    return math.sqrt(math.fsum(value * value for value in known) / len(known)) if known else None


def _total(values: Sequence[float | None]) -> float | None:
    """Return the sum, None if any part is not known."""
    known = _known(values)
    return math.fsum(known) if known and len(known) == len(values) else None


def _median(values: Iterable[float | None]) -> float | None:
    known = _known(values)
    return median(known) if known else None


def _metrics_json(results: Iterable[StepResult]) -> Iterable[dict[str, object]]:
    for result in results:
        measured = result.measured
        for name, value in (("loss_first", measured.losses.first), ("loss_last", measured.losses.last)):
            if value is not None:
                loss = Metric(name=name, value=value, direction="lower")
                yield {"step": result.step.id, **to_json_value(loss)}
        for metric in measured.metrics:
            yield {"step": result.step.id, **to_json_value(metric)}


_NO_RATE = (
    "no observation after warm-up: no rate. Shorten the warm-up with `--profile quick` or a smaller `voir.options.skip`"
)
_NO_RATIO = "its number is not above zero, so it has no result: results are compared by their ratios"
_READY = "it is ready"
"""State messages of a server, without its numbers."""


def _messages(results: Iterable[StepResult], serving: ServingCurve | None) -> tuple[str, ...]:
    """Return the messages of a server's curve, of the steps and of the checks, each once."""
    texts = dict.fromkeys(
        () if serving is None else seams.handler("curves: messages")(serving)
    )  # a set that keeps its order
    for result in results:
        measured = result.measured
        if result.outcome == "passed" and measured.task and measured.throughput is None:
            texts[_NO_RATE] = None
        number = measured.throughput
        main = [metric.value for metric in measured.metrics if metric.is_main] if number is None else [number.value]
        if result.outcome == "passed" and main and max(main) < SMALLEST_NUMBER:
            texts[_NO_RATIO] = None
        if result.outcome == "passed":  # else it is why it failed
            texts.update({one_line(log.problem): None for log in measured.logs if log.problem})
        for verdict in measured.verdicts:
            if verdict.verdict != "pass":
                texts[one_line(f"{verdict.check}: {verdict.message or verdict.verdict}")] = None
        why = result.detail if result.outcome == "skipped" else ""  # stands elsewhere
        others = (text for text in map(one_line, measured.messages) if not (why and text.endswith(why)))
        texts.update(dict.fromkeys(text for text in others if text != _READY))
    return tuple(texts)[:_MAX_MESSAGES]
