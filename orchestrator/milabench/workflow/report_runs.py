"""Reports on runs, from their records or a results store; comparisons of systems by their runs; verdicts by criteria.

Each imports its own part of the analysis where it begins: criteria alone take 15 ms, for they are YAML.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from milabench.analysis.compare import Comparison, System, compare_systems
from milabench.analysis.job_mix import costs_of
from milabench.analysis.rescoring import milabench13_summary, relative_to, reweighted
from milabench.analysis.summary_model import Summary
from milabench.errors import DONE, STEPS_FAILED, NothingSelected, RecordError, UsageError
from milabench.events.rundir import Run, find_run, latest_run
from milabench.report.registry import FORMATS
from milabench.workflow.files import base_folder, read_file
from milabench.workflow.options import CompareRequest, ReportRequest, Session
from milabench.workflow.report_inputs import ReportSource, WeightProfile, find_report_source, read_costs, read_profile
from milabench.workflow.summaries import resolve_runs, summary_of

if TYPE_CHECKING:
    from milabench.acceptance.evaluate import Acceptance
    from milabench.analysis.system_diff import Differences
    from milabench.analysis.traces import Tracing


def render_report(request: ReportRequest, format_name: str, session: Session) -> str:
    """Return the report in a format.

    Raises NothingSelected, RecordError, ConfigError for a bad weights file, UsageError for options that contradict one
    another.
    """
    if request.reference is not None and request.score == "compat":
        raise UsageError("--score compat is relative to no reference; leave out one of the two")
    profile = read_profile(request.weights)
    folder = base_folder(request.base)
    tracing = tracing_for(format_name)
    runs: list[Run] = []
    if request.from_db:
        require_no_records(request, format_name)
        from milabench.workflow.results_store import store_location, stored_summaries  # few reports need a store

        summaries = stored_summaries(store_location(request.base, request.location), request.runs)
    else:
        runs = [find_run(folder, name) for name in request.runs] or [latest_run(folder)]
        courses = [None if tracing is None else tracing.course(run) for run in runs]
        summaries = [summary_of(run, request.validations, course) for run, course in zip(runs, courses, strict=True)]
    profile.require_known(summaries)
    if profile.weights is not None:
        summaries = [reweighted(summary, profile.weights) for summary in summaries]
    if request.score == "compat":
        summaries = [milabench13_summary(summary) for summary in summaries]
    elif runs:
        summaries = relative_summaries(runs, summaries, folder, request.reference, session)
    traces = None if tracing is None else [tracing.of(run) for run in runs]
    return FORMATS[format_name].renderer.render(summaries, traces)


def tracing_for(format_name: str, compared: int = 0) -> Tracing | None:
    """Return the collector of the runs' time series while their records are read; None where the format draws none.

    `compared` is the number of systems of a comparison, of which only a few are drawn.
    """
    form = FORMATS[format_name]
    if not form.draws or compared > form.most_drawn:
        return None

    from milabench.analysis.traces import Tracing

    return Tracing()


def require_no_records(request: ReportRequest, format_name: str) -> None:
    """Raise UsageError for options that need a run's records, which a results store does not have."""
    needs_records = {
        "--format html": FORMATS[format_name].draws,
        "--reference": request.reference is not None,
        "--validations": request.validations is not None,
    }
    given = [option for option, is_given in needs_records.items() if is_given]
    if given:
        raise UsageError(f"--from-db: the store has results only, and {given[0]} needs a run's records; leave one out")


def relative_summaries(
    runs: Sequence[Run], summaries: Sequence[Summary], base: Path, reference: str | None, session: Session
) -> list[Summary]:
    """Return the summaries relative to the given run, else to that which each run's system file names, else as they are.

    Raises RecordError or NothingSelected when the given run cannot be read; a name in a system file, which may be of
    another machine, is only warned of.
    """
    read = functools.cache(lambda name: find_report_source(base, name).summary)  # usually one for all runs

    def relative(run: Run, summary: Summary) -> Summary:
        recorded = run.manifest.get("reference")
        name = reference or (recorded if isinstance(recorded, str) else None)
        try:
            return relative_to(summary, read(name)) if name else summary
        except (NothingSelected, RecordError) as error:
            if reference is not None:
                raise
            session.warn(f"{run.name}: no reference: {error}")
            return summary

    return [relative(run, summary) for run, summary in zip(runs, summaries, strict=True)]


def accept_run(name: str | None, base: Path | None, criteria_file: Path, reference: str | None = None) -> Acceptance:
    """Return the verdict on a run, by default on the latest.

    `reference` is the run, or JSON report of one, that `x reference` in the criteria means. Raises ConfigError for bad
    criteria, UsageError for a missing reference, NothingSelected and RecordError.
    """
    from milabench.acceptance.criteria import parse_criteria
    from milabench.acceptance.evaluate import evaluate_criteria

    criteria = parse_criteria(read_file(criteria_file, hint="check the path"), str(criteria_file))
    if criteria.is_relative and reference is None:
        raise UsageError(f"{criteria_file}: asks for 'x reference': name that run with --reference")
    return evaluate_criteria(
        criteria,
        summary_of(resolve_runs(base, [name] if name else [])[0]),
        find_report_source(base_folder(base), reference).summary if reference is not None else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunComparison:
    """A comparison with the sources of its systems, in order; `differences` is None where they were not asked for."""

    comparison: Comparison
    sources: tuple[ReportSource, ...]
    differences: Differences = None
    tracing: Tracing | None = None

    def render(self, format_name: str) -> str:
        """Return the comparison in a format; with time series only where it was made for a format that draws them."""
        runs = [source.run for source in self.sources]
        traces = None
        if self.tracing is not None:
            traces = [None if run is None else self.tracing.of(run) for run in runs]
        return FORMATS[format_name].renderer.render_comparison(self.comparison, self.differences, traces)


def compare_runs(request: CompareRequest, session: Session, format_name: str = "text") -> RunComparison:
    """Compare runs; `format_name` is what the comparison will be rendered in.

    Raises UsageError for fewer than two, NothingSelected, RecordError, and
    ConfigError for bad weights or costs.
    """
    from milabench.analysis.system_diff import system_differences

    if len(request.runs) < 2:
        raise UsageError(f"one run, '{request.runs[0]}', cannot be compared; name two or more, the baseline first")
    weights = request.weights
    profile = WeightProfile(weights=weights) if isinstance(weights, Mapping) else read_profile(weights)
    tracing = tracing_for(format_name, compared=len(request.runs))
    folder = base_folder(request.base)
    sources = tuple(find_report_source(folder, name, request.validations, tracing) for name in request.runs)
    paths = [source.run.path.resolve() for source in sources if source.run is not None]
    for path in sorted({path for path in paths if paths.count(path) > 1}):
        session.warn(f"{path}: is given more than once: it is compared with itself, which says nothing")
    system_names = unique_names(sources)
    costs_by_name = read_costs(request.costs, system_names)
    systems = [
        System(
            name=name,
            summary=source.summary,
            costs=costs_of(costs_by_name.get(name, source.manifest.get("costs") or {})),
            manifest=source.manifest,
        )
        for name, source in zip(system_names, sources, strict=True)
    ]
    profile.require_known([source.summary for source in sources])
    comparison = compare_systems(
        systems, margin=request.margin, per=request.per, weights=profile.weights, work=profile.work
    )
    differences = system_differences(systems, comparison) if request.why else None
    return RunComparison(comparison=comparison, sources=sources, differences=differences, tracing=tracing)


def unique_names(sources: Sequence[ReportSource]) -> list[str]:
    """Return a name for each system, no two the same: the run's own, without its time where that suffices."""
    for names in (
        [str(source.manifest.get("name") or source.name) for source in sources],
        [source.name for source in sources],
    ):
        if len(set(names)) == len(names):
            return names
    return [f"{source.name}#{number}" for number, source in enumerate(sources, start=1)]


def comparison_exit_code(comparison: Comparison) -> int:
    """Return 1 when a system is slower or failed where the baseline passed, else 0.

    Raises NothingSelected when the systems have nothing in common.
    """
    contrasts = [contrast for row in comparison.rows for contrast in row.contrasts if contrast is not None]
    if not contrasts:
        raise NothingSelected(
            "the runs have no benchmark in common that passed, is not invalid and has the same units; "
            "the benchmarks of each are listed above"
        )
    verdicts = [contrast.verdict for contrast in contrasts] + [index.verdict for index in comparison.indices]
    has_new_failure = any(
        row.sides[0].counts and side.outcome in ("failed", "cancelled", "missing")
        for row in comparison.rows
        for side in row.sides[1:]
    )
    return STEPS_FAILED if "SLOWER" in verdicts or has_new_failure else DONE
