"""`milabench report`: what runs came to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from milabench.cli.db import db_option, stored_summaries
from milabench.cli.formats import format_options, pick_format, render_report, tracing_for, write_output
from milabench.cli.options import validations_option
from milabench.errors import DONE, NothingSelected, RecordError, UsageError
from milabench.workflow.context import base_folder

if TYPE_CHECKING:
    from milabench.analysis.summary_model import Summary
    from milabench.events.rundir import Run


@click.command("report", help="Report on runs: folders, or names below the base. Default: the latest run.")
@click.argument("runs", nargs=-1)
@click.option("--base", type=click.Path(path_type=Path), envvar="MILABENCH_BASE", help="Default: ./results.")
@format_options
@click.option(
    "--reference",
    metavar="RUN|FILE",
    help="Run, or JSON report of one, that scores are relative to. Default: what the system file of the run says.",
)
@click.option(
    "--weights",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Weights by benchmark instead of the suite's (YAML).",
)
@click.option(
    "--score",
    "kind",
    type=click.Choice(["index", "compat"]),
    default="index",
    show_default=True,
    help="compat: the score of milabench 1.3, to look up old figures by.",
)
@validations_option
@click.option("--from-db", is_flag=True, help="Report what the results store holds of the runs (docs/history.md).")
@db_option
def command(
    runs: tuple[str, ...],
    base: Path | None,
    form: str | None,
    as_json: bool,
    output: Path | None,
    reference: str | None,
    weights: Path | None,
    kind: str,
    validations: str | None,
    from_db: bool,
    place: str | None,
) -> int:
    """Hand the command line's values on; see the help text above."""
    from milabench.analysis.rescoring import milabench13_summary, reweighted
    from milabench.events.rundir import find_run, latest_run
    from milabench.workflow.report_inputs import known_names, read_profile
    from milabench.workflow.summaries import summary_of

    if reference is not None and kind == "compat":
        raise UsageError("--score compat is relative to no reference; leave out one of the two")
    form = pick_format(form, as_json, output)
    profile = read_profile(weights)
    folder = base_folder(base)
    tracing = tracing_for(form)
    if from_db:
        no_records_needed(form, reference, validations)
        found, summaries = [], stored_summaries(base, place, runs)
    else:
        found = [find_run(folder, name) for name in runs] if runs else [latest_run(folder)]
        courses = [None if tracing is None else tracing.course(run) for run in found]
        summaries = [summary_of(run, validations, course) for run, course in zip(found, courses, strict=True)]
    known_names({bench.bench: bench for summary in summaries for bench in summary.benchmarks}, profile)
    if profile.weights is not None:
        summaries = [reweighted(summary, profile.weights) for summary in summaries]
    if kind == "compat":
        summaries = [milabench13_summary(summary) for summary in summaries]
    elif not from_db:
        references = References(folder, reference)
        summaries = [references.applied(run, summary) for run, summary in zip(found, summaries, strict=True)]
    write_output(render_report(form, summaries, found, tracing), output)
    return DONE


def no_records_needed(form: str, reference: str | None, validations: str | None) -> None:
    """Raise UsageError for what takes a run's records, which a results store does not have."""
    asked = {
        "--format html": form == "html",
        "--reference": reference is not None,
        "--validations": validations is not None,
    }
    wanted = [option for option, is_asked in asked.items() if is_asked]
    if wanted:
        raise UsageError(f"--from-db: the store has results only, and {wanted[0]} takes a run's records; leave one out")


class References:
    """Puts summaries in relation to a run: the one that was asked for, else the one that each run's system file names."""

    def __init__(self, base: Path, asked: str | None) -> None:
        self._base = base
        self._asked = asked
        self._found: dict[str, Summary] = {}

    def applied(self, run: Run, summary: Summary) -> Summary:
        """The summary relative to its reference, or as it is without one.

        Raises RecordError or NothingSelected when the run that was asked for cannot be read; a name in a system file, which
        may be of another machine, is only warned of.
        """
        from milabench.analysis.rescoring import relative_to

        name = self._asked or self._recorded(run.manifest)
        if name is None:
            return summary
        try:
            return relative_to(summary, self._summary(name))
        except (NothingSelected, RecordError) as error:
            if self._asked is not None:
                raise
            click.echo(f"warning: {run.name}: no reference: {error}", err=True)
            return summary

    def _recorded(self, manifest: Mapping[str, object]) -> str | None:
        told = manifest.get("reference")
        return told if isinstance(told, str) and told else None

    def _summary(self, name: str) -> Summary:
        from milabench.workflow.report_inputs import find_report_source

        if name not in self._found:
            self._found[name] = find_report_source(self._base, name).summary
        return self._found[name]
