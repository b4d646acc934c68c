"""Executes requests, run by run: plan, check that everything is in place, execute, summarise."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from milabench.errors import DONE, INTERRUPTED, STEPS_FAILED, NothingSelected, RecordError, os_reason
from milabench.execute.retry_policy import RetryPolicy
from milabench.seams import handler
from milabench.workflow.options import Extent, Submission, SuiteOptions

if TYPE_CHECKING:
    from milabench.analysis.summary_model import Summary
    from milabench.events.rundir import Run
    from milabench.execute.detach import DetachHandover
    from milabench.plan.model import Plan
    from milabench.workflow.estimate import BudgetedPlan
    from milabench.workflow.execution import ExecutedPlan
    from milabench.workflow.options import Session
    from milabench.workflow.planning import PlannedRequest, Request

# Not `skipped`: that a benchmark cannot run here was known when the run was planned.
CHANGE_THE_EXIT_CODE = ("failed", "cancelled", "missing")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """How a suite is run, and which of its parts.

    `failed` names a run: only its steps that did not pass are run. Empty: the latest run. `validations` are the checks, `all`
    (the default), `none` or `name,...`. `save_sizes` is a file that the observed batch sizes are added to. `no_prepare`:
    refuse a benchmark that is not prepared, instead of preparing it where that takes seconds. `no_gate`: a side that is SLOWER
    does not change the exit code. `as_default`: from now on commands without --config mean this suite. `is_kept` False: the
    records are removed soon, and no message points to them or to `resume`. `is_reported`: a report follows, with the numbers
    and the next command. `submit`: the run is made as jobs of the scheduler, None: by this process.
    """

    failed: str | None = None
    validations: str | None = None
    save_sizes: Path | None = None
    no_prepare: bool = False
    no_gate: bool = False
    as_default: bool = True
    is_kept: bool = True
    is_reported: bool = False
    submit: Submission | None = None
    retry: RetryPolicy = field(default_factory=RetryPolicy)


AS_USUAL = RunSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRuns:
    """The runs of a command, planned and checked. `stamp` is the time in the names of a multirun's runs."""

    plans: tuple[BudgetedPlan, ...]
    checks: tuple[str, ...]
    stamp: str
    settings: RunSettings


def prepare_runs(options: SuiteOptions, extent: Extent, settings: RunSettings, session: Session) -> PreparedRuns:
    """Read, plan and check everything before the first run starts.

    Raises the errors of `expand_requests` and `prepare_request`.
    """
    if session.agent is None:
        from milabench.facts.probe import this_machine

        this_machine()  # answers while the modules that read the suite are imported
    from milabench.checks.registry import parse_checks
    from milabench.workflow.planning import expand_requests, require_submittable
    from milabench.workflow.suites_used import record_use

    if session.agent is not None:
        import milabench.workflow.execution  # noqa: F401  any run needs it: imported while the agent starts

    now = int(time.time())
    stamp = time.strftime("%Y-%m-%d_%H-%M-%S", time.localtime(now))
    checks = tuple(parse_checks(settings.validations or "all"))
    # The order differs from run to run, so that drift (heat, other users) does not always hit the same benchmark.
    extent = replace(extent, seed=extent.seed if extent.seed is not None else now)
    if settings.submit is not None:
        options = handler("run --submit")(options, session)
    is_part = settings.failed is not None
    is_submitted = settings.submit is not None
    requests = expand_requests(options, extent, session, stamp=stamp, is_part=is_part, is_submitted=is_submitted)
    if is_submitted:
        require_submittable(requests)
    elif any(request.context.allocation is not None for request in requests):
        # These were for nodes as they are stated: what is wrong must be found before hours are waited for real ones.
        for request in requests:
            prepare_request(request, settings)
        options = replace(options, allocate=True)
        requests = expand_requests(options, extent, session, stamp=stamp, is_part=is_part)
    plans = tuple(prepare_request(request, settings) for request in requests)
    # Of an A/B run, the first suite becomes the default; the runs of a multirun differ by their overrides alone.
    sides = {side.suite_file: side for request in requests for side in reversed(request.sides)}
    for side in sides.values():
        record_use(replace(side, options=options), as_default=settings.as_default)
    return PreparedRuns(plans=plans, checks=checks, stamp=stamp, settings=settings)


def execute_runs(
    prepared: PreparedRuns, session: Session, handover: DetachHandover | None = None
) -> list[tuple[Path, int]]:
    """Execute the runs in sequence until a run is interrupted. Return the directory and exit code of each."""
    from milabench.workflow.estimate import measuring_on, warn_of_memory
    from milabench.workflow.new_run import execute_plan
    from milabench.workflow.planning import describe_run

    def execute(budgeted: BudgetedPlan) -> tuple[Path, int]:
        planned = budgeted.planned
        warn_of_memory(planned)
        _warn_of_busy_hosts(planned.plan, session)
        described = describe_run(
            planned, stamp=prepared.stamp, validations=prepared.checks, replicates=budgeted.replicates
        )
        executed = execute_plan(
            planned.plan,
            planned.request.context,
            replace(described, seconds=budgeted.estimate.seconds_each),
            retry=prepared.settings.retry,
            extend=measuring_on(planned.request),
            handover=handover,
        )
        save_sizes(prepared.settings.save_sizes, planned, executed.path)
        return executed.path, finish_run(executed, session, prepared.settings)

    return each_run(prepared, session, execute)


def each_run(
    prepared: PreparedRuns, session: Session, run: Callable[[BudgetedPlan], tuple[Path, int]]
) -> list[tuple[Path, int]]:
    """Call `run` for the plans of a command until a run is interrupted. Return the directory and exit code of each."""
    finished = []
    for budgeted in prepared.plans:
        for line in budgeted.lines:
            session.info(line)
        finished.append(run(budgeted))
        if finished[-1][1] == INTERRUPTED:
            break
    return finished


def save_sizes(file: Path | None, planned: PlannedRequest, run: Path) -> None:
    """Add the batch sizes of a run to this file, else to the file of its system, if either is named."""
    if file is None and not planned.request.context.system.options:
        return
    from milabench.workflow.scaling_files import observed_batch_sizes, save_observations, sizes_file

    file = file or sizes_file(planned.request.context.system)
    if file is not None:
        save_observations(file, observed_batch_sizes(run, planned.plan))


def _warn_of_busy_hosts(plan: Plan, session: Session) -> None:
    from milabench.analysis.host_load import busy_text

    used = {step.node for step in plan.steps}
    for node in plan.system["nodes"]:
        if node["name"] in used and (busy := busy_text(node)):
            session.warn(f"{node['name']}: {busy}. That may make the numbers imprecise")


def prepare_request(request: Request, settings: RunSettings) -> BudgetedPlan:
    """Return the steps to run, all or those that failed in a run, within the budget. Prepare missing data where that is quick.

    Raises EnvironmentFailed unless everything that it needs exists, UsageError when the budget is too small, Unreachable for a
    device in use unless the run waits for it.
    """
    from milabench.workflow.device_use import require_free_devices
    from milabench.workflow.estimate import apply_budget
    from milabench.workflow.planning import plan_request, require_request_ready

    planned = plan_request(request)
    if settings.failed is not None:
        part = only_failed(planned.plan, settings.failed, Path(request.context.dirs.base))
        planned = replace(planned, plan=part, bundles=part.groups())
    if settings.submit is None and not settings.retry.wait:
        require_free_devices(request.context, planned.plan, wait=False)
    budgeted = apply_budget(planned)
    require_request_ready(request, planned.plan, prepares=not settings.no_prepare)
    return budgeted


def finish_run(executed: ExecutedPlan, session: Session, settings: RunSettings = AS_USUAL) -> int:
    """Write the summary of a run, report how its steps ended, all attempts considered, and return the exit code.

    A benchmark that is SLOWER on side B of an A/B run counts as failed, unless `settings.no_gate`.
    """
    is_reported = settings.is_reported and not executed.result.interrupted
    is_whole = report_run(executed.path, session, replace(settings, is_reported=is_reported))
    if executed.result.is_cut and settings.is_kept:
        session.info("run: interrupted. `milabench resume` continues it")
    if executed.result.interrupted:
        return INTERRUPTED
    return DONE if is_whole and executed.result.all_passed else STEPS_FAILED


def report_run(path: Path, session: Session, settings: RunSettings = AS_USUAL) -> bool:
    """Write the summary of a run, report how its steps ended, and return whether none of them changes the exit code."""
    summary = write_summary(path, session)
    if summary is None:
        return False
    report_result(summary, path, session, settings)
    if summary.ab is not None and summary.ab.verdict == "SLOWER" and not settings.no_gate:
        return False
    return bool(summary.counts) and not any(summary.counts[outcome] for outcome in CHANGE_THE_EXIT_CODE)


def report_result(summary: Summary, path: Path, session: Session, settings: RunSettings = AS_USUAL) -> None:
    """Report how a run ended and where its records are, each number unless it was a first look, and the command that leads on."""
    from milabench.report.labels import format_number
    from milabench.report.model import half_width, ordered, result_text, validity_text
    from milabench.report.rerun import line_about_run

    session.info(f"run: {result_text(summary)}{f'. Records: {path}' if settings.is_kept else ''}")
    if settings.is_reported:
        return
    if summary.profile != "quick":
        for bench in ordered(summary.benchmarks):
            rate = "" if bench.perf is None else f"{format_number(bench.perf)} {half_width(bench)} {bench.units}, "
            session.info(f"{bench.bench}: {rate}{validity_text(bench)}")
    if summary.ab is not None:
        session.info(f"A/B: {summary.ab.sentence}")
    if settings.is_kept:
        session.info(f"next: `{line_about_run(summary, 'report', summary.run)}`: the numbers, warnings and logs")


def only_failed(plan: Plan, name: str, base: Path) -> Plan:
    """Return the part of a plan that did not pass in a run of this name, or in the latest run. Raises NothingSelected."""
    from milabench.events.runs_folder import find_run, latest_run
    from milabench.plan.model import restricted_plan

    run = find_run(base, name) if name else latest_run(base)
    failed = set(run.files) - passed_steps(run)
    if not failed:
        raise NothingSelected(f"{run.name}: every step has passed. Nothing is left for --failed")
    part = restricted_plan(plan, failed)
    if not part.steps:
        names = ", ".join(sorted(failed)[:5])
        raise NothingSelected(f"{run.name}: none of its failed steps ({names}) is in this plan")
    return part


def passed_steps(run: Run) -> frozenset[str]:
    """Return the steps of which an attempt has passed."""
    from milabench.events.attempts import attempts

    by_step = attempts(run.journal)
    return frozenset(step for step in run.files if any(a.outcome == "passed" for a in by_step.get(step, ())))


def write_summary(path: Path, session: Session) -> Summary | None:
    """Write the summary of a run's records, and return it. None for unreadable records.

    A summary that cannot be written is only warned of: it can be computed again at any time.
    """
    from milabench.events.rundir import open_run
    from milabench.workflow.summaries import computed_summary, stat_digest, store_summary

    try:
        run, stat = open_run(path), stat_digest(path)
        summary = computed_summary(run)
    except RecordError as error:
        session.warn(str(error))
        return None
    try:
        store_summary(path, summary, stat)
    except OSError as error:
        session.warn(f"{path}: the summary cannot be written: {os_reason(error)}")
    return summary
