"""A summary seen by other weights, against a reference run, or as milabench 1.3 would have scored it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace

from msgspec import structs

from milabench.analysis.compare import compare_systems
from milabench.analysis.comparison_model import ComparisonRow, System
from milabench.analysis.sample_statistics import geometric_mean
from milabench.analysis.score import Score, compat_score
from milabench.analysis.sides import ACROSS_HINT
from milabench.analysis.summary import scored
from milabench.analysis.summary_model import BenchSummary, Summary, validity_words
from milabench.analysis.system_diff import knows_work
from milabench.events.values import as_mapping, finite_number
from milabench.seams import handler, made_by, takes_part


def reweighted(summary: Summary, weights: Mapping[str, float], weights_of: str) -> Summary:
    """Return the summary with these weights, else zero, and the score that follows. `weights_of` is their name."""
    benches = tuple(structs.replace(bench, weight=weights.get(bench.bench, 0.0)) for bench in summary.benchmarks)
    return structs.replace(summary, benchmarks=benches, score=structs.replace(scored(benches), weights_of=weights_of))


def relative_to(run: System, reference: System, *, is_strict: bool = False) -> Summary:
    """Return the run's summary with each benchmark's ratio to the reference's, and as its score their weighted geometric mean.

    Weights are the run's own. The score is incomplete where either of the two lacks a benchmark. Other work has no ratio.
    `is_strict`: nor has work that is not known. Answers that differ from the reference's make a number invalid.
    """
    run = replace(run, summary=with_answers_of(run, reference))
    summary = run.summary
    weights = {bench.bench: bench.weight for bench in summary.benchmarks if bench.weight is not None}
    is_known = len(weights) == len(summary.benchmarks)
    systems = (replace(reference, name="the reference"), replace(run, name="this run"))
    if is_strict:
        known = {bench.bench for bench in summary.benchmarks if all(knows_work(side, bench.bench) for side in systems)}
        systems = (_only(systems[0], known), systems[1])
    comparison = compare_systems(systems, weights=weights if is_known and weights else None)
    rows = {row.bench: row for row in comparison.rows}
    benches = tuple(_beside(bench, rows[bench.bench]) for bench in summary.benchmarks)
    if takes_part("compute use"):
        benches = handler("compute use").with_peaks_of(benches, reference.summary)
    index = comparison.indices[-1]  # where there are two for want of known weights, that by the run's
    score = Score(
        value=index.value,
        ci95=index.ci95,
        complete=index.complete,
        is_weighted=index.is_weighted,
        reference=reference_name(reference.summary),
        suspects=index.suspects,
        weights_of=run.summary.score.weights_of,
    )
    return structs.replace(summary, benchmarks=benches, score=score)


def with_answers_of(run: System, reference: System) -> Summary:
    """Return the run's summary, in which numbers with other answers than the reference's on equal devices are wrong."""
    if not any(bench.answers for bench in run.summary.benchmarks):
        return run.summary
    return made_by("answers of a reference", run.summary, run, reference)


def _only(system: System, names: Collection[str]) -> System:
    benches = tuple(bench for bench in system.summary.benchmarks if bench.bench in names)
    return replace(system, summary=structs.replace(system.summary, benchmarks=benches))


def _beside(bench: BenchSummary, row: ComparisonRow) -> BenchSummary:
    """Return a benchmark with its ratio to the reference, or why it has none."""
    (first, own), contrast = row.sides, row.contrasts[0]
    if contrast is None:
        reasons = (
            "the reference has no such benchmark, or not of known arguments" if first.outcome == "absent" else "",
            f"the reference {first.why_not}" if first.why_not else "",
            own.why_not.removesuffix(ACROSS_HINT),
            f"is in {own.units}, the reference in {first.units}" if first.units != own.units else "another direction",
        )
        return structs.replace(bench, no_ratio=next(filter(None, reasons))) if bench.perf is not None else bench
    validity = validity_words(first.validity, first.doubts)
    return structs.replace(bench, ratio=contrast.ratio, ratio_ci95=contrast.ci95, reference_validity=validity)


def machine_text(summary: Summary) -> str:
    """Return the machine of a run in a few words: `2-core virtual machine (AMD EPYC)`, `8 x NVIDIA H100 on 2 nodes`."""
    nodes = summary.nodes
    accelerators = Counter(str(d.get("name") or "unknown") for d in summary.devices if d.get("arch") != "cpu")
    if accelerators:
        several = f" on {len(nodes)} nodes" if len(nodes) > 1 else ""
        return ", ".join(f"{count} x {name}" for name, count in accelerators.items()) + several
    kinds = Counter(map(_processor, nodes))
    return ", ".join(f"{count} x {kind}" if count > 1 else kind for kind, count in kinds.items())


def _processor(node: Mapping[str, object]) -> str:
    cpu, details = as_mapping(node.get("cpu")), as_mapping(as_mapping(node.get("details")).get("cpu"))
    kind = "virtual machine" if details.get("virtual") else "machine"
    # What a quota or an affinity leaves us may be less than there is; threads of a core are no cores.
    counts = [n for n in map(finite_number, (cpu.get("count"), details.get("cores"))) if n]
    count = f"{min(counts):g}-core " if counts else ""
    return f"{count}{kind} ({cpu.get('model') or 'unknown processor'})"


def reference_name(reference: Summary) -> str:
    """Return the name of a score's reference: the run, its machine, its date, and the version of the suite's program."""
    version = f"milabench {reference.version}" if reference.version else ""
    created = reference.created.partition("T")[0]
    profile = f"profile {reference.profile}" if reference.profile else ""
    about = ", ".join(filter(None, (machine_text(reference), version, created, profile)))
    return f"{reference.run} ({about})" if about else reference.run


def _within_steps(bench: BenchSummary) -> float:
    """Return milabench 1.3's rate: without the time between steps and epochs, where that is known."""
    rates = [process.throughput.steps_rate or process.throughput.value for process in bench.processes]
    return geometric_mean(rates)


def milabench13_summary(summary: Summary) -> Summary:
    """Return the summary with the score of milabench 1.3. See `compat_score`."""
    entries = []
    for bench in summary.benchmarks:
        if (figures := bench.milabench13) is not None:  # its own, to the last digit
            entries.append((figures.score, bench.weight or 0.0, 1.0))
            continue
        ran = bench.counts["planned"] - bench.counts["skipped"]
        has_rate = bench.perf is not None and bench.direction == "higher"
        rate = _within_steps(bench) * bench.instances if has_rate else None
        entries.append((rate, bench.weight or 0.0, bench.counts["passed"] / ran if ran else 0.0))
    counted = sum(1 for rate, weight, _ in entries if rate is not None and weight)
    suspects = sum(1 for bench in summary.benchmarks if bench.validity == "suspect" and bench.weight)
    wanted = sum(1 for _, weight, _ in entries if weight)
    return structs.replace(
        summary,
        score=Score(
            value=compat_score(entries),
            ci95=None,
            complete=(counted, wanted),
            is_weighted=wanted > 0,
            is_compat=True,
            suspects=suspects,
            weights_of=summary.score.weights_of,
        ),
    )
