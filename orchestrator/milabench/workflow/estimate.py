"""Estimates how long a plan will take, from the runs below its base, and cuts it to a budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from milabench.analysis.duration_estimate import PlanEstimate, PlannedBenchmark, estimate_durations
from milabench.analysis.replicates import Replicates, within
from milabench.errors import UsageError
from milabench.events.rundir import recent_runs
from milabench.plan.model import Step
from milabench.report.labels import duration, replicates_text
from milabench.workflow.planning import PlannedRequest, plan_request

LATEST = 20  # runs that are read
NAMED = 6  # names that are listed


def estimate_plan(planned: PlannedRequest) -> PlanEstimate:
    """Return the estimate of a plan, from the latest runs below its base."""
    base = Path(planned.request.context.dirs.base)
    groups: dict[str, list[tuple[Step, ...]]] = {}
    for group in planned.plan.groups():
        groups.setdefault(group[0].bench, []).append(group)
    wanted = [
        PlannedBenchmark(bench=bench, replicates=len(own), steps=[step.to_json() for step in own[0]])
        for bench, own in groups.items()
    ]
    return estimate_durations(wanted, islice(recent_runs(base), LATEST))


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetedPlan:
    """A planned request within its budget, its estimate, and how often each benchmark is run where the budget decides that."""

    planned: PlannedRequest
    estimate: PlanEstimate
    replicates: Mapping[str, Replicates] = field(default_factory=dict)

    @property
    def lines(self) -> list[str]:
        """The estimate and what was cut, for a person."""
        target = self.planned.request.target
        is_pilot = target is not None and target.precision is not None
        cut = [
            f"{name}: {replicates_text(number.to_json(), target.to_json() if target is not None else {})}"
            for name, number in self.replicates.items()
            if number.is_capped
        ]
        return [_headline("estimate of the pilot" if is_pilot else "estimate", self.estimate), *cut]


def _headline(what: str, estimate: PlanEstimate) -> str:
    unknown = _names(estimate.unknown)
    if not estimate.runs:
        return f"{what}: unknown; no run below this base has passed with {unknown}"
    rest = f"; unknown: {unknown}" if estimate.unknown else ""
    hours = f"{estimate.device_hours:.2g} device-hours"
    return f"{what}: {duration(estimate.seconds)}, {hours}, by {_names(estimate.runs)}{rest}"


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def estimate_lines(estimate: PlanEstimate) -> list[str]:
    """Return the estimate, benchmark by benchmark, each with where it comes from."""
    lines = []
    for bench in estimate.benches:
        head, known = f"  {bench.bench}: {bench.replicates} x", bench.known
        if known is None:
            lines.append(f"{head} unknown")
            continue
        source = "the same steps" if known.is_same else "the same benchmark, other steps"
        median = f"median of {known.n}, " if known.n > 1 else ""
        lines.append(f"{head} {known.seconds:.3g} s ({median}{source} in {known.run})")
    return lines


def apply_budget(planned: PlannedRequest) -> BudgetedPlan:
    """Return the plan with as many replicates as its budget allows; a pilot is only checked against it.

    Raises UsageError for a budget that is too small for one replicate of each benchmark, or for the pilot; or when no
    earlier run tells how long one takes.
    """
    estimate = estimate_plan(planned)
    target = planned.request.target
    if target is None or target.budget_s is None:
        return BudgetedPlan(planned=planned, estimate=estimate)
    budget = f"--budget: {duration(target.budget_s)} is not enough"
    if target.precision is not None:
        if estimate.seconds > target.budget_s:
            raise UsageError(
                f"{budget} for the pilot of five, about {duration(estimate.seconds)} by {_names(estimate.runs)}; give more, "
                "select less, or say how often with --repeat"
            )
        return BudgetedPlan(planned=planned, estimate=estimate)
    if estimate.unknown:
        raise UsageError(
            f"--budget: no earlier run tells how long {_names(estimate.unknown)} takes; run it once without, or give "
            "--precision, whose pilot finds out"
        )
    wanted, seconds = _by_name(planned, estimate)
    affordable = within(wanted, seconds, target.budget_s)
    if not all(affordable.values()):
        raise UsageError(
            f"{budget} for one replicate of each, about {duration(sum(seconds.values()))} by {_names(estimate.runs)}; give "
            "more, or select less"
        )
    replicates = {name: Replicates(wanted=wanted[name], planned=n) for name, n in affordable.items()}
    if affordable != wanted:
        repeats = planned.request.context.plan_context.repeats
        planned = plan_request(planned.request.repeated(repeats, affordable))
        estimate = estimate_plan(planned)
    return BudgetedPlan(planned=planned, estimate=estimate, replicates=replicates)


def _by_name(planned: PlannedRequest, estimate: PlanEstimate) -> tuple[dict[str, int], dict[str, float]]:
    """Return replicates and seconds of one, by the name in the suite: the two sides of a pair count together."""
    names = {step.bench: str(step.config["name"]) for step in planned.plan.steps}
    wanted: dict[str, int] = {}
    seconds: dict[str, float] = {}
    for bench in estimate.benches:
        if bench.known is not None:
            name = names[bench.bench]
            wanted[name] = bench.replicates
            seconds[name] = seconds.get(name, 0.0) + bench.known.seconds
    return wanted, seconds
