"""How long groups of steps took in earlier runs, and the estimate of a plan's duration from it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from milabench.analysis.json_codec import JsonKey, to_json_value
from milabench.analysis.sample_statistics import median
from milabench.events.attempts import attempts
from milabench.events.rundir import Run
from milabench.events.values import as_mapping, mappings_in
from milabench.shown import grouped

# Keys in which replicates, sides and runs of the same content differ, or which follow from the others.
_NOT_THE_CONTENT = ("id", "stem", "hash", "bench", "repeat", "group", "monitor")

STATED = "the suite"
"""The source of the time of a benchmark that has never run."""

Steps = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """An ended attempt at a group of steps: seconds from the first start to the last end, and whether all passed."""

    steps: Steps
    seconds: float
    is_passed: bool


def spans(run: Run) -> Iterator[Span]:
    """Yield the time of each attempt at each group, by the journal."""
    attempts_by_step = attempts(run.journal)
    for steps in groups_of(as_mapping(run.manifest.get("plan")).get("steps")):
        attempts_of = [
            {attempt.number: attempt for attempt in attempts_by_step.get(str(step.get("id")), ())} for step in steps
        ]
        for number in sorted(set.intersection(*map(set, attempts_of))):
            members = [by_number[number] for by_number in attempts_of]
            began = [attempt.began for attempt in members if attempt.began is not None]
            ended = [attempt.ended for attempt in members if attempt.ended is not None]
            # A group that was cut off took at least so long, and nobody knows how much longer.
            if len(began) == len(ended) == len(members):
                is_passed = all(attempt.outcome == "passed" for attempt in members)
                yield Span(steps=steps, seconds=max(0.0, max(ended) - min(began)), is_passed=is_passed)


def groups_of(steps: object) -> list[Steps]:
    """Return the steps of a plan's JSON that run together, group by group. Empty for a value that is no list of steps."""
    return list(grouped((str(step.get("group") or step.get("id")), step) for step in mappings_in(steps)).values())


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchEstimate:
    """How often a benchmark is run, on how many devices, and the earlier time of a replicate.

    `seconds` is the median of `n` in a `run`, None when it never passed. `is_same`: of exactly these steps. `n` is 0 and `run` is
    None where no run tells, also where the suite states the time.
    """

    bench: str
    replicates: int
    devices: int
    seconds: Annotated[float | None, JsonKey("seconds_each")] = None
    run: str | None = None
    n: int = 0
    is_same: Annotated[bool, JsonKey("same_steps")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanEstimate:
    """The expected time of a plan, from earlier runs."""

    benches: tuple[BenchEstimate, ...]

    @property
    def seconds(self) -> float:
        """Of the benchmarks that are known."""
        return sum(bench.replicates * bench.seconds for bench in self.benches if bench.seconds is not None)

    @property
    def seconds_each(self) -> dict[str, float]:
        """Seconds of a repeat, by benchmark, where known."""
        return {bench.bench: bench.seconds for bench in self.benches if bench.seconds is not None}

    @property
    def device_hours(self) -> float:
        """The seconds of each benchmark on each of its devices, in hours."""
        return sum(bench.replicates * bench.devices * (bench.seconds or 0.0) for bench in self.benches) / 3600

    @property
    def runs(self) -> tuple[str, ...]:
        """The runs that it was taken from."""
        return tuple(dict.fromkeys(bench.run or STATED for bench in self.benches if bench.seconds is not None))

    @property
    def unknown(self) -> tuple[str, ...]:
        """The benchmarks of which no earlier run tells."""
        return tuple(bench.bench for bench in self.benches if bench.seconds is None)

    def to_json(self) -> dict[str, Any]:
        """Return `estimate` of `milabench plan run --json`. See docs/reference/protocol.md, section 6."""
        return {
            "seconds": self.seconds,
            "device_hours": self.device_hours,
            "unknown": list(self.unknown),
            "benchmarks": to_json_value(self.benches),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedBenchmark:
    """A benchmark of a plan: how often it is run, and the steps of a replicate, as in the plan's JSON.

    `stated_s` is the suite's stated time of a replicate, in seconds.
    """

    bench: str
    replicates: int
    steps: Steps
    stated_s: float | None = None


def estimate_durations(wanted: Sequence[PlannedBenchmark], runs: Iterable[Run]) -> PlanEstimate:
    """Estimate how long benchmarks will take from `runs`, the newest first, of which no more are read than needed.

    The newest run in which exactly these steps passed tells. Else the newest in which a benchmark of this name passed
    with this profile. Else the suite, where it states it.
    """
    estimates = {planned.bench: _unknown(planned) for planned in wanted}
    names = {_alike(planned.steps) for planned in wanted}
    for run in runs:
        same, alike = _passed(run, names)
        for planned in wanted:
            before, exact = estimates[planned.bench], same.get(_content(planned.steps))
            seconds = exact or alike.get(_alike(planned.steps))
            if seconds and (before.seconds is None or (exact and not before.is_same)):
                estimates[planned.bench] = replace(
                    before, run=run.name, seconds=median(seconds), n=len(seconds), is_same=bool(exact)
                )
        if all(estimate.is_same for estimate in estimates.values()):
            break
    for planned in wanted:
        if estimates[planned.bench].seconds is None:
            estimates[planned.bench] = replace(estimates[planned.bench], seconds=planned.stated_s)
    return PlanEstimate(benches=tuple(estimates.values()))


def _unknown(planned: PlannedBenchmark) -> BenchEstimate:
    devices = {(step.get("node"), device) for step in planned.steps for device in step.get("devices") or ()}
    return BenchEstimate(bench=planned.bench, replicates=planned.replicates, devices=len(devices))


def _passed(
    run: Run, names: Collection[tuple[str, str]]
) -> tuple[dict[str, list[float]], dict[tuple[str, str], list[float]]]:
    """Return the seconds of the groups that passed in a run: by their content, and by benchmark and profile."""
    contents: dict[Any, str] = {}  # the same for all replicates of a run
    same: dict[str, list[float]] = {}
    alike: dict[tuple[str, str], list[float]] = {}
    for span in spans(run):
        name, bench = _alike(span.steps), span.steps[0].get("bench")
        if span.is_passed and name in names:
            if bench not in contents:
                contents[bench] = _content(span.steps)
            same.setdefault(contents[bench], []).append(span.seconds)
            alike.setdefault(name, []).append(span.seconds)
    return same, alike


def _content(steps: Steps) -> str:
    """Return a digest of everything that decides the work of a group's steps."""
    kept = [{key: value for key, value in step.items() if key not in _NOT_THE_CONTENT} for step in steps]
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()


def _alike(steps: Steps) -> tuple[str, str]:
    """Return the benchmark, without the side of an A/B run, and the profile: equal values take about as long."""
    config = as_mapping(steps[0].get("config"))
    return str(config.get("name") or steps[0].get("bench")), str(as_mapping(config.get("measure")).get("profile"))
