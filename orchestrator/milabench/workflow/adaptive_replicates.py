"""Extends a run after its pilot: the number of replicates of each benchmark is computed once, recorded, and then fixed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from milabench.analysis.duration_estimate import spans
from milabench.analysis.replicates import PILOT, Pilot, PrecisionTarget, Replicates, replicates
from milabench.events.rundir import Run, open_run
from milabench.workflow.execution import ExtendPlan, PlanExtension
from milabench.workflow.planning import Request, plan_request

if TYPE_CHECKING:
    from milabench.analysis.summary_model import Summary


def after_pilot(request: Request) -> ExtendPlan | None:
    """Return the function that extends the plan after the pilot; None without a pilot, or when the numbers are decided."""
    target = request.target
    if target is None or target.precision is None or request.context.plan_context.replicates:
        return None
    precision, budget_s = target.precision, target.budget_s

    def extend(path: Path) -> PlanExtension | None:
        run = open_run(path)
        if "replicates" in run.manifest:
            return None
        pilots, spent_s = pilots_of(run)
        left_s = None if budget_s is None else budget_s - spent_s
        numbers = replicates(pilots, precision=precision, budget_s=left_s)
        plan = plan_request(request.repeated(PILOT, {name: number.planned for name, number in numbers.items()})).plan
        manifest = {"replicates": {name: number.to_json() for name, number in numbers.items()}}
        return PlanExtension(plan=plan, manifest=manifest, messages=tuple(replicate_decision_lines(numbers, target)))

    return extend


def replicate_decision_lines(numbers: Mapping[str, Replicates], target: PrecisionTarget) -> list[str]:
    """Return the decision for a person, a line for each benchmark."""
    from milabench.report.labels import replicates_text

    return [
        f"{name}: {replicates_text(number.to_json(), target.to_json())}" for name, number in sorted(numbers.items())
    ]


def pilots_of(run: Run) -> tuple[dict[str, Pilot], float]:
    """Return the pilot of each benchmark (of an A/B run: of each pair), and the seconds that all attempts took.

    Computed from the records alone, so that a run which was killed in between decides the same when it is resumed.
    """
    from milabench.analysis.summary import summarise

    spent_s = 0.0
    # A retried replicate has spent the time of all its attempts, but a later one takes as long as the last that passed.
    lasted: dict[str, dict[tuple[str, int], float]] = {}
    for span in spans(run):
        spent_s += span.seconds
        step = span.steps[0]
        if span.is_passed:
            lasted.setdefault(step["config"]["name"], {})[step["bench"], step["repeat"]] = span.seconds
    return {
        name: Pilot(rates=rates, replicate_s=_seconds_of_one(lasted.get(name, {})))
        for name, rates in launch_rates(summarise(run)).items()
    }, spent_s


def _seconds_of_one(lasted: Mapping[tuple[str, int], float]) -> float:
    """Return the seconds of one replicate; in an A/B run, of both sides."""
    return sum(lasted.values()) / max(1, len({repeat for _, repeat in lasted}))


def launch_rates(summary: Summary) -> dict[str, list[float]]:
    """Return the rate of each launch of a benchmark, none where nothing was measured; in an A/B run, B over A of each pair."""
    from milabench.analysis.ab_run import launches, pair_ratios

    benches = {bench.bench: bench for bench in summary.benchmarks if bench.outcome != "skipped"}
    if summary.ab is None:
        return {name: [] if bench.perf is None else list(launches(bench).values()) for name, bench in benches.items()}
    return {
        pair.bench: [] if pair.result is None else pair_ratios(benches[pair.a], benches[pair.b])
        for pair in summary.ab.pairs
    }
