"""What a plan will take by the runs that are recorded below its base, and what a budget leaves of it."""

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

LATEST = 20  # runs that are looked at
NAMED = 6


def estimate_plan(decision: PlannedRequest) -> PlanEstimate:
    """What the plan will take, by the latest runs below its base."""
    base = Path(decision.request.inputs.where.dirs.base)
    groups: dict[str, list[tuple[Step, ...]]] = {}
    for group in decision.plan.groups():
        groups.setdefault(group[0].bench, []).append(group)
    wanted = [
        PlannedBenchmark(bench=bench, replicates=len(found), steps=[step.to_json() for step in found[0]])
        for bench, found in groups.items()
    ]
    return estimate_durations(wanted, islice(recent_runs(base), LATEST))


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetedPlan:
    """A decision within its budget, what it will take, and how often each benchmark is run where the budget decides that."""

    decision: PlannedRequest
    estimate: PlanEstimate
    replicates: Mapping[str, Replicates] = field(default_factory=dict)

    @property
    def said(self) -> list[str]:
        """For a person: what it will take, and what was cut."""
        aim = self.decision.request.aim
        is_pilot = aim is not None and aim.precision is not None
        cut = [
            f"{name}: {replicates_text(each.to_json(), aim.to_json() if aim is not None else {})}"
            for name, each in self.replicates.items()
            if each.is_capped
        ]
        return [_headline("estimate of the pilot" if is_pilot else "estimate", self.estimate), *cut]


def _headline(what: str, found: PlanEstimate) -> str:
    unknown = _names(found.unknown)
    if not found.runs:
        return f"{what}: unknown, for no run below this base has passed with {unknown}"
    rest = f"; unknown: {unknown}" if found.unknown else ""
    hours = f"{found.device_hours:.2g} device-hours"
    return f"{what}: {duration(found.seconds)}, {hours}, by {_names(found.runs)}{rest}"


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def estimate_lines(found: PlanEstimate) -> list[str]:
    """The estimate, benchmark by benchmark, each with where it comes from."""
    lines = []
    for each in found.benches:
        if each.known is None:
            lines.append(f"  {each.bench}: {each.replicates} x unknown")
            continue
        known = each.known
        source = "the same steps" if known.is_same else "the same benchmark, other steps"
        median = f"median of {known.n}, " if known.n > 1 else ""
        lines.append(f"  {each.bench}: {each.replicates} x {known.seconds:.3g} s ({median}{source} in {known.run})")
    return lines


def apply_budget(decision: PlannedRequest) -> BudgetedPlan:
    """The decision within its budget, where no pilot has yet to say what one replicate takes.

    Raises UsageError when the budget does not reach for one replicate of each, or for a pilot; or when nobody knows.
    """
    found = estimate_plan(decision)
    aim = decision.request.aim
    if aim is None or aim.budget_s is None:
        return BudgetedPlan(decision=decision, estimate=found)
    budget = f"--budget: {duration(aim.budget_s)} do not reach"
    if aim.precision is not None:
        if found.seconds > aim.budget_s:
            raise UsageError(
                f"{budget} for the pilot of five, about {duration(found.seconds)} by {_names(found.runs)}; give more, "
                "select less, or say how often with --repeat"
            )
        return BudgetedPlan(decision=decision, estimate=found)
    if found.unknown:
        raise UsageError(
            f"--budget: no earlier run tells how long {_names(found.unknown)} takes; run it once without, or give "
            "--precision, whose pilot finds out"
        )
    wanted, seconds = _by_name(decision, found)
    planned = within(wanted, seconds, aim.budget_s)
    if not all(planned.values()):
        raise UsageError(
            f"{budget} for one replicate of each, about {duration(sum(seconds.values()))} by {_names(found.runs)}; give "
            "more, or select less"
        )
    replicates = {name: Replicates(wanted=wanted[name], planned=n) for name, n in planned.items()}
    if planned != wanted:
        decision = plan_request(decision.request.repeated(decision.request.inputs.where.repeats, planned))
        found = estimate_plan(decision)
    return BudgetedPlan(decision=decision, estimate=found, replicates=replicates)


def _by_name(decision: PlannedRequest, found: PlanEstimate) -> tuple[dict[str, int], dict[str, float]]:
    """Replicates and the seconds of one, by the name that the suite has: the two sides of a pair together."""
    names = {step.bench: str(step.config["name"]) for step in decision.plan.steps}
    wanted: dict[str, int] = {}
    seconds: dict[str, float] = {}
    for each in found.benches:
        if each.known is not None:
            name = names[each.bench]
            wanted[name] = each.replicates
            seconds[name] = seconds.get(name, 0.0) + each.known.seconds
    return wanted, seconds
