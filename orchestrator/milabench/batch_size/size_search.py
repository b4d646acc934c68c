"""Finds the largest batch size of a benchmark that fits, by running it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from milabench.errors import MilabenchError, UsageError
from milabench.execute.interrupts import InterruptRequested
from milabench.execute.retry_policy import RetryPolicy
from milabench.plan.sizing import Observation
from milabench.workflow.context import read_context, read_single_context
from milabench.workflow.environments import environment_records
from milabench.workflow.new_run import execute_plan
from milabench.workflow.options import CommandContext, Extent, Session, SizeRequest, SuiteOptions
from milabench.workflow.planning import plan_single_suite, suite_values
from milabench.workflow.preflight import require_ready
from milabench.workflow.run_records import RunDescription
from milabench.workflow.scaling_files import observed_batch_sizes, save_observations

_ONE_QUICK_LAUNCH = Extent(repeat=1, profile="quick")


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeSearch:
    """The sizes that were tried, with their observations. None where a size did not fit."""

    bench: str
    tried: Mapping[int, Observation | None]

    @property
    def largest(self) -> int | None:
        """The largest batch size that fits."""
        return max((size for size, observation in self.tried.items() if observation is not None), default=None)

    def to_json(self) -> dict[str, Any]:
        """Return the result for a program."""
        tried = [
            {"batch_size": size, "fits": observation is not None, **(observation.to_json() if observation else {})}
            for size, observation in sorted(self.tried.items())
        ]
        return {"schema": 1, "bench": self.bench, "largest": self.largest, "tried": tried}


def largest_fitting(
    fits: Callable[[int], bool], start: int, *, least: int = 1, most: int | None = None, apart: int = 1
) -> int | None:
    """Return the largest batch size that fits, by trying sizes.

    Doubles from `start` while it fits, then bisects until the answer is known to `apart`. None when `least` does not fit.
    """
    low, high = None, None  # the largest that fits, the smallest that does not
    size = max(least, start if most is None else min(start, most))
    while True:
        if fits(size):
            low = size
        else:
            high = size
        if low is None:
            assert high is not None
            if high <= least:
                return None
            size = max(least, high // 2)
        elif high is None:
            if low == most:
                return low
            # While nothing has failed: each try costs a whole run, so distances double.
            size = low * 2 if most is None else min(low * 2, most)
        elif high - low <= apart:
            return low
        else:
            size = (low + high) // 2
            if apart > 1 and (rounded := size // apart * apart) > low:
                size = rounded


def find_batch_size(options: SuiteOptions, request: SizeRequest, session: Session) -> SizeSearch:
    """Search by doubling, then bisecting.

    Raises UsageError unless the request selects a single benchmark that has a batch size to choose, and the errors of a run.
    """
    bench, least, most = request.bench, request.least, request.most
    if most is not None and most < least:
        raise UsageError(f"--max {most} is less than --min {least}")
    options = replace(options, allocate=True)
    context = read_single_context(options, bench, session, _ONE_QUICK_LAUNCH, "size works on")
    plan = plan_single_suite(context)
    sizes = {step.config["batch_size"] for step in plan.steps if "batch_size" in step.config}
    if len(sizes) != 1:
        raise UsageError(f"{bench}: has no batch size to choose. Write it as auto_batch(N) in its argv")
    require_ready(context, plan)
    name = context.benches[0].config.name
    multiple = context.plan_context.sizer.options.multiple or 1
    tried: dict[int, Observation | None] = {}

    def fits(size: int) -> bool:
        # As an override it is part of the recorded configuration, which says what size was tried.
        override = f"system.options.sizer.batch_size={size}"
        sized = replace(context.options, overrides=(*options.overrides, override))
        tried[size] = try_size(read_context(sized, session, _ONE_QUICK_LAUNCH, warn=False), size, wait=request.wait)
        return tried[size] is not None

    try:
        largest_fitting(fits, min(sizes), least=least, most=most, apart=multiple)
        return SizeSearch(bench=name, tried=tried)
    finally:
        # Also of a search that was interrupted: each size took a launch.
        if request.save is not None and (observed := [observation for observation in tried.values() if observation]):
            save_observations(request.save, {name: observed})


def try_size(context: CommandContext, size: int, *, wait: bool) -> Observation | None:
    """Run the benchmark with this batch size: return the observation, None where it does not fit.

    Raises MilabenchError for any other failure, and InterruptRequested.
    """
    session = context.session
    plan = plan_single_suite(context)
    locks, packages = environment_records(context)
    description = RunDescription(name="size", phase="size", suite=suite_values(context), locks=locks, packages=packages)
    executed = execute_plan(plan, context, description, retry=RetryPolicy(wait=wait))
    if executed.result.interrupted:
        raise InterruptRequested
    outcomes = executed.result.outcomes
    if any(outcome.why == "out-of-memory" for outcome in outcomes.values()):
        session.info(f"size: {size} does not fit")
        return None
    for step, outcome in outcomes.items():
        if outcome.name != "passed":
            reason = f"{outcome.failure}. Records: {executed.path}"
            raise MilabenchError(f"{step}: failed with batch size {size}: {reason}")
    observations = [own for benches in observed_batch_sizes(executed.path, plan).values() for own in benches]
    observation = observations[0] if observations else Observation(batch_size=size)
    memory = "" if observation.memory_mib is None else f", {observation.memory_mib:.0f} MiB"
    rate = "" if observation.rate is None else f", {observation.rate:.4g}/s"
    session.info(f"size: {size} fits{memory}{rate}")
    return observation
