"""Decides how often benchmarks are run: as a budget allows by earlier runs, or until their numbers are precise.

Each decision follows from the records alone, and is recorded.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from milabench.analysis.duration_estimate import PlanEstimate, PlannedBenchmark, estimate_durations, spans
from milabench.analysis.intervals import log_t_interval
from milabench.analysis.replicates import MOST_LAUNCHES, MOST_SHORT_LAUNCHES, Replicates, next_block, within
from milabench.analysis.uncertainty import CONFIDENCE_OF_STOPPED
from milabench.errors import UsageError
from milabench.events.rundir import Run, open_run
from milabench.events.runs_folder import recent_runs
from milabench.execute.sizes import disk_text
from milabench.plan.profile import PROFILES, Profile
from milabench.plan.resources import memory_shortages, sum_of_data
from milabench.report.labels import aim_text, duration, replicates_text
from milabench.shown import grouped, some_of
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
    groups = grouped((group[0].bench, group) for group in planned.plan.groups())
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
    """Return the benchmarks of a request by name. Of an A/B run, from the first suite that has the name."""
    return {bench.config.name: bench.config for side in reversed(request.sides) for bench in side.benches}


_OF_COMMANDS = frozenset(("timed", "metrics"))
_WITHOUT_A_WINDOW = _OF_COMMANDS | {"serve"}


def stated_seconds(bench: BenchmarkConfig | None, profile: Profile) -> float | None:
    """Return how long the suite says that a repeat takes, with the warm-up and window of a profile, in seconds."""
    if bench is None or bench.resources.minutes is None:
        return None
    stated, usual = 60 * bench.resources.minutes, PROFILES["default"]
    if bench.serve is not None:
        return stated  # its points are the same with each profile
    measured = usual.warmup_s + usual.window_s
    # What is shorter than the profile's own window was not measured with it, as tiny sizes are not.
    return stated - measured + profile.warmup_s + profile.window_s if stated > measured else stated


def data_line(request: Request) -> str:
    """Return how much disk and download the prepared data of a request take. Empty where nobody states any."""
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
    """Return a line where no node has an accelerator and benchmarks state how much device memory they need. Else nothing."""
    count = sum(bool(bench.resources.memory_mib) for bench in benches)
    if not count or any(device.arch != "cpu" for node in nodes for device in node.devices):
        return ""
    return (
        f"{count} of the benchmarks are of a size for accelerators (they state memory of a device), and there is none "
        "here: this may take hours. `--size tiny` is for a processor"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetedPlan:
    """A planned request within its budget, its estimate, and how often each benchmark is run where the budget decides that."""

    planned: PlannedRequest
    estimate: PlanEstimate
    replicates: Mapping[str, Replicates] = field(default_factory=dict)

    @property
    def lines(self) -> list[str]:
        """The estimate and the cuts, for a person."""
        target = self.planned.request.target
        aim = {} if target is None else target.to_json()
        cut = [
            f"{name}: {replicates_text(number.to_json(), aim)}"
            for name, number in self.replicates.items()
            if number.is_capped
        ]
        estimate = self.estimate
        if target is not None and target.precision is not None:
            by_count = f"at most {MOST_LAUNCHES} repeats, {MOST_SHORT_LAUNCHES} of short ones"
            most = by_count if target.budget_s is None else "as the budget allows"
            most += f", {duration(target.limit_s)} together" if target.limit_s is not None else ""
            cut.insert(0, f"repeated until {aim_text(aim)}: {most}")
        if data := data_line(self.planned.request):
            cut.insert(0, data)
        if longer := self._longer_than_known:
            steps = self.planned.request.context.plan_context.profile.window_steps
            cut.insert(
                0,
                f"longer: {some_of(longer, NAMED)}: the suite asks for more than {steps} observations (voir.options.stop)",
            )
        unknown = some_of(estimate.unknown, NAMED)
        if not estimate.runs:
            profile, launches = self.planned.request.context.plan_context.profile, len(self.planned.plan.groups())
            each = profile.warmup_s + profile.window_s
            least = f"at least {duration(launches * each)}, and the starts of programs"
            by_profile = f"; {least} (profile {profile.name}: {launches} x {each:g} s of warm-up and window)"
            # A command whose time or log is measured has neither, nor has a sweep: they take as long as they take.
            is_timed = _each_has(self.planned, _WITHOUT_A_WINDOW)
            return [
                f"estimate: not known before a run below this base has passed with {unknown}{'' if is_timed else by_profile}",
                *cut,
            ]
        rest = f", unknown: {unknown}" if estimate.unknown else ""
        hours = f"{estimate.device_hours:.2g} device-hours"
        return [f"estimate: {duration(estimate.seconds)}, {hours}, by {some_of(estimate.runs, NAMED)}{rest}", *cut]

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
            is_known = bench.seconds is not None and (bench.is_same or not bench.n)
            if stop > profile.window_steps and not is_known and not config.timed:
                names.append(bench.bench)
        return names


def _each_has(planned: PlannedRequest, keys: frozenset[str]) -> bool:
    """Return whether every step has one of these keys of a suite."""
    return all(keys & step.config.keys() for step in planned.plan.steps)


def estimate_lines(estimate: PlanEstimate, *, is_full: bool = True) -> list[str]:
    """Return the estimate, benchmark by benchmark, each with where it comes from. Unknown ones only where `is_full`."""
    lines = []
    for bench in estimate.benches:
        head = f"  {bench.bench}: {bench.replicates} x"
        if bench.seconds is None:
            lines += [f"{head} unknown"] * is_full
            continue
        if not bench.n:
            lines.append(f"{head} {bench.seconds:.3g} s (as the suite states)")
            continue
        source = "the same steps" if bench.is_same else "the same benchmark, other steps"
        median = f"median of {bench.n}, " if bench.n > 1 else ""
        lines.append(f"{head} {bench.seconds:.3g} s ({median}{source} in {bench.run})")
    return lines


def apply_budget(planned: PlannedRequest) -> BudgetedPlan:
    """Return the plan with as many replicates as its budget allows, and the most time that it may take.

    Raises UsageError for a budget that is too small for a replicate of each benchmark, or when no earlier run shows how long
    a replicate takes and the number of replicates is not decided during the run.
    """
    estimate = estimate_plan(planned)
    target = planned.request.target
    # A command may be another program by now than in an earlier run, whose time is no limit then.
    is_other = target is not None and target.budget_s is None and _each_has(planned, _OF_COMMANDS)
    if target is None or is_other or (estimate.unknown and target.precision is not None):
        return BudgetedPlan(planned=planned, estimate=estimate)
    if estimate.unknown:
        raise UsageError(
            f"--budget: no earlier run tells how long {some_of(estimate.unknown, NAMED)} takes. Run it once without, or "
            "leave out --repeat, to measure on until the time is over"
        )
    wanted, seconds = _by_name(planned, estimate)
    if target.budget_s is None:
        most = {name: max(n, target.most_launches(seconds[name])) for name, n in wanted.items()}
        target = replace(target, most_s=math.fsum(seconds[name] * n for name, n in most.items()))
        return BudgetedPlan(
            planned=replace(planned, request=replace(planned.request, target=target)), estimate=estimate
        )
    affordable = within(wanted, seconds, target.budget_s)
    if not all(affordable.values()):
        raise UsageError(
            f"--budget: {duration(target.budget_s)} is not enough for a repeat of each, about "
            f"{duration(sum(seconds.values()))} by {some_of(estimate.runs, NAMED)}. Give more, or select less"
        )
    replicates = {name: Replicates(wanted=wanted[name], planned=n) for name, n in affordable.items()}
    if affordable != wanted:
        repeats = planned.request.context.plan_context.repeats
        planned = plan_request(planned.request.repeated(repeats, affordable))
        estimate = estimate_plan(planned)
    return BudgetedPlan(planned=planned, estimate=estimate, replicates=replicates)


def _by_name(planned: PlannedRequest, estimate: PlanEstimate) -> tuple[dict[str, int], dict[str, float]]:
    """Return replicates and seconds of a replicate, by the name in the suite. The two sides of a pair count together."""
    names = {step.bench: str(step.config["name"]) for step in planned.plan.steps}
    wanted: dict[str, int] = {}
    seconds: dict[str, float] = {}
    for bench in estimate.benches:
        if bench.seconds is not None:
            name = names[bench.bench]
            wanted[name] = bench.replicates
            seconds[name] = seconds.get(name, 0.0) + bench.seconds
    return wanted, seconds


def measuring_on(request: Request) -> ExtendPlan | None:
    """Return the function that plans another repeat of imprecise benchmarks. None where no precision is asked for."""
    target = request.target
    if target is None or target.precision is None:
        return None
    precision = target.precision

    def extend(path: Path) -> PlanExtension | None:
        from milabench.workflow.summaries import computed_summary

        run = open_run(path)
        launches: dict[str, int] = {}
        for step in run.manifest["plan"]["steps"]:
            name = str(step["config"]["name"])
            launches[name] = max(launches.get(name, 0), step["repeat"] + 1)
        imprecise = imprecise_benches(computed_summary(run), precision)
        planned = next_block(launches, imprecise, *time_spent(run), target)
        again = tuple(name for name, n in planned.items() if n > launches[name])
        if not again:
            return None
        first = f"measured again for {aim_text(target.to_json())}: {some_of(again, NAMED)}"
        return PlanExtension(
            plan=plan_request(request.measured_on(target, planned)).plan,
            manifest={"replicates": {name: Replicates(planned=n).to_json() for name, n in planned.items()}},
            messages=() if run.manifest.get("replicates") else (first,),
        )

    return extend


def time_spent(run: Run) -> tuple[dict[str, float], float]:
    """Return the seconds of a repeat of each benchmark (of an A/B run: of both sides), and of all attempts together."""
    spent_s = 0.0
    # A retried replicate has spent the time of all its attempts, but a later one takes as long as the last that passed.
    lasted: dict[str, dict[tuple[str, int], float]] = {}
    for span in spans(run):
        spent_s += span.seconds
        step = span.steps[0]
        if span.is_passed:
            lasted.setdefault(step["config"]["name"], {})[step["bench"], step["repeat"]] = span.seconds
    return {name: sum(own.values()) / len({repeat for _, repeat in own}) for name, own in lasted.items()}, spent_s


def imprecise_benches(summary: Summary, precision: float) -> dict[str, float]:
    """Return the uncertainty of each number that more repeats may make as precise as asked, or of each ratio of an A/B run.

    It is infinite where unknown. More repeats do not help a benchmark where a repeat failed, where its number is
    suspect, or where the part common to all repeats exceeds the request.
    """
    from milabench.analysis.ab_run import pair_ratios

    benches = {
        bench.bench: bench for bench in summary.benchmarks if bench.outcome == "passed" and bench.perf is not None
    }
    found: dict[str, float] = {}
    if summary.ab is not None:
        for pair in summary.ab.pairs:
            if pair.a in benches and pair.b in benches:
                interval = log_t_interval(pair_ratios(benches[pair.a], benches[pair.b]), CONFIDENCE_OF_STOPPED)
                found[pair.bench] = math.inf if interval is None else math.sqrt(interval[1] / interval[0]) - 1
        return {name: size for name, size in found.items() if size > precision}
    for name, bench in benches.items():
        known = bench.uncertainty
        if known is None or known.is_enough or bench.direction == "none" or {*bench.doubts} - {"short"}:
            continue
        if (known.lasting or 0.0) < precision:
            found[name] = math.inf if known.expanded is None else known.expanded
    return found
