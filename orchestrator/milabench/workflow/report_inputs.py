"""Reads the inputs of a report besides recorded runs: weights, amounts of work, costs, the run that scores are relative to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from milabench import seams
from milabench.analysis.comparison_model import System
from milabench.analysis.summary_io import summary_from_json
from milabench.analysis.summary_model import Summary
from milabench.errors import MAX_PROBLEMS, ConfigError, NothingSelected, RecordError, UsageError, with_remedy
from milabench.events.rundir import ReadManifest, Run, read_alone
from milabench.events.runs_folder import find_run
from milabench.events.stored_json import from_json_value
from milabench.events.stored_run import StoredManifest
from milabench.events.values import as_mapping
from milabench.events.wire import parse_object
from milabench.workflow.files import ROOT, file_or_shipped, is_archive, read_file
from milabench.workflow.measured_runs import require_measured, with_ends
from milabench.workflow.summaries import summary_of

if TYPE_CHECKING:
    from milabench.analysis.traces import Trace
    from milabench.config.kinds import Kind
    from milabench.workflow.options import Session

NO_REFERENCE = "none"  # instead of the name of a reference
SHIPPED = "reference:"  # before the name of a shipped one, where a run is expected
REFERENCES = ROOT / "config" / "references"
WEIGHTS = ROOT / "config" / "weights"


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightProfile:
    """A weight profile: weights by benchmark or by tag, and, where declared, the items of each benchmark that a job mix does.

    None: not given. A benchmark with one of the `tags` has its own weight times the largest of their numbers, or the number alone
    where the suite weights no tagged benchmark. `name` is its name in reports. `is_shipped`: it fits any suite.
    """

    name: str = ""
    is_shipped: bool = False
    weights: Mapping[str, float] | None = None
    work: Mapping[str, float] | None = None
    tags: Mapping[str, float] | None = None

    def weights_of(self, summaries: Iterable[Summary]) -> Mapping[str, float] | None:
        """Return the weights by benchmark. None where the suite's own hold. A profile by name and tag names has both."""
        if self.tags is None:
            return self.weights
        numbers: dict[str, float] = {}
        weights: dict[str, float] = {}
        for bench in (bench for summary in summaries for bench in summary.benchmarks):
            own = 1.0 if bench.weight is None else bench.weight
            number = numbers.setdefault(bench.bench, max((self.tags.get(tag, 0.0) for tag in bench.tags), default=0.0))
            weights.setdefault(bench.bench, own * number)
        # All zero would be no weights at all, and what the profile leaves out would count.
        return {**(weights if any(weights.values()) else numbers), **(self.weights or {})}

    def require_known(self, summaries: Sequence[Summary], session: Session) -> None:
        """Raise UsageError when it names a benchmark, or only tags, that the runs do not have. Warn of other such tags.

        Else a benchmark whose name is misspelt would weigh nothing, and the score would not say so. A tag may well be of
        benchmarks that were not selected.
        """
        benches = {bench.bench for summary in summaries for bench in summary.benchmarks}
        tags = {tag for summary in summaries for bench in summary.benchmarks for tag in bench.tags}
        if self.tags is not None and not self.tags.keys() & tags:
            raise UsageError(f"--weights: none of the benchmarks here has a tag {' or '.join(self.tags)}")
        for tag in [] if self.is_shipped else [tag for tag in self.tags or {} if tag not in tags]:
            session.warn(
                with_remedy(f"--weights: none of the benchmarks here has the tag {tag!r}", _way_out(tag, tags))
            )
        for what, values in (("weights", self.weights), ("work", self.work)):
            unknown = [name for name in values or {} if name not in benches]
            if unknown and len(unknown) == len(values or {}):
                raise UsageError(
                    f"--weights: its {what} name no benchmark of this run: {', '.join(sorted(benches)[:8])}"
                )
            if unknown:
                lines = (
                    with_remedy(
                        f"--weights: its {what} name {name!r}, which is not a benchmark of this run",
                        _way_out(name, benches),
                    )
                    for name in unknown[:MAX_PROBLEMS]
                )
                raise UsageError("\nerror: ".join(lines))


def _way_out(name: str, known: Iterable[str]) -> str:
    from milabench.config.problems import did_you_mean

    return did_you_mean(name, known) or "correct it, or leave it out"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSource:
    """A run, or its JSON report or bundle (`run` is None), with its summary.

    `metered` are the meters' measurements of a bundled run. `traces` are the time series of its steps, where they are drawn.
    """

    name: str
    summary: Summary
    manifest: Mapping[str, Any]
    run: Run | None = None
    metered: Mapping[str, Any] = field(default_factory=dict)
    traces: Sequence[Trace] | None = None

    @property
    def system(self) -> System:
        """The compared system."""
        return System(name=self.name, summary=self.summary, manifest=self.manifest, is_checkable=self.is_checkable)

    @property
    def is_checkable(self) -> bool:
        """Whether it holds the work of its benchmarks, as far as its run recorded it."""
        return self.run is not None or bool(self.manifest) or self.summary.is_of_milabench13


def read_profile(path: Path | None) -> WeightProfile:
    """Read a shipped profile by its name, or a YAML file of `benchmark: weight`, or of `weights:`, `tags:` and `work:`, each such
    a mapping.

    Raises ConfigError where it is none of them, or all weights are zero.
    """
    if path is None:
        return WeightProfile()
    from milabench.config.kinds import MapOf, Number

    is_shipped = (path := file_or_shipped(path, WEIGHTS, "weight profile")).parent == WEIGHTS
    name = f"the profile {path.stem}" if is_shipped else path.name
    parts = _values_by_name(path, MapOf(item=Number(at_least=0)), ["weights"])
    if unknown := sorted(parts.keys() - {"weights", "tags", "work"}):
        raise ConfigError(f"{path}: {unknown[0]}: unknown key. Known: weights, tags, work")
    numbers = {part: {name: float(number) for name, number in own.items()} for part, own in parts.items()}
    weights, work, tags = map(numbers.get, ("weights", "work", "tags"))
    if (weights is not None or tags is not None) and not any((*(weights or {}).values(), *(tags or {}).values())):
        raise ConfigError(f"{path}: no weight is above zero. Give a benchmark a weight")
    return WeightProfile(name=name, is_shipped=is_shipped, weights=weights, work=work, tags=tags)


def read_costs(path: Path | None, systems: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """Read the costs of each system from a YAML file, the same for all or `system: {price: ...}`. Raises ConfigError."""
    if path is None:
        return {}
    from milabench.config.kinds import keys_of
    from milabench.config.schema import CostKeys

    costs = _values_by_name(path, keys_of(CostKeys), systems)
    for name in costs:
        if name not in systems:
            raise ConfigError(f"{path}: {name}: no such system is compared. They are {', '.join(systems)}")
    return costs


def find_report_source(
    base: Path,
    name: str,
    validations: str | None = None,
    watched: Callable[[Run], Run] = lambda run: run,
    *,
    draws: bool = False,
    read_manifest: ReadManifest = read_alone,
) -> ReportSource:
    """Return a run by path or name, its JSON report or bundle, or a shipped reference (`reference:NAME`).

    `draws` as in `run_source`. `watched` makes a run tell how far its records are read. `read_manifest` as in `open_run`. Raises
    NothingSelected or RecordError.
    """
    if name.startswith(SHIPPED):
        return read_reference(name.removeprefix(SHIPPED))
    path = Path(name)
    # A run is a folder: a file can only be a report.
    if path.is_file():
        return _json_report(path)
    run = watched(with_ends(find_run(base, name, read_manifest)))
    require_measured(run)
    return run_source(run, validations, draws=draws)


def run_source(run: Run, validations: str | None = None, *, draws: bool = False) -> ReportSource:
    """Return a run with its summary. `draws`: with time series, for which all its records are read. Raises RecordError."""
    if not draws:
        return ReportSource(name=run.name, summary=summary_of(run, validations), manifest=run.manifest, run=run)
    from milabench.analysis.traces import Tracing

    tracing = Tracing()
    summary = summary_of(run, validations, tracing.course(run))
    return ReportSource(name=run.name, summary=summary, manifest=run.manifest, run=run, traces=tracing.of(run))


def shipped_references() -> list[str]:
    """Return the names of the reference results that come with milabench."""
    return sorted(path.stem for path in REFERENCES.glob("*.json"))


def read_reference(name: str) -> ReportSource:
    """Return a shipped reference result. Raises NothingSelected."""
    if name not in shipped_references():
        known = ", ".join(shipped_references()) or "none"
        raise NothingSelected(f"no reference result '{name}' comes with milabench. Known: {known}")
    return replace(_json_report(REFERENCES / f"{name}.json"), name=f"{SHIPPED}{name}")


def find_reference(base: Path, name: str) -> System:
    """Return the reference of a run: a run, its JSON report, or a shipped reference, which may be named without prefix."""
    try:
        return find_report_source(base, name).system
    except NothingSelected:
        if name not in shipped_references():
            raise
        return read_reference(name).system


def session_names(base: Path, name: str) -> list[str]:
    """Return the runs that an argument names: several by commas, unless a run or a file has the comma in its name."""
    if "," not in name or Path(name).exists():
        return [name]
    try:
        find_run(base, name)
    except (NothingSelected, RecordError):
        return [part for part in map(str.strip, name.split(",")) if part]
    return [name]


def _json_report(path: Path) -> ReportSource:
    name = ""
    value: Mapping[str, Any] | None = None
    manifest: Mapping[str, Any] = {}
    metered: Mapping[str, Any] = {}
    if is_archive(path):
        name, value, manifest, metered = seams.handler("a bundle")(path)
    try:
        if value is None:
            value = parse_object(read_file(path, RecordError))
            # A reference result holds of the manifest what tells whether another run did the same work.
            manifest = as_mapping(value.get("manifest"))
            from_json_value(StoredManifest, manifest)
        summary = summary_from_json(value, manifest)
    except (ValueError, RecordError) as error:
        raise RecordError(
            f"{path}: {error}. Give a run, its JSON report (`milabench report --json`) or its bundle"
        ) from None
    return ReportSource(name=name or summary.run or path.stem, summary=summary, manifest=manifest, metered=metered)


def _values_by_name(path: Path, kind: Kind, names: Sequence[str]) -> dict[str, Any]:
    """Return the values of a YAML file by name: all of a kind where it has only mappings, else its own for each of `names`.

    Raises ConfigError with every problem.
    """
    # Few reports have weights or costs: the others do not pay for a YAML reader.
    from milabench.config.kinds import ValueParser
    from milabench.config.problems import Problems
    from milabench.config.source_map import SourceLocation
    from milabench.config.yaml_reader import decode_text, parse_document

    text = decode_text(read_file(path), str(path))
    root = parse_document(text, SourceLocation(str(path), str(path.parent))).root
    if not root.value:
        raise ConfigError(f"{path}: is empty. Write a line `name: number` for each name")
    is_by_name = type(root.value) is dict and all(type(own.value) is dict for own in root.value.values())
    nodes = root.value if is_by_name else dict.fromkeys(names, root)
    problems = Problems()
    parser = ValueParser(problems, home="")
    values = {name: parser.parse(kind, node, name if is_by_name else "") for name, node in nodes.items()}
    problems.raise_any()
    return values
