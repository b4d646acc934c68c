"""A summary that was written down -> the summary: what has been computed once need not be computed again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast, get_args

from milabench.analysis.ab import ab_of
from milabench.analysis.intervals import Interval
from milabench.analysis.measure import Basis, Direction, Throughput, Totals
from milabench.analysis.score import Score
from milabench.analysis.steady_state import Steadiness
from milabench.analysis.steps import SupersededAttempt
from milabench.analysis.summary import SCHEMA, BenchSummary, Failure, Flaky, ReplicateResult, Skip, Summary, Validity
from milabench.errors import RecordError
from milabench.events.json_access import as_mapping
from milabench.events.model import OutcomeName
from milabench.events.numbers import finite_number


def summary_from_json(told: Mapping[str, Any], manifest: Mapping[str, Any] | None = None) -> Summary:
    """The summary whose `to_json` this is, also of one by a version that told less. Raises RecordError for anything else.

    `manifest` is that of its run, from which the pairs of an A/B run are found again.
    """
    if told.get("schema") != SCHEMA or not isinstance(told.get("benchmarks"), list):
        raise RecordError(
            f"is no summary or report of a run: schema {told.get('schema')!r}, and this version reads {SCHEMA}"
        )
    try:
        return _summary(told, manifest or {})
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise RecordError(f"is no summary or report of a run: {type(error).__name__}: {error}") from None


def _summary(told: Mapping[str, Any], manifest: Mapping[str, Any]) -> Summary:
    score = as_mapping(told.get("score"))
    complete = score.get("complete") or (0, 0)
    verdict = told.get("verdict")
    benches = tuple(_bench(as_mapping(each)) for each in told["benchmarks"])
    return Summary(
        run=str(told.get("run", "")),
        verdict=cast(
            Literal["passed", "failed", "interrupted"],
            verdict if verdict in ("passed", "failed", "interrupted") else "failed",
        ),
        benchmarks=benches,
        score=Score(
            value=finite_number(score.get("value")),
            ci95=_interval(score.get("ci95")),
            complete=(int(complete[0]), int(complete[1])),
            is_weighted=bool(score.get("weighted")),
            reference=None if score.get("reference") is None else str(score["reference"]),
            is_compat=bool(score.get("compat")),
            suspects=int(score.get("suspects") or 0),
        ),
        system=as_mapping(told.get("system")),
        profile=str(told.get("profile", "")),
        is_ended=bool(told.get("ended", True)),
        created=str(told.get("created", "")),
        version=str(told.get("version", "")),
        argv=tuple(map(str, told.get("argv", ()))),
        options=as_mapping(told.get("options")),
        software={str(name): str(version) for name, version in as_mapping(told.get("software")).items()},
        overhead={str(name): float(cost) for name, cost in as_mapping(told.get("overhead")).items()},
        accelerators=tuple(as_mapping(device) for device in told.get("accelerators", ())),
        aim=as_mapping(told.get("aim")),
        replicates=as_mapping(told.get("replicates")),
        ab=ab_of(manifest, benches),
    )


def _bench(told: Mapping[str, Any]) -> BenchSummary:
    metrics = tuple(as_mapping(each) for each in told.get("metrics", ()))
    processes = tuple(_process(each) for each in metrics if each.get("metric") == "rate" and "repeat" in each)
    outcome, validity = told["outcome"], told.get("validity")
    if outcome not in get_args(OutcomeName):
        raise ValueError(f"no outcome {outcome!r}")
    return BenchSummary(
        bench=str(told["bench"]),
        outcome=cast(OutcomeName, outcome),
        counts={str(name): int(count) for name, count in as_mapping(told["counts"]).items()},
        ngpu=int(told.get("ngpu", 0)),
        nodes=int(told.get("nodes", 0)),
        instances=int(told.get("instances", len({one.place for one in processes}))),
        processes=processes,
        perf=finite_number(told.get("perf")),
        units=str(told.get("units", "")),
        direction=_direction(told.get("direction")),
        ci95=_interval(told.get("ci95")),
        spread=finite_number(told.get("spread")),
        spread_within=finite_number(told.get("spread_within")),
        spread_devices=finite_number(told.get("spread_devices")),
        spread_processes=finite_number(told.get("spread_processes")),
        spread_replicates=finite_number(told.get("spread_replicates")),
        replicates=int(told.get("replicates", len({one.repeat for one in processes}))),
        memory_peak_mib=finite_number(told.get("memory_peak_MiB")),
        energy_j=finite_number(told.get("energy_J")),
        first_step_s=finite_number(told.get("first_step_s")),
        weight=finite_number(told.get("weight")),
        score=finite_number(told.get("score")),
        validity=cast("Validity | None", validity if validity in get_args(Validity) else None),
        reasons=_words(told.get("reasons", ())),
        failures=tuple(
            Failure(step=one["step"], why=one["why"], detail=one["detail"], log=one["log"])
            for one in told.get("failures", ())
        ),
        skipped=tuple(Skip(step=one["step"], detail=one["detail"]) for one in told.get("skipped", ())),
        flaky=tuple(
            Flaky(
                step=one["step"],
                attempt=one["attempt"],
                others=tuple(SupersededAttempt(**other) for other in one["others"]),
            )
            for one in told.get("flaky", ())
        ),
        metrics=metrics,
        messages=_words(told.get("messages", ())),
        overlap=finite_number(told.get("overlap")),
        validations=tuple(as_mapping(each) for each in told.get("validations", ())),
    )


def _process(told: Mapping[str, Any]) -> ReplicateResult:
    window = as_mapping(told.get("window"))
    basis = told.get("basis")
    steady = None
    if window:
        steady = Steadiness(
            n=int(window["n"]),
            settled_at=int(told["warmup_left"]),
            drift=float(told["drift"]),
            lag1=float(window["lag1"]),
            n_effective=float(told["n_effective"]),
            is_steady=bool(window["steady"]),
        )
    return ReplicateResult(
        steps=_words(told.get("steps") or (told["step"],)),
        place=str(told.get("place", "")),
        repeat=int(told["repeat"]),
        throughput=Throughput(
            value=float(told["value"]),
            units=str(told.get("units", "")),
            direction=_direction(told.get("direction")),
            basis=cast(Basis, basis if basis in get_args(Basis) else "ratio-of-totals"),
            observations=int(told.get("observations", 0)),
            totals=tuple(Totals(**each) for each in told.get("totals", ())),
            spread_within=finite_number(told.get("spread_within")),
            lag1=finite_number(told.get("lag1")),
            steady=steady,
            latency={str(name): float(value) for name, value in as_mapping(told.get("latency")).items()},
            left_out=finite_number(told.get("left_out")) or 0.0,
            doubts=_words(told.get("doubts", ())),
        ),
    )


def _interval(told: Any) -> Interval | None:
    return (float(told[0]), float(told[1])) if isinstance(told, Sequence) and len(told) == 2 else None


def _direction(told: Any) -> Direction:
    return cast(Direction, told) if told in get_args(Direction) else "none"


def _words(told: Any) -> tuple[str, ...]:
    return tuple(str(word) for word in told)
