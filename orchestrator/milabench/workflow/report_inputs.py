"""What a reader brings to runs that were made before: weights, amounts of work, costs, the run that scores are relative to."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from milabench.errors import ConfigError, NothingSelected, RecordError, UsageError

if TYPE_CHECKING:
    from milabench.analysis.summary_model import Summary
    from milabench.analysis.traces import Tracing
    from milabench.events.rundir import Run

_COSTS = ("price", "currency", "years", "power_W", "pue", "electricity")


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightProfile:
    """A weight profile: weights by benchmark, and, where declared, the items of each that a job mix does; None: not given."""

    weights: Mapping[str, float] | None = None
    work: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSource:
    """A run, or the JSON report of one (`run` is None), with its summary."""

    name: str
    summary: Summary
    manifest: Mapping[str, Any]
    run: Run | None = None


def read_profile(path: Path | None) -> WeightProfile:
    """A YAML file of `benchmark: weight`, or of `weights:` and `work:`, each such a mapping.

    Raises ConfigError where it is not that, or weighs nothing.
    """
    if path is None:
        return WeightProfile()
    told = _mapping(path)
    if told.keys() <= {"weights", "work"} and all(isinstance(value, dict) for value in told.values()):
        weights = _numbers(path, told["weights"], "weights.") if "weights" in told else None
        work = _numbers(path, told["work"], "work.") if "work" in told else None
    else:
        weights, work = _numbers(path, told, ""), None
    if weights is not None and not any(weights.values()):
        raise ConfigError(f"{path}: no weight is above zero; give at least one benchmark a weight")
    return WeightProfile(weights=weights, work=work)


def read_costs(path: Path | None, systems: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """The costs of each system, from a YAML file of them for all, or of `system: {price: ...}`. Raises ConfigError."""
    if path is None:
        return {}
    told = _mapping(path)
    if all(isinstance(value, dict) for value in told.values()):
        for name in told:
            if name not in systems:
                raise ConfigError(f"{path}: {name}: no such system is compared; they are {', '.join(systems)}")
        return {str(name): _costs(path, value, f"{name}.") for name, value in told.items()}
    return dict.fromkeys(systems, _costs(path, told, ""))


def find_report_source(
    base: Path, name: str, validations: str | None = None, tracing: Tracing | None = None
) -> ReportSource:
    """A run by path or name, or the file of a JSON report of one; `tracing` draws the run where its records are read.

    Raises NothingSelected or RecordError.
    """
    from milabench.events.rundir import find_run
    from milabench.workflow.summaries import summary_of

    path = Path(name)
    if path.is_file():
        return _report(path)
    run = find_run(base, name)
    if run.phase != "run":
        raise NothingSelected(f"{run.path}: is the record of an {run.phase}, in which nothing was measured")
    course = None if tracing is None else tracing.course(run)
    return ReportSource(name=run.name, summary=summary_of(run, validations, course), manifest=run.manifest, run=run)


def known_names(benches: Mapping[str, Any], profile: WeightProfile) -> None:
    """Raises UsageError when a profile names no benchmark of the runs at all: it is for another suite."""
    for what, told in (("weights", profile.weights), ("work", profile.work)):
        if told and not told.keys() & benches.keys():
            raise UsageError(
                f"--weights: its {what} name none of the benchmarks here: {', '.join(sorted(benches)[:8])}"
            )


def _report(path: Path) -> ReportSource:
    from milabench.analysis.summary_io import summary_from_json
    from milabench.events.wire import parse_object

    try:
        summary = summary_from_json(parse_object(path.read_bytes()))
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {(error.strerror or str(error)).lower()}") from None
    except (ValueError, RecordError) as error:
        raise RecordError(f"{path}: {error}; give a run, or what `milabench report --json` wrote of one") from None
    return ReportSource(name=summary.run or path.stem, summary=summary, manifest={})


def _mapping(path: Path) -> dict[str, Any]:
    from milabench.config.source_map import SourceLocation, plain
    from milabench.config.yaml_reader import decode_text, parse_document

    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {(error.strerror or str(error)).lower()}") from None
    told = plain(parse_document(decode_text(content, str(path)), SourceLocation(str(path), str(path.parent))).root)
    if not isinstance(told, dict) or not told:
        raise ConfigError(
            f"{path}: expected `name: number` lines, found {'nothing' if not told else type(told).__name__}"
        )
    return told


def _numbers(path: Path, told: Mapping[str, Any], within: str) -> dict[str, float]:
    for name, value in told.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not math.isfinite(value) or value < 0:
            raise ConfigError(f"{path}: {within}{name}: expected a number, 0 or more, got {value!r}")
    return {str(name): float(value) for name, value in told.items()}


def _costs(path: Path, told: Mapping[str, Any], within: str) -> Mapping[str, Any]:
    for name, value in told.items():
        if name not in _COSTS:
            raise ConfigError(f"{path}: {within}{name}: unknown key; known are {', '.join(_COSTS)}")
        if name != "currency" and (isinstance(value, bool) or not isinstance(value, int | float) or not value > 0):
            raise ConfigError(f"{path}: {within}{name}: expected a number above 0, got {value!r}")
    return told
