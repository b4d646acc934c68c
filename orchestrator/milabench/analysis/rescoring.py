"""A summary seen by other weights, against a reference run, or as milabench 1.3 would have scored it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from milabench.analysis.compare import compare_systems
from milabench.analysis.comparison_model import System
from milabench.analysis.sample_statistics import geometric_mean
from milabench.analysis.score import Score, compat_score
from milabench.analysis.summary import scored
from milabench.analysis.summary_model import BenchSummary, Summary


def reweighted(summary: Summary, weights: Mapping[str, float]) -> Summary:
    """Return the summary with these weights, zero for what they do not name, and the score that follows."""
    benches = tuple(replace(bench, weight=weights.get(bench.bench, 0.0)) for bench in summary.benchmarks)
    return replace(summary, benchmarks=benches, score=scored(benches))


def relative_to(summary: Summary, reference: Summary) -> Summary:
    """Return the summary with each benchmark's ratio to the reference's, and as its score their weighted geometric mean.

    Weights are the run's own. The score is incomplete by what either of the two lacks.
    """
    weights = {bench.bench: bench.weight for bench in summary.benchmarks if bench.weight is not None}
    is_known = len(weights) == len(summary.benchmarks)
    systems = (System(name="reference", summary=reference), System(name="run", summary=summary))
    comparison = compare_systems(systems, weights=weights if is_known and weights else None)
    contrasts = {row.bench: row.contrasts[0] for row in comparison.rows}
    benches = tuple(
        replace(bench, ratio=contrast.ratio, ratio_ci95=contrast.ci95)
        if (contrast := contrasts.get(bench.bench)) is not None
        else bench
        for bench in summary.benchmarks
    )
    index = comparison.indices[-1]  # where there are two for want of known weights, that by the run's
    score = Score(
        value=index.value,
        ci95=index.ci95,
        complete=index.complete,
        is_weighted=index.is_weighted,
        reference=reference_name(reference),
        suspects=index.suspects,
    )
    return replace(summary, benchmarks=benches, score=score)


def reference_name(reference: Summary) -> str:
    """Return what a score is relative to: the run, when it was made, and by which version of the suite's program."""
    version = f"milabench {reference.version}" if reference.version else ""
    created = f"of {reference.created}" if reference.created else ""
    about = ", ".join(filter(None, (version, created)))
    return f"{reference.run} ({about})" if about else reference.run


def _within_steps(bench: BenchSummary) -> float:
    """Return what milabench 1.3 called the rate: without the time between steps and epochs, where that is known."""
    rates = [process.throughput.steps_rate or process.throughput.value for process in bench.processes]
    return geometric_mean(rates)


def milabench13_summary(summary: Summary) -> Summary:
    """Return the summary with the score of milabench 1.3; see `compat_score`."""
    entries = []
    for bench in summary.benchmarks:
        ran = bench.counts["planned"] - bench.counts["skipped"]
        rate = (
            _within_steps(bench) * bench.instances if bench.perf is not None and bench.direction == "higher" else None
        )
        entries.append((rate, bench.weight or 0.0, bench.counts["passed"] / ran if ran else 0.0))
    counted = sum(1 for rate, weight, _ in entries if rate is not None and weight)
    suspects = sum(1 for bench in summary.benchmarks if bench.validity == "suspect" and bench.weight)
    wanted = sum(1 for _, weight, _ in entries if weight)
    return replace(
        summary,
        score=Score(
            value=compat_score(entries),
            ci95=None,
            complete=(counted, wanted),
            is_weighted=wanted > 0,
            is_compat=True,
            suspects=suspects,
        ),
    )
