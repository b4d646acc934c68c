"""`milabench compare`: systems side by side, with how sure that is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from milabench.cli.formats import format_options, pick_format, render_comparison_as, tracing_of_systems, write_output
from milabench.cli.options import validations_option
from milabench.errors import DONE, STEPS_FAILED, NothingSelected, UsageError
from milabench.workflow.context import base_folder, warn_user

if TYPE_CHECKING:
    from milabench.analysis.compare import Comparison, Per
    from milabench.workflow.report_inputs import ReportSource

_MOST_MARGIN = 1.0


class Margin(click.ParamType[float]):
    """A relative difference: `1%` or `0.01`."""

    name = "margin"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number, above 0 and at most 1."""
        if isinstance(value, float):
            return value
        text = str(value).strip()
        try:
            found = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            self.fail(f"expected a share such as 1% or 0.01, got '{value}'", param, ctx)
        if not 0 < found <= _MOST_MARGIN:
            self.fail(f"expected more than 0 and at most 100%, got '{value}'", param, ctx)
        return found


@click.command(
    "compare",
    help="Compare runs, or JSON reports of runs, with the first of them.",
    epilog="Exit codes: 0 compared; 1 a benchmark or the index is SLOWER, or failed where it passed on the first system; "
    "2 usage; 3 nothing in common; 6 records unreadable.",
)
@click.argument("runs", nargs=-1, required=True)
@click.option("--base", type=click.Path(path_type=Path), envvar="MILABENCH_BASE", help="Default: ./results.")
@format_options
@click.option("--why", is_flag=True, help="List what differs between the systems, nearest to what changed first.")
@click.option(
    "--margin", type=Margin(), default="1%", show_default=True, help="Below it, nothing is called faster or slower."
)
@click.option(
    "--per",
    type=click.Choice(["system", "instance"]),
    default="system",
    show_default=True,
    help="Compare all instances together, or one of them (a device, a job).",
)
@click.option(
    "--weights",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Weights by benchmark, and declared work, instead of the suite's (YAML).",
)
@click.option(
    "--costs",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Price, years, power_W, pue, electricity, currency, for all or by system (YAML), instead of the system files'.",
)
@validations_option
def command(
    runs: tuple[str, ...],
    base: Path | None,
    form: str | None,
    as_json: bool,
    output: Path | None,
    why: bool,
    margin: float,
    per: Per,
    weights: Path | None,
    costs: Path | None,
    validations: str | None,
) -> int:
    """Hand the command line's values on; see the help text above."""
    from milabench.analysis.compare import System, compare
    from milabench.analysis.job_mix import costs_of
    from milabench.analysis.system_diff import system_differences
    from milabench.workflow.report_inputs import find_report_source, known_names, read_costs, read_profile

    if len(runs) < 2:
        raise UsageError(
            f"one run, '{runs[0]}', cannot be compared; name two or more, the first being what is compared with"
        )
    form = pick_format(form, as_json, output)
    profile = read_profile(weights)
    tracing = tracing_of_systems(form, len(runs))
    found = [find_report_source(base_folder(base), name, validations, tracing) for name in runs]
    places = [told.run.path.resolve() for told in found if told.run is not None]
    for again in sorted({place for place in places if places.count(place) > 1}):
        warn_user(f"{again}: is given more than once: it is compared with itself, which says nothing")
    names = unique_names(found)
    told_costs = read_costs(costs, names)
    systems = [
        System(
            name=name,
            summary=told.summary,
            costs=costs_of(told_costs.get(name, told.manifest.get("costs") or {})),
            manifest=told.manifest,
        )
        for name, told in zip(names, found, strict=True)
    ]
    known_names({bench.bench: bench for system in systems for bench in system.summary.benchmarks}, profile)
    comparison = compare(systems, margin=margin, per=per, weights=profile.weights, work=profile.work)
    listed = system_differences(systems, comparison) if why else None
    write_output(render_comparison_as(form, comparison, listed, [told.run for told in found], tracing), output)
    return exit_code(comparison)


def unique_names(found: Sequence[ReportSource]) -> list[str]:
    """A name for each system, no two the same: the run's own, less its time where that suffices."""
    for names in (
        [str(told.manifest.get("name") or told.name) for told in found],
        [told.name for told in found],
    ):
        if len(set(names)) == len(names):
            return names
    return [f"{told.name}#{place}" for place, told in enumerate(found, start=1)]


def exit_code(comparison: Comparison) -> int:
    """What the comparison means to a script. Raises NothingSelected when there was nothing to compare."""
    if not any(contrast for row in comparison.rows for contrast in row.contrasts):
        raise NothingSelected(
            "the runs have no benchmark in common that passed, is not invalid and has the same units; what each has is above"
        )
    verdicts = [contrast.verdict for row in comparison.rows for contrast in row.contrasts if contrast is not None]
    verdicts += [index.verdict for index in comparison.indices]
    failed_only_there = any(
        row.sides[0].counts and side.outcome in ("failed", "cancelled", "missing")
        for row in comparison.rows
        for side in row.sides[1:]
    )
    return STEPS_FAILED if "SLOWER" in verdicts or failed_only_there else DONE
