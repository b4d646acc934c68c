"""Compares systems by their runs, with the first as the baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from milabench.analysis.compare import Comparison, Per, System, compare_systems
from milabench.analysis.job_mix import costs_of
from milabench.analysis.system_diff import Difference, system_differences
from milabench.errors import DONE, STEPS_FAILED, NothingSelected, UsageError
from milabench.report.registry import FORMATS
from milabench.workflow.files import base_folder
from milabench.workflow.report_inputs import (
    ReportSource,
    WeightProfile,
    find_report_source,
    read_costs,
    read_profile,
    require_known_names,
)
from milabench.workflow.report_runs import tracing_for
from milabench.workflow.session import Session

if TYPE_CHECKING:
    from milabench.analysis.traces import Tracing


@dataclass(frozen=True, slots=True, kw_only=True)
class RunComparison:
    """A comparison with the sources of its systems, in order; `differences` is None where they were not asked for."""

    comparison: Comparison
    sources: tuple[ReportSource, ...]
    differences: Sequence[Difference] | None = None
    tracing: Tracing | None = None

    def render(self, format_name: str) -> str:
        """Return the comparison in a format; with time series only where it was made for a format that draws them."""
        runs = [source.run for source in self.sources]
        traces = None
        if self.tracing is not None:
            traces = [None if run is None else self.tracing.of(run) for run in runs]
        return FORMATS[format_name].renderer.render_comparison(self.comparison, self.differences, traces)


def compare_runs(
    names: Sequence[str],
    session: Session,
    *,
    format_name: str = "text",
    base: Path | None = None,
    margin: float = 0.01,
    per: Per = "system",
    weights: Path | Mapping[str, float] | None = None,
    costs: Path | None = None,
    validations: str | None = None,
    why: bool = False,
) -> RunComparison:
    """Compare runs, or JSON reports of runs, by name or path; `format_name` is what it will be rendered in.

    `margin` is the relative difference below which nothing is called faster or slower. `per` is `system`, all instances
    together, or `instance`. `weights` and `costs` are YAML files that replace the suite's and the system files'. `why`:
    list what differs between the systems. Raises UsageError for fewer than two, NothingSelected, RecordError, and
    ConfigError for bad weights or costs.
    """
    if len(names) < 2:
        raise UsageError(f"one run, '{names[0]}', cannot be compared; name two or more, the baseline first")
    profile = WeightProfile(weights=weights) if isinstance(weights, Mapping) else read_profile(weights)
    tracing = tracing_for(format_name, compared=len(names))
    folder = base_folder(base)
    sources = tuple(find_report_source(folder, name, validations, tracing) for name in names)
    paths = [source.run.path.resolve() for source in sources if source.run is not None]
    for path in sorted({path for path in paths if paths.count(path) > 1}):
        session.warn(f"{path}: is given more than once: it is compared with itself, which says nothing")
    system_names = unique_names(sources)
    costs_by_name = read_costs(costs, system_names)
    systems = [
        System(
            name=name,
            summary=source.summary,
            costs=costs_of(costs_by_name.get(name, source.manifest.get("costs") or {})),
            manifest=source.manifest,
        )
        for name, source in zip(system_names, sources, strict=True)
    ]
    require_known_names(profile, [source.summary for source in sources])
    comparison = compare_systems(systems, margin=margin, per=per, weights=profile.weights, work=profile.work)
    differences = system_differences(systems, comparison) if why else None
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
