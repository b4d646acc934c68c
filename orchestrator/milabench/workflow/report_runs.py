"""Renders reports on runs: from their records or from a results store, relative to a reference, with other weights."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from milabench.analysis.rescoring import milabench13_summary, relative_to, reweighted
from milabench.analysis.summary_model import Summary
from milabench.errors import NothingSelected, RecordError, UsageError
from milabench.events.rundir import Run, find_run, latest_run
from milabench.report.registry import FORMATS
from milabench.workflow.files import base_folder
from milabench.workflow.report_inputs import find_report_source, read_profile, require_known_names
from milabench.workflow.session import Session
from milabench.workflow.summaries import summary_of

if TYPE_CHECKING:
    from milabench.analysis.traces import Tracing


def render_report(
    names: Sequence[str],
    format_name: str,
    session: Session,
    *,
    base: Path | None = None,
    reference: str | None = None,
    weights: Path | None = None,
    score: str = "index",
    validations: str | None = None,
    store: str | None = None,
) -> str:
    """Return the report, in a format, on the runs of these names or paths; by default on the latest.

    `reference` is a run or the JSON report of one, by default what each run's system file names. `score` is `index` or
    `compat`, the score of milabench 1.3. `store` is a results store that summaries are read from instead of records.
    Raises NothingSelected, RecordError, ConfigError for a bad weights file, UsageError for options that contradict one
    another.
    """
    if reference is not None and score == "compat":
        raise UsageError("--score compat is relative to no reference; leave out one of the two")
    profile = read_profile(weights)
    folder = base_folder(base)
    tracing = tracing_for(format_name)
    runs: list[Run] = []
    if store is not None:
        require_no_records(format_name, reference, validations)
        from milabench.workflow.results_store import stored_summaries  # few reports need a store

        summaries = stored_summaries(store, names)
    else:
        runs = [find_run(folder, name) for name in names] if names else [latest_run(folder)]
        courses = [None if tracing is None else tracing.course(run) for run in runs]
        summaries = [summary_of(run, validations, course) for run, course in zip(runs, courses, strict=True)]
    require_known_names(profile, summaries)
    if profile.weights is not None:
        summaries = [reweighted(summary, profile.weights) for summary in summaries]
    if score == "compat":
        summaries = [milabench13_summary(summary) for summary in summaries]
    elif runs:
        summaries = relative_summaries(runs, summaries, folder, reference, session)
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


def require_no_records(format_name: str, reference: str | None, validations: str | None) -> None:
    """Raise UsageError for options that need a run's records, which a results store does not have."""
    needs_records = {
        "--format html": FORMATS[format_name].draws,
        "--reference": reference is not None,
        "--validations": validations is not None,
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
