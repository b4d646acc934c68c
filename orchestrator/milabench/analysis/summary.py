"""A run directory -> the summary of the run, benchmark by benchmark, with its machines and software."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from msgspec import structs

from milabench.analysis.ab_run import ab_of
from milabench.analysis.bench_summary import RunConditions, bench_summary, skipped_bench
from milabench.analysis.job_mix import costs_of
from milabench.analysis.measure import Measurement
from milabench.analysis.replicates import PRECISIONS
from milabench.analysis.score import Score, ScoreEntry, score
from milabench.analysis.step_results import ChecksOf, CourseOf, StepResult, planned_steps, step_result, unchecked
from milabench.analysis.summary_model import BenchSummary, JobSummary, Summary
from milabench.analysis.uncertainty import CONFIDENCE, CONFIDENCE_OF_STOPPED
from milabench.events.attempts import attempts
from milabench.events.rundir import Run
from milabench.events.shares import Share
from milabench.events.values import as_mapping, finite_number, mappings_in
from milabench.seams import handler, missing
from milabench.shown import grouped


def summarise(run: Run, checks: ChecksOf = unchecked, course: CourseOf | None = None) -> Summary:
    """Return the summary of a run, from its records, wherever they stop. `checks` and `course` observe every step's records.

    Raises RecordError when they cannot be read.
    """
    attempts_of = attempts(run.journal)
    results = [
        step_result(run, planned, attempts_of.get(planned.id, ()), checks, course) for planned in planned_steps(run)
    ]
    measured = [result.measured for result in results]
    profile = str(run.manifest.get("profile") or "")
    by_bench = grouped((result.step.bench, result) for result in results)
    aim = _numbers(run.manifest.get("aim"))
    conditions = _conditions(run, profile, aim.get("precision"))
    system = described_system(run.manifest, measured)
    benches = [bench_summary(name, members, conditions) for name, members in by_bench.items()]
    benches = _with_compute_use(benches, by_bench, system)
    suite, about = as_mapping(run.manifest.get("suite")), as_mapping(run.manifest.get("about"))
    for entry in mappings_in(as_mapping(run.manifest.get("plan")).get("skipped")):
        name = str(entry.get("bench", ""))
        benches.append(skipped_bench(name, str(entry.get("why", "")), as_mapping(suite.get(name))))
    benches = [
        structs.replace(
            bench, about=about.get(bench.bench, ""), size=str(as_mapping(suite.get(bench.bench)).get("size") or "")
        )
        for bench in benches
    ]
    ab = ab_of(run.manifest, benches)
    ends = [entry for entry in run.journal if entry.get("run") == "ended"]
    argv = run.manifest.get("argv")
    return Summary(
        run=run.name,
        verdict=_verdict(benches, was_interrupted=run.is_ended and run.verdict == "interrupted"),
        benchmarks=tuple(benches),
        score=scored(benches if ab is None else []),
        system=system,
        profile=profile,
        is_ended=run.is_ended,
        created=str(run.manifest.get("created") or ""),
        version=str(run.manifest.get("version") or ""),
        capsule=str(run.manifest.get("capsule") or ""),
        argv=tuple(str(word) for word in argv) if isinstance(argv, list) else (),
        options=as_mapping(run.manifest.get("options")),
        software=versions(measured),
        overhead=_overhead(ends),
        aim=aim,
        replicates={
            str(name): _numbers(replicates) for name, replicates in as_mapping(run.manifest.get("replicates")).items()
        },
        ab=ab,
        accelerators=recorded_accelerators(measured),
        jobs=tuple(_job_summary(share) for share in run.shares.values()),
    )


def _with_compute_use(
    benches: list[BenchSummary], results: Mapping[str, Sequence[StepResult]], system: Mapping[str, object]
) -> list[BenchSummary]:
    """Return the benchmarks with the use of their devices, or with a line that it is left out."""
    if not (lacking := missing("compute use")):
        used: list[BenchSummary] = handler("compute use").with_compute_use(benches, results, system)
        return used
    line = f"how much of its devices it uses {lacking}"
    known = {name for name, own in results.items() if any(result.step.flops_per_item is not None for result in own)}
    return [
        structs.replace(bench, messages=(*bench.messages, line)) if bench.bench in known else bench for bench in benches
    ]


def _conditions(run: Run, profile: str, stopped_at: float | None) -> RunConditions:
    """Return the conditions of all benchmarks of a run. `stopped_at` is the precision until which they were measured on."""
    usual = PRECISIONS.get(profile, PRECISIONS["default"])
    return RunConditions(
        precision=stopped_at or (usual and finite_number(run.manifest.get("precision"))) or usual,
        confidence=CONFIDENCE if stopped_at is None else CONFIDENCE_OF_STOPPED,
        # Of a pair both sides would have to be.
        most_others=None if run.manifest.get("ab") else stopped_at,
        is_short=profile == "quick",
        is_mixed=any(entry.get("run") == "mixed" for entry in run.journal),
        has_accelerators=as_mapping(run.manifest.get("system")).get("arch") != "cpu",
        clocks=_shared_clocks(run.journal),
        costs=costs_of(as_mapping(run.manifest.get("costs"))),
        is_of_milabench13=run.is_of_milabench13,
    )


def _job_summary(share: Share) -> JobSummary:
    """Return the result of a share's job. Its nodes as the scheduler names them, else as the job itself does."""
    job = share.job
    if job is None:
        return JobSummary(share=share.name, steps=share.steps, unpassed=share.unpassed)
    return JobSummary(
        share=share.name,
        job=job.id,
        stage=job.stage,
        result=job.result,
        state=job.state,
        reason=job.reason,
        exit_code=job.exit_code,
        failure=job.failure if share.unpassed else "",
        nodes=job.nodes or share.ran_on,
        steps=share.steps,
        unpassed=share.unpassed,
    )


def _numbers(values: object) -> dict[str, float | None]:
    """Return the numbers of a mapping, whole numbers as such. Other values are left out."""
    return {
        str(name): value if finite_number(value) is not None else None for name, value in as_mapping(values).items()
    }


def _overhead(ends: Iterable[Mapping[str, object]]) -> dict[str, float]:
    """Return the cost of the harness, over all resumptions of the run. A share cannot be added up."""
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


def _shared_clocks(journal: Iterable[Mapping[str, object]]) -> dict[str, tuple[str, float]]:
    """Return the steps released together on several nodes, each with its group and its node's clock offset in seconds."""
    clocks: dict[str, tuple[str, float]] = {}
    for entry in journal:
        if entry.get("state") != "released":
            continue
        for step, node in as_mapping(entry.get("steps")).items():
            ahead_s = finite_number(as_mapping(as_mapping(entry.get("clocks")).get(node)).get("ahead_s"))
            if ahead_s is not None:
                clocks[step] = str(entry.get("group")), ahead_s
    return clocks


def scored(benches: Iterable[BenchSummary]) -> Score:
    """Return which of some benchmarks would count in a score, by their weights. It has no value without a reference."""
    entries = [
        ScoreEntry(
            value=bench.score if bench.validity != "invalid" else None,
            weight=bench.weight,
            is_suspect=bench.validity == "suspect",
        )
        for bench in benches
    ]
    # A mean of tokens, images and Tflops a second changes with their units: nothing follows from it by itself.
    return structs.replace(score(entries), value=None, ci95=None)


def described_system(manifest: Mapping[str, object], measured: Iterable[Measurement]) -> Mapping[str, object]:
    """Return the system as the manifest holds it, or as milabench 1.3 described it in its records, in the same form."""
    return as_mapping(manifest.get("system")) or _system_of_1_3(measured)


def versions(measured: Iterable[Measurement]) -> dict[str, str]:
    """Return versions by name, from the meta records: Python and the packages that decide speed; several versions are joined."""
    versions_of: dict[str, dict[str, None]] = {}
    for measurement in measured:
        meta = measurement.meta
        packages = as_mapping(meta.get("packages"))
        recorded = {"python": meta.get("python"), **{name: packages.get(name) for name in ("torch", "jax", "numpy")}}
        for name, version in recorded.items():
            if isinstance(version, str) and version:
                versions_of.setdefault(name, {})[version] = None
        shims = meta.get("shims")
        for shim in shims if isinstance(shims, list) else ():
            versions_of.setdefault("shims", {})[str(shim)] = None
    return {name: ", ".join(sorted(versions)) for name, versions in versions_of.items()}


def recorded_accelerators(measured: Iterable[Measurement]) -> tuple[Mapping[str, object], ...]:
    """Return the facts of each accelerator in the meta records (driver, firmware, clocks, power limit), by node and number."""
    by_device: dict[tuple[str, str], Mapping[str, object]] = {}
    for measurement in measured:
        accelerators = measurement.meta.get("accelerators")
        for device in accelerators if isinstance(accelerators, list) else ():
            if isinstance(device, Mapping):
                node = str(measurement.meta.get("hostname") or "")
                by_device.setdefault((node, str(device.get("index"))), {"hostname": node, **device})
    return tuple(device for _, device in sorted(by_device.items(), key=lambda item: item[0]))


def _system_of_1_3(measured: Iterable[Measurement]) -> Mapping[str, object]:
    """Return the machine as milabench 1.3 described it in its meta records, in the form of our manifests."""
    for measurement in measured:
        meta = measurement.meta
        cpu, accelerators = as_mapping(meta.get("cpu")), as_mapping(meta.get("accelerators"))
        if not cpu and not accelerators:
            continue
        devices = []
        for index, device in enumerate(as_mapping(accelerators.get("gpus")).values()):
            memory = finite_number(as_mapping(as_mapping(device).get("memory")).get("total"))
            devices.append({"index": index, "name": str(as_mapping(device).get("product", "")), "memory_MiB": memory})
        system = as_mapping(meta.get("os"))
        node = {
            "name": "local",
            "hostname": str(system.get("nodename", "")),
            "cpu": {"model": str(cpu.get("brand", "")), "count": finite_number(cpu.get("count"))},
            "os": str(system.get("sysname", "")),
            "kernel": str(system.get("release", "")),
            "devices": devices,
        }
        return {"arch": str(accelerators.get("arch") or ""), "nodes": [node]}
    return {}
