"""How a run goes on after its pilot: how often each benchmark is run is computed once, recorded, and held from then on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from milabench.analysis.duration_estimate import spans
from milabench.analysis.replicates import PILOT, Pilot, PrecisionTarget, Replicates, replicates
from milabench.events.rundir import Run, open_run
from milabench.workflow.execution import More, PlanExtension
from milabench.workflow.planning import plan_request
from milabench.workflow.request import Request

if TYPE_CHECKING:
    from milabench.analysis.summary_model import Summary


def after_pilot(request: Request) -> More | None:
    """What to go on with after the pilot; None where there is none, or its run has decided."""
    aim = request.aim
    if aim is None or aim.precision is None or request.inputs.where.replicates:
        return None
    precision, budget_s = aim.precision, aim.budget_s

    def more(path: Path) -> PlanExtension | None:
        run = open_run(path)
        if "replicates" in run.manifest:
            return None
        pilots, spent_s = pilots_of(run)
        left_s = None if budget_s is None else budget_s - spent_s
        found = replicates(pilots, precision=precision, budget_s=left_s)
        plan = plan_request(request.repeated(PILOT, {name: each.planned for name, each in found.items()})).plan
        told = {"replicates": {name: each.to_json() for name, each in found.items()}}
        return PlanExtension(plan=plan, told=told, said=tuple(replicate_decision_lines(found, aim)))

    return more


def replicate_decision_lines(found: Mapping[str, Replicates], aim: PrecisionTarget) -> list[str]:
    """The decision for a person, a line for each benchmark."""
    from milabench.report.labels import replicates_text

    return [f"{name}: {replicates_text(each.to_json(), aim.to_json())}" for name, each in sorted(found.items())]


def pilots_of(run: Run) -> tuple[dict[str, Pilot], float]:
    """What the pilot of each benchmark (of an A/B run: of each pair) showed, and the seconds that all attempts took.

    Computed from the records alone, so that a run which was cut off in between decides the same.
    """
    from milabench.analysis.summary import summarise

    spent_s = 0.0
    # Of a replicate that was made again, the time is spent, but one to come takes only as long as the last that passed.
    lasted: dict[str, dict[tuple[str, int], float]] = {}
    for span in spans(run):
        spent_s += span.seconds
        step = span.steps[0]
        if span.is_passed:
            lasted.setdefault(step["config"]["name"], {})[step["bench"], step["repeat"]] = span.seconds
    return {
        name: Pilot(rates=rates, replicate_s=_each(lasted.get(name, {})))
        for name, rates in launch_rates(summarise(run)).items()
    }, spent_s


def _each(lasted: Mapping[tuple[str, int], float]) -> float:
    """Seconds of one replicate; in an A/B run, of both sides."""
    return sum(lasted.values()) / max(1, len({repeat for _, repeat in lasted}))


def launch_rates(summary: Summary) -> dict[str, list[float]]:
    """What each launch of a benchmark reached, nothing where nothing was measured; in an A/B run, B over A of each pair."""
    from milabench.analysis.ab_run import launches, pair_ratios

    benches = {bench.bench: bench for bench in summary.benchmarks if bench.outcome != "skipped"}
    if summary.ab is None:
        return {name: [] if bench.perf is None else list(launches(bench).values()) for name, bench in benches.items()}
    return {
        pair.bench: [] if pair.result is None else pair_ratios(benches[pair.a], benches[pair.b])
        for pair in summary.ab.pairs
    }
