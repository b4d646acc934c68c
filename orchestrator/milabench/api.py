"""The Python interface: the work of the command line, for programs and notebooks. `import milabench` offers it.

Nothing here prints. Results print well (`print(milabench.compare(a, b))`), and a notebook shows them as HTML. Every function
may be called while an event loop runs, as in a notebook: it then works in a thread of its own, and the caller waits for it.
"""

from __future__ import annotations

import asyncio
import html
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from milabench import seams
from milabench.errors import UsageError
from milabench.execute.retry_policy import RetryPolicy
from milabench.report.registry import FORMATS
from milabench.workflow.options import (
    AcceptRequest,
    CollectingReporter,
    CompareRequest,
    Extent,
    Reporter,
    Session,
    SuiteOptions,
)

if TYPE_CHECKING:
    from milabench.analysis.acceptance_model import Acceptance
    from milabench.analysis.comparison_model import Comparison
    from milabench.analysis.duration_estimate import PlanEstimate
    from milabench.analysis.summary_model import Summary
    from milabench.plan.model import Plan
    from milabench.report.registry import Renderer

T = TypeVar("T")
PathOrName = str | PathLike[str]


class _Rendered:
    """A result that prints as text and that a notebook shows as HTML."""

    __slots__ = ()

    def _render(self, renderer: Renderer) -> str:
        raise NotImplementedError

    def __str__(self) -> str:
        return self._render(FORMATS["text"].renderer)

    def _repr_html_(self) -> str:
        # A page of its own: its styles would otherwise change the notebook's.
        page = html.escape(self._render(FORMATS["html"].renderer))
        return f'<iframe srcdoc="{page}" style="width: 100%; height: 40em; border: 0"></iframe>'


@dataclass(frozen=True, repr=False)
class RunResult(_Rendered):
    """The results of a run.

    Attributes:
        summary: Every number of the run: `summary.benchmarks` has an entry per benchmark, with `perf` (the geometric
            mean rate, in `units`), `ci95`, `outcome` and `validity`; `summary.score` is the
            index over them where there is a reference.
        path: The run directory; None where only a JSON report is known.
    """

    summary: Summary
    path: Path | None = None

    def _render(self, renderer: Renderer) -> str:
        return renderer.render([self.summary])


@dataclass(frozen=True, repr=False)
class ComparisonResult(_Rendered):
    """A comparison of systems.

    Attributes:
        comparison: `comparison.rows` has an entry per benchmark, with a contrast for each system after the first: ratio
            (> 1 means better), interval and verdict; `comparison.indices` compares the systems as a whole.
    """

    comparison: Comparison

    def _render(self, renderer: Renderer) -> str:
        return renderer.render_comparison(self.comparison)


@dataclass(frozen=True, repr=False)
class AcceptanceResult(_Rendered):
    """The verdict on a run.

    Attributes:
        acceptance: `acceptance.verdict` is `PASS`, `FAIL` or `INCONCLUSIVE`; its other members say why.
    """

    acceptance: Acceptance

    def _render(self, renderer: Renderer) -> str:
        return renderer.render_acceptance(self.acceptance)


@dataclass(frozen=True, repr=False)
class PlanResult:
    """The plan of a run, which prints as `milabench plan run` does.

    Attributes:
        plan: The steps with their commands, environments, devices and limits; `plan.to_json()` is the manifest's form.
        estimate: How long it will take, by earlier runs: `seconds`, and `unknown`, the benchmarks without an earlier run.
    """

    plan: Plan
    estimate: PlanEstimate

    def __str__(self) -> str:
        from milabench.plan.text import plan_text
        from milabench.workflow.estimate import estimate_lines

        return "\n".join([plan_text(self.plan), *estimate_lines(self.estimate)])


def load(run: PathOrName, *, base: PathOrName | None = None) -> RunResult:
    """Load the results of a run.

    Args:
        run: A run directory, the name of a run below the base, or the file of a JSON report of a run.
        base: The folder that holds environments, data and runs. Default: `./results`.

    Raises:
        NothingSelected: There is no such run, or it is the record of an install or a preparation.
        RecordError: Its records cannot be read.
    """
    from milabench.workflow.files import base_folder
    from milabench.workflow.report_inputs import find_report_source

    source = find_report_source(base_folder(_path(base)), fspath(run))
    return RunResult(source.summary, None if source.run is None else source.run.path)


def compare(
    *runs: PathOrName | Sequence[PathOrName],
    margin: float = 0.01,
    per: Literal["system", "instance"] = "system",
    weights: Mapping[str, float] | PathOrName | None = None,
    costs: PathOrName | None = None,
    base: PathOrName | None = None,
    across: bool = False,
    reporter: Reporter | None = None,
) -> ComparisonResult:
    """Compare two or more systems by their runs, with the first as the baseline. The method equals `milabench compare`.

    Args:
        runs: Runs, as `load` takes them, or for each system a list of its runs: sessions, whose drift the intervals then hold.
        margin: Relative difference below which nothing is called faster or slower; 0.01 is 1 %.
        per: `system` compares all instances of a benchmark together, `instance` a single one (a device, a job).
        weights: Weights by benchmark instead of the suite's, or a YAML file of them.
        costs: A YAML file of costs instead of the system files'.
        base: As in `load`.
        across: Compare also benchmarks whose arguments differ.
        reporter: Receives the warnings, such as for a run that is compared with itself. Default: none.

    Raises:
        UsageError: Fewer than two runs are given, the margin is outside (0, 1], or no weight names a benchmark of the runs.
        ConfigError: A file of weights or costs cannot be used.
        NothingSelected: There is no such run.
        RecordError: The records of a run cannot be read.

    Source: docs/explanation/methodology.md gives the estimators and tests with their papers.
    """
    from milabench.workflow.report_runs import compare_runs

    if len(runs) < 2:
        raise UsageError("compare needs two or more runs, the baseline first")
    if not 0 < margin <= 1:
        raise UsageError(f"margin: expected more than 0 and at most 1, got {margin}")
    request = CompareRequest(
        runs=tuple(
            fspath(run) if isinstance(run, str | PathLike) else tuple(fspath(each) for each in run) for run in runs
        ),
        base=_path(base),
        margin=margin,
        per=per,
        weights=weights if isinstance(weights, Mapping) else _path(weights),
        costs=_path(costs),
        across=across,
    )
    return ComparisonResult(compare_runs(request, Session(reporter or CollectingReporter())).comparison)


def accept(
    run: PathOrName,
    criteria: PathOrName,
    *,
    reference: PathOrName | None = None,
    across: bool = False,
    base: PathOrName | None = None,
) -> AcceptanceResult:
    """Check a run against acceptance criteria.

    Args:
        run: A run directory, or the name of a run below the base.
        criteria: A YAML file; see docs/how-to/accept-a-system.md.
        reference: The run, as `load` takes it, that `x reference` in the criteria means.
        across: Decide also on benchmarks whose arguments are not the reference's.
        base: As in `load`.

    Raises:
        ConfigError: The criteria cannot be understood.
        UsageError: The criteria need a reference and none is given.
        NothingSelected: There is no such run.
        RecordError: A run's records cannot be read, or the run is still active.
    """
    name = None if reference is None else fspath(reference)
    request = AcceptRequest(run=fspath(run), base=_path(base), criteria=Path(criteria), reference=name, across=across)
    return AcceptanceResult(seams.handler("accept")(request))


def plan_suite(
    config: PathOrName | None = None,
    *,
    system: PathOrName | None = None,
    base: PathOrName | None = None,
    select: str | None = None,
    exclude: str | None = None,
    overrides: Sequence[str] = (),
    profile: str | None = None,
    repeat: int | None = None,
    seed: int | None = None,
    use_current_env: bool = False,
    reporter: Reporter | None = None,
) -> PlanResult:
    """Plan a run of a suite on this machine, or on the machines of a system file, without executing anything.

    Args:
        config: The suite's file. Default: `config/standard.yaml`.
        system: The system's file: nodes, accelerators, folders.
        base: As in `load`.
        select: Names, globs, groups or tags of benchmarks; comma lists, or and/or/not.
        exclude: Benchmarks to leave out, in the same language.
        overrides: Values of the suite to replace, each `KEY=VALUE`.
        profile: How long to measure: `quick`, `default` or `rigorous`. Default: from the suite.
        repeat: Fresh processes per benchmark. Default: from the profile.
        seed: Seed of the order in which benchmarks run. Default: the time.
        use_current_env: Use the active interpreter as every benchmark's environment.
        reporter: Receives the warnings. Default: none.

    Raises:
        ConfigError: The suite or the system file cannot be understood.
        NothingSelected: No benchmark is selected, or none can run here.
        UsageError: The system file makes several runs of a command (`multirun`).
    """
    from milabench.workflow.estimate import apply_budget
    from milabench.workflow.planning import expand_requests, plan_request

    options = _suite_options(config, system, base, select, exclude, overrides, use_current_env)
    number = int(time.time()) if seed is None else seed
    extent = Extent(profile=profile, repeat=repeat, run_name="run", seed=number)

    def work(session: Session) -> PlanResult:
        requests = expand_requests(options, extent, session, stamp="{time}")
        if len(requests) > 1:
            raise UsageError(f"the multirun of the system file makes {len(requests)} runs. Give a system file without")
        budgeted = apply_budget(plan_request(requests[0]))
        return PlanResult(budgeted.planned.plan, budgeted.estimate)

    return _outside_event_loop(work, reporter)


def run(
    config: PathOrName | None = None,
    *,
    system: PathOrName | None = None,
    base: PathOrName | None = None,
    select: str | None = None,
    exclude: str | None = None,
    overrides: Sequence[str] = (),
    profile: str | None = None,
    repeat: int | None = None,
    seed: int | None = None,
    use_current_env: bool = False,
    run_name: str = "run",
    wait: bool = False,
    max_retries: int = 0,
    reporter: Reporter | None = None,
) -> RunResult:
    """Run a suite that is installed, record it below the base, and return its results.

    First prepare data that takes only seconds. A benchmark that fails is a result (`summary.verdict`), not an
    exception. In a notebook an interrupt of the kernel does not end the run.

    Args:
        config: As in `plan_suite`, like all others that are not listed here.
        run_name: Name of the run; the time is added to it.
        wait: Wait while another run measures on these devices, instead of failing.
        max_retries: Immediate retries of a failed step.
        reporter: Receives the messages and shows progress. Default: none.

    Raises:
        ConfigError, NothingSelected, UsageError: As `plan_suite`.
        EnvironmentFailed: Something is not installed, or cannot be prepared in 60 s; the message has the command to give.
        Unreachable: A node does not answer, or another run holds the devices.
        RecordError: The records cannot be written.

    """
    from milabench.workflow.run_suite import RunSettings, execute_runs, prepare_runs

    options = _suite_options(config, system, base, select, exclude, overrides, use_current_env, query_nodes=True)
    extent = Extent(profile=profile, repeat=repeat, run_name=run_name, seed=seed)
    settings = RunSettings(retry=RetryPolicy(wait=wait, max_retries=max_retries))

    def work(session: Session) -> RunResult:
        prepared = prepare_runs(options, extent, settings, session)
        if len(prepared.plans) > 1:
            raise UsageError(
                f"the multirun of the system file makes {len(prepared.plans)} runs. Give a system file without"
            )
        ((path, _),) = execute_runs(prepared, session)
        return load(path)

    return _outside_event_loop(work, reporter)


def _suite_options(
    config: PathOrName | None,
    system: PathOrName | None,
    base: PathOrName | None,
    select: str | None,
    exclude: str | None,
    overrides: Sequence[str],
    use_current_env: bool,
    *,
    query_nodes: bool = False,
) -> SuiteOptions:
    return SuiteOptions(
        config_file=_path(config),
        system_file=_path(system),
        base=_path(base),
        select=select,
        exclude=exclude,
        overrides=tuple(overrides),
        use_current_env=use_current_env,
        ask_nodes=query_nodes,
    )


def _path(path: PathOrName | None) -> Path | None:
    return None if path is None else Path(path)


def _outside_event_loop(work: Callable[[Session], T], reporter: Reporter | None) -> T:
    """Call `work` with a new session. In a thread while an event loop runs in the current thread, which cannot run a second."""

    def call() -> T:
        session = Session(reporter or CollectingReporter())
        try:
            return work(session)
        finally:
            session.close()

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return call()
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(call).result()
