"""Reports on runs, from their records or a results store. Comparisons of systems by their runs."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from milabench import seams
from milabench.analysis.compare import compare_systems
from milabench.analysis.comparison_model import Comparison, System
from milabench.analysis.job_mix import costs_of
from milabench.analysis.rescoring import milabench13_summary, relative_to, reweighted
from milabench.analysis.summary_model import Summary, without_details
from milabench.errors import DONE, STEPS_FAILED, NothingSelected, RecordError, UsageError
from milabench.events.rundir import Run
from milabench.events.runs_folder import find_run, latest_run
from milabench.report.registry import FORMATS, WORKBOOK, Format
from milabench.report.rerun import below_base
from milabench.shown import grouped
from milabench.workflow.files import base_folder, is_archive
from milabench.workflow.measured_runs import is_metered, with_ends
from milabench.workflow.options import CompareRequest, ReportRequest, Session
from milabench.workflow.reading_progress import shown_reading
from milabench.workflow.report_inputs import (
    NO_REFERENCE,
    ReportSource,
    WeightProfile,
    find_reference,
    find_report_source,
    read_costs,
    read_profile,
    read_reference,
    run_source,
    session_names,
    shipped_references,
)

if TYPE_CHECKING:
    from milabench.analysis.job_mix import Costs
    from milabench.analysis.system_diff import Differences
    from milabench.analysis.traces import RunTraces, Trace
    from milabench.events.shared_manifests import SharedManifests

_MANY = 16  # runs of a comparison whose summaries stay in memory as they are
_LINES = 64  # of a comparison that are written at a time
_MOST_NAMED = 3  # runs of a system that its name lists


def render_report(request: ReportRequest, format_name: str, session: Session, width: int | None = None) -> str:
    """Return the report in a format. In text, its tables fit a terminal of `width` characters.

    Raises NothingSelected, RecordError, ConfigError for a bad weights file, UsageError for options that contradict each
    other.
    """
    summaries, traces = report_summaries(request, FORMATS[format_name], session)
    return FORMATS[format_name].fitted(width).render(summaries, traces)


def report_workbook(request: ReportRequest, session: Session) -> bytes:
    """Return the report as a workbook. Raises as `render_report`, and UsageError without the package that writes it."""
    written: bytes = seams.handler("--format xlsx").render(report_summaries(request, WORKBOOK, session)[0])
    return written


def report_summaries(request: ReportRequest, form: Format, session: Session) -> tuple[list[Summary], RunTraces]:
    """Return the content of a report, and the time series where its format draws them."""
    if request.reference is not None and request.score == "compat":
        raise UsageError("--score compat is not relative to a reference. Leave out --reference or --score")
    profile = read_profile(request.weights)
    folder = base_folder(request.base)
    runs: list[Run] = []
    traces: RunTraces = None
    with ExitStack() as opened:  # the runs of bundles are unpacked until its end
        if request.from_db:
            require_no_records(request, form)
            summaries = seams.handler("report --from-db")(request.base, request.location, request.runs)
        else:
            runs = [_report_run(folder, name, opened) for name in request.runs] or [latest_run(folder)]
            watched = opened.enter_context(shown_reading(session))
            runs = [watched(with_ends(run, session.warn)) for run in runs]
            sources = [run_source(run, request.validations, draws=form.draws) for run in runs]
            summaries = [source.summary for source in sources]
            traces = [source.traces for source in sources] if form.draws else None
        summaries = _with_work(form, runs, summaries)
        summaries = _with_expenses(request, runs, summaries, session)
    profile.require_known(summaries, session)
    by_summary = [(summary, profile.weights_of([summary])) for summary in summaries]
    summaries = [
        summary if weights is None else reweighted(summary, weights, profile.name) for summary, weights in by_summary
    ]
    if request.score == "compat":
        summaries = [milabench13_summary(summary) for summary in summaries]
    elif runs:
        summaries = beside_references(runs, summaries, request, session, is_for_people=form.is_for_people)
    if form.is_for_people:
        summaries = [below_base(summary, request.base) for summary in summaries]
    return summaries, traces


def _with_work(form: Format, runs: Sequence[Run], summaries: list[Summary]) -> list[Summary]:
    """Return the summaries with the work of their benchmarks, where others may compare with the report."""
    if form.name != "json" or not runs:
        return summaries
    from milabench.workflow.references import work_record

    return [structs.replace(summary, manifest=work_record(run)) for summary, run in zip(summaries, runs, strict=True)]


def _report_run(base: Path, name: str, opened: ExitStack) -> Run:
    if not is_archive(Path(name)):
        return find_run(base, name)
    run: Run = opened.enter_context(seams.handler("records of a bundle")(Path(name)))
    return run


def _with_expenses(
    request: ReportRequest, runs: Sequence[Run], summaries: Sequence[Summary], session: Session
) -> list[Summary]:
    """Return the summaries with energy, cost and carbon by a tender, or in energy alone where a meter measured a run."""
    is_asked = request.tender is not None or (any(map(is_metered, runs)) and seams.takes_part("report --tender"))
    if not is_asked:
        return list(summaries)
    energy: list[Summary] = seams.handler("report --tender")(request.tender, runs, summaries, session)
    return energy


def require_no_records(request: ReportRequest, form: Format) -> None:
    """Raise UsageError for options that need a run's records, which a results store does not have."""
    needs_records = {
        "--format html": form.draws,
        "--reference": request.reference is not None,
        "--validations": request.validations is not None,
    }
    given = [option for option, is_given in needs_records.items() if is_given]
    if given:
        raise UsageError(
            f"--from-db: the store has results only, and {given[0]} needs a run's records. "
            f"Leave out {given[0]} or --from-db"
        )


def beside_references(
    runs: Sequence[Run], summaries: Sequence[Summary], request: ReportRequest, session: Session, *, is_for_people: bool
) -> list[Summary]:
    """Return the summaries relative to the requested run, else to that which each run's system file names.

    For people else to a shipped reference. Raises RecordError or NothingSelected when the requested run cannot be read. A name
    in a system file, which may be of another machine, is only warned of.
    """
    if request.reference == NO_REFERENCE:
        return list(summaries)
    read = functools.cache(lambda name: find_reference(base_folder(request.base), name))  # usually one for all runs

    def beside(run: Run, summary: Summary) -> Summary:
        try:
            if name := request.reference or run.manifest.get("reference"):
                summary = relative_to(System(name=run.name, summary=summary, manifest=run.manifest), read(name))
        except (NothingSelected, RecordError) as error:
            if request.reference is not None:
                raise
            session.warn(f"{run.name}: no reference: {error}")
        return beside_shipped(run, summary) if is_for_people and request.reference is None else summary

    return [beside(run, summary) for run, summary in zip(runs, summaries, strict=True)]


def beside_shipped(run: Run, summary: Summary) -> Summary:
    """Return the summary with the shipped reference that shares most of its benchmarks. Unchanged where none shares any.

    Only results of the same work on devices of the same kind are used.
    """
    if summary.ab is not None or summary.score.reference is not None:
        return summary
    system = System(name=run.name, summary=summary, manifest=run.manifest)
    arch = summary.system.get("arch")
    sources = (read_reference(name) for name in shipped_references())
    beside = [
        relative_to(system, source.system, is_strict=True)
        for source in sources
        if source.summary.system.get("arch") == arch
    ]
    ratios = [sum(bench.ratio is not None for bench in other.benchmarks) for other in beside]
    return beside[ratios.index(max(ratios))] if any(ratios) else summary


@dataclass(frozen=True, slots=True, kw_only=True)
class RunComparison:
    """A comparison with the sources of each of its systems, in order. `differences` is None where they were not asked for."""

    comparison: Comparison
    sources: tuple[tuple[ReportSource, ...], ...]
    differences: Differences = None
    is_drawn: bool = False

    def render(self, format_name: str, width: int | None = None) -> str:
        """Return the comparison in a format. In text, its tables fit a terminal of `width` characters.

        With time series only where it was made for a format that draws them.
        """
        traces = [_traces(sources) for sources in self.sources] if self.is_drawn else None
        return FORMATS[format_name].fitted(width).render_comparison(self.comparison, self.differences, traces)

    def pieces(self, format_name: str, width: int | None = None) -> Iterator[str]:
        """Yield the text of `render` as it is made: of a hundred runs it is megabytes, nearly all of them blanks."""
        form = FORMATS[format_name]
        if not form.fits:
            yield self.render(format_name, width)
            return
        lines = form.by_line(width).comparison_lines(self.comparison, self.differences)
        while piece := "".join(f"{line}\n" for line in islice(lines, _LINES)):
            yield piece


def _traces(sources: Sequence[ReportSource]) -> Sequence[Trace] | None:
    """Return the time series of a system's runs, steps named by the run where there are several."""
    if len(sources) == 1:
        return sources[0].traces
    return [replace(t, step=f"{source.name} {t.step}") for source in sources for t in source.traces or ()] or None


def compare_runs(request: CompareRequest, session: Session, format_name: str = "text") -> RunComparison:
    """Compare runs. `format_name` is the format of the later output.

    Raises UsageError for fewer than two systems, or a run twice in a system, NothingSelected, RecordError, and
    ConfigError for bad weights or costs.
    """
    from milabench.analysis.system_diff import system_differences
    from milabench.events.shared_manifests import SharedManifests

    folder, names, weights = base_folder(request.base), request.runs, request.weights
    sides = [session_names(folder, name) if isinstance(name, str) else list(name) for name in names]
    if len(sides) < 2 or not all(sides):
        raise UsageError(f"'{names[0]}' is a single run. Name two or more to compare, the baseline first")
    profile = (
        WeightProfile(name="the caller", weights=weights) if isinstance(weights, Mapping) else read_profile(weights)
    )
    compared = sum(map(len, sides))
    form = FORMATS[format_name]
    is_drawn = form.draws and compared <= form.most_drawn
    with shown_reading(session) as watched:
        find = functools.partial(
            find_report_source,
            validations=request.validations,
            watched=watched,
            draws=is_drawn,
            read_manifest=(shared := SharedManifests()).read,
        )
        sources = tuple(
            tuple(_with_shared(find(folder, name), shared, is_one_of_many=compared > _MANY) for name in side)
            for side in sides
        )
    _require_different_runs(sources, session)
    system_names = unique_names(sources)
    costs_by_name = read_costs(request.costs, system_names)
    sources = tuple(tuple(map(_metered_source, side)) for side in sources)
    systems = [
        _system(name, side, costs_of(costs_by_name.get(name, side[0].manifest.get("costs") or {})))
        for name, side in zip(system_names, sources, strict=True)
    ]
    profile.require_known([source.summary for side in sources for source in side], session)
    comparison = compare_systems(
        systems,
        margin=request.margin,
        per=request.per,
        weights=profile.weights_of([source.summary for side in sources for source in side]),
        weights_of=profile.name,
        work=profile.work,
        across=request.across,
    )
    differences = system_differences(systems, comparison.rows) if request.why else None
    return RunComparison(comparison=comparison, sources=sources, differences=differences, is_drawn=is_drawn)


def _with_shared(source: ReportSource, manifests: SharedManifests, *, is_one_of_many: bool) -> ReportSource:
    """Return a report or bundle with texts shared with earlier manifests. The manifest of a run is read this way.

    One of many does not keep what no comparison shows: it is most of a summary.
    """
    if is_one_of_many:
        source = replace(source, summary=without_details(source.summary))
    return source if source.run is not None else replace(source, manifest=manifests.share(source.manifest))


def _metered_source(source: ReportSource) -> ReportSource:
    """Return a run that a meter measured with the energy of its work."""
    if not source.metered and (source.run is None or not is_metered(source.run)):
        return source
    if not seams.takes_part("meters"):
        return source
    return replace(
        source,
        summary=seams.handler("meters").with_expenses(source.summary, source.run, metered=source.metered or None),
    )


def _system(name: str, sources: Sequence[ReportSource], costs: Costs) -> System:
    first, *later = (replace(source.system, name=name, costs=costs) for source in sources)
    return replace(first, later=tuple(later))


def _require_different_runs(sources: Sequence[Sequence[ReportSource]], session: Session) -> None:
    """Refuse a run that is given twice for the same system, also as a copy or a report. Warn of a run on two sides."""
    for side in sources:
        for alike in grouped((_identity(source), source) for source in side).values():
            if len(alike) > 1:
                raise UsageError(
                    f"{_place(alike[1])}: is given twice for the same system: a run counts as a single session"
                )
    for alike in grouped((_identity(source), source) for side in sources for source in side).values():
        if len(alike) > 1:
            session.warn(f"{_place(alike[0])}: is given more than once: it is compared with itself, which says nothing")


def _identity(source: ReportSource) -> tuple[object, ...]:
    """Return the identity of a run: its name, its time, and its numbers. For a run without a number, its path."""
    summary = source.summary
    numbers = tuple(sorted((bench.bench, bench.perf) for bench in summary.benchmarks if bench.perf is not None))
    return (summary.run, summary.created, numbers) if numbers else (_place(source),)


def _place(source: ReportSource) -> str:
    return source.name if source.run is None else str(source.run.path.resolve())


def unique_names(sources: Sequence[Sequence[ReportSource]]) -> list[str]:
    """Return a name for each system, no two the same: its runs' own, without their times where that suffices."""
    for names in (
        [_joined(str(source.manifest.get("name") or source.name) for source in side) for side in sources],
        [_joined(source.name for source in side) for side in sources],
    ):
        if len(set(names)) == len(names):
            return names
    return [f"{_joined(source.name for source in side)}#{number}" for number, side in enumerate(sources, start=1)]


def _joined(names: Iterable[str]) -> str:
    different = list(dict.fromkeys(names))
    return ",".join(different if len(different) <= _MOST_NAMED else [different[0], "...", different[-1]])


def comparison_exit_code(comparison: Comparison) -> int:
    """Return 1 when a system is slower or failed where the baseline passed, else 0.

    Raises NothingSelected when the systems have nothing in common.
    """
    contrasts = [contrast for row in comparison.rows for contrast in row.contrasts if contrast is not None]
    contrasts += [ratio.contrast for curves in comparison.curves for ratio in curves.ratios]
    if not contrasts:
        raise NothingSelected(
            "the runs have no benchmark in common that passed, is not invalid, and has the same units and arguments "
            "(--across compares other arguments). The benchmarks of each are listed above"
        )
    verdicts = [contrast.verdict for contrast in contrasts] + [index.verdict for index in comparison.indices]
    has_new_failure = any(
        row.sides[0].counts and side.outcome in ("failed", "cancelled", "missing")
        for row in comparison.rows
        for side in row.sides[1:]
    )
    return STEPS_FAILED if "SLOWER" in verdicts or has_new_failure else DONE
