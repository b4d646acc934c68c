"""Decides how often benchmarks are run: as a budget allows, estimated from earlier runs, or as a pilot shows to be needed.

A number is computed once, recorded, and then fixed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from milabench.analysis.duration_estimate import PlanEstimate, PlannedBenchmark, estimate_durations, spans
from milabench.analysis.replicates import PILOT_LAUNCHES, Pilot, Replicates, replicates, within
from milabench.errors import UsageError
from milabench.events.rundir import Run, open_run
from milabench.events.runs_folder import recent_runs
from milabench.execute.sizes import disk_text
from milabench.plan.model import Step
from milabench.plan.profile import PROFILES, Profile
from milabench.plan.resources import memory_shortages, sum_of_data
from milabench.report.labels import duration, replicates_text
from milabench.workflow.planning import PlannedRequest, Request, plan_request
from milabench.workflow.run_records import ExtendPlan, PlanExtension

if TYPE_CHECKING:
    from milabench.analysis.summary_model import Summary
    from milabench.config.schema import BenchmarkConfig
    from milabench.facts.model import Node


LATEST = 20  # runs that are read
NAMED = 6  # names that are listed


def estimate_plan(planned: PlannedRequest) -> PlanEstimate:
    """Return the estimate of a plan, from the latest runs below its base."""
    base = Path(planned.request.context.dirs.base)
    groups: dict[str, list[tuple[Step, ...]]] = {}
    for group in planned.plan.groups():
        groups.setdefault(group[0].bench, []).append(group)
    configs, profile = configs_of(planned.request), planned.request.context.plan_context.profile
    wanted = [
        PlannedBenchmark(
            bench=bench,
            replicates=len(own),
            steps=[step.to_json() for step in own[0]],
            stated_s=stated_seconds(configs.get(str(own[0][0].config["name"])), profile),
        )
        for bench, own in groups.items()
    ]
    return estimate_durations(wanted, islice(recent_runs(base), LATEST))


def configs_of(request: Request) -> dict[str, BenchmarkConfig]:
    """Return the benchmarks of a request by name; of an A/B run, those of the first suite that has one of the name."""
    return {bench.config.name: bench.config for side in reversed(request.sides) for bench in side.benches}


_WITHOUT_A_WINDOW = frozenset(("timed", "metrics", "serve"))


def stated_seconds(bench: BenchmarkConfig | None, profile: Profile) -> float | None:
    """Return how long the suite says that a launch takes, with the warm-up and window of a profile, in seconds."""
    if bench is None or bench.resources.minutes is None:
        return None
    stated, usual = 60 * bench.resources.minutes, PROFILES["default"]
    if bench.serve is not None:
        return stated  # its points are the same with each profile
    measured = usual.warmup_s + usual.window_s
    # What is shorter than the profile's own window was not measured with it, as tiny sizes are not.
    return stated - measured + profile.warmup_s + profile.window_s if stated > measured else stated


def data_line(request: Request) -> str:
    """Return how much disk and download the prepared data of a request take; empty where nobody states any."""
    data = sum_of_data(configs_of(request).values())
    return f"data: {disk_text(data.disk, data.download)}" if data.disk or data.download else ""


def warn_of_memory(planned: PlannedRequest) -> None:
    """Warn of benchmarks that need more memory, as the suite states, than a device or node of theirs has, or a device at all."""
    context, configs = planned.request.context, configs_of(planned.request)
    if any(config.resources.memory_mib or config.resources.host_memory_mib for config in configs.values()):
        for line in memory_shortages(configs, (step.to_json() for step in planned.plan.steps), context.nodes):
            context.session.warn(line)
    names = {str(step.config["name"]) for step in planned.plan.steps}
    if line := without_accelerators((configs[name] for name in sorted(names & configs.keys())), context.nodes):
        context.session.warn(line)


def without_accelerators(benches: Iterable[BenchmarkConfig], nodes: Iterable[Node]) -> str:
    """Return a line where no node has an accelerator and benchmarks state what memory they need of one; else nothing."""
    count = sum(bool(bench.resources.memory_mib) for bench in benches)
    if not count or any(device.arch != "cpu" for node in nodes for device in node.devices):
        return ""
    return (
        f"{count} of the benchmarks are of a size for accelerators (they state memory of a device), and there is none "
        "here: this may take hours; `--size tiny` is for a processor"
    )


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
        what, estimate = "estimate of the pilot" if is_pilot else "estimate", self.estimate
        if data := data_line(self.planned.request):
            cut.insert(0, data)
        if longer := self._longer_than_known:
            steps = self.planned.request.context.plan_context.profile.window_steps
            cut.insert(
                0,
                f"longer than that: {_names(longer)}: voir.options.stop asks for more observations than the usual {steps}",
            )
        unknown = _names(estimate.unknown)
        if not estimate.runs:
            profile, launches = self.planned.request.context.plan_context.profile, len(self.planned.plan.groups())
            each = profile.warmup_s + profile.window_s
            by_profile = (
                f"; profile {profile.name}: {launches} x {each:g} s of warm-up and window, {duration(launches * each)}, and "
                "the starts"
            )
            # A command whose time or log is measured has neither, nor has a sweep: they take as long as they take.
            is_timed = all(_WITHOUT_A_WINDOW & step.config.keys() for step in self.planned.plan.steps)
            return [
                f"{what}: unknown; no run below this base has passed with {unknown}{'' if is_timed else by_profile}",
                *cut,
            ]
        rest = f"; unknown: {unknown}" if estimate.unknown else ""
        hours = f"{estimate.device_hours:.2g} device-hours"
        return [f"{what}: {duration(estimate.seconds)}, {hours}, by {_names(estimate.runs)}{rest}", *cut]

    @property
    def _longer_than_known(self) -> list[str]:
        """The benchmarks whose suite asks for a longer window than the profile, and of which no run of these steps tells."""
        request = self.planned.request
        configs, profile = configs_of(request), request.context.plan_context.profile
        suite_names = {step.bench: str(step.config["name"]) for step in self.planned.plan.steps}
        names = []
        for bench in self.estimate.benches:
            config = configs[suite_names[bench.bench]]
            stop = (config.voir.get("options") or {}).get("stop") or 0
            is_known = bench.known is not None and (bench.known.is_same or not bench.known.n)
            if stop > profile.window_steps and not is_known and not config.timed:
                names.append(bench.bench)
        return names


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
        if not known.n:
            lines.append(f"{head} {known.seconds:.3g} s (as the suite states)")
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


def after_pilot(request: Request) -> ExtendPlan | None:
    """Return the function that extends the plan after the pilot; None without a pilot, or when the numbers are decided."""
    target = request.target
    if target is None or target.precision is None or request.context.plan_context.replicates:
        return None

    precision, budget_s = target.precision, target.budget_s

    def extend(path: Path) -> PlanExtension | None:
        run = open_run(path)
        # Decided once: a resumed run keeps the numbers by which it was extended.
        if "replicates" in run.manifest:
            return None
        pilots, spent_s = pilots_of(run)
        left_s = None if budget_s is None else budget_s - spent_s
        numbers = replicates(pilots, precision=precision, budget_s=left_s)
        plan = plan_request(
            request.repeated(PILOT_LAUNCHES, {name: number.planned for name, number in numbers.items()})
        ).plan
        manifest = {"replicates": {name: number.to_json() for name, number in numbers.items()}}
        decided = (f"{name}: {replicates_text(numbers[name].to_json(), target.to_json())}" for name in sorted(numbers))
        return PlanExtension(plan=plan, manifest=manifest, messages=tuple(decided))

    return extend


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
    pilots = {}
    for name, rates in launch_rates(summarise(run)).items():
        own = lasted.get(name, {})
        replicates_run = len({repeat for _, repeat in own})  # in an A/B run, each is one launch of both sides
        pilots[name] = Pilot(rates=rates, replicate_s=sum(own.values()) / max(1, replicates_run))
    return pilots, spent_s


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
