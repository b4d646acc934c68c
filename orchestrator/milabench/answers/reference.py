"""The answers of a run compared with a reference's: equal devices with equal software must have the same bits."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import structs

from milabench.analysis.comparison_model import System
from milabench.analysis.summary_model import BenchSummary, Failure, KeptAnswers, Summary, Validation
from milabench.analysis.system_diff import differing_work
from milabench.answers.vote import CHECK, BitComparison
from milabench.events.doubts import Doubt


def compared_with(run: System, reference: System) -> Summary:
    """Return the run's summary with a verdict on each of its answers that the reference has, too."""
    kept = {bench.bench: bench.answers for bench in reference.summary.benchmarks if bench.answers}
    benches = [
        _compared(bench, kept[bench.bench], differing_work([reference, run], bench.bench))
        if bench.answers and bench.bench in kept
        else bench
        for bench in run.summary.benchmarks
    ]
    return structs.replace(run.summary, benchmarks=tuple(benches))


def _compared(bench: BenchSummary, kept: tuple[KeptAnswers, ...], unlike: str) -> BenchSummary:
    wrong: list[str] = []
    unknown = [f"does other work than the reference: {unlike}"] if unlike else []
    for own in () if unlike else bench.answers:
        for what, is_wrong in _differences(own, kept):
            (wrong if is_wrong else unknown).append(what)
    verdict = Validation(
        step=bench.bench,
        check=CHECK,
        verdict="fail" if wrong else "warn" if unknown else "pass",
        numbers={},
        message=wrong[0] if wrong else f"not compared with the reference's answers: {unknown[0]}" if unknown else "",
    )
    bench = structs.replace(bench, validations=(*bench.validations, verdict))
    if not wrong:
        return bench
    return structs.replace(
        bench,
        outcome="failed",
        score=None,
        validity="invalid",
        doubts=tuple(sorted({*bench.doubts, Doubt.WRONG})),
        failures=(*bench.failures, Failure(step=bench.bench, why="wrong", detail=wrong[0], log=None)),
    )


def _differences(own: KeptAnswers, kept: tuple[KeptAnswers, ...]) -> Iterator[tuple[str, bool]]:
    """Yield how a device model's answers differ from the kept ones, and whether that is wrong or unknown."""
    alike = [other for other in kept if (other.device, other.rank) == (own.device, own.rank)]
    if not alike:
        yield f"they are of {', '.join(sorted({other.device for other in kept}))}, and this is {own.device}", False
        return
    same = next((other for other in alike if other.software == own.software), None)
    if same is None:
        yield f"they are of {alike[0].software}, and this is {own.software}", False
        return
    compare = BitComparison(max(own.tolerance, same.tolerance))
    rank = "" if own.rank is None else f" rank {own.rank}"
    pairs = (("loss", own.losses, same.losses), ("gradient norm", own.gradients, same.gradients))
    for what, mine, other in pairs:
        if not mine or not other:
            continue
        step = compare.first_difference(mine, other)
        if step == 1:
            yield f"the first {what} differs already: they began from different states", False
        elif step is not None:
            yield f"{own.device}{rank} differs from the reference: its {what} from step {step} on", True
