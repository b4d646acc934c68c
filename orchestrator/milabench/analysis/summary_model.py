"""The results of a run as frozen values. The JSON form is docs/reference/protocol.md, section 6, and follows from the fields.

Keys are written in the order of the fields: adding a field adds a key, and `JsonKey` says where the two differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict

from msgspec import Struct, field
from msgspec.structs import replace

from milabench.analysis.intervals import Interval
from milabench.analysis.json_codec import OPTIONAL, JsonKey, to_json_value
from milabench.analysis.milabench13 import BenchFigures
from milabench.analysis.paired_comparison import AB
from milabench.analysis.score import Score
from milabench.analysis.serving_model import ServingCurve
from milabench.analysis.step_results import SupersededAttempt
from milabench.analysis.throughput import Direction, Throughput
from milabench.analysis.uncertainty import CONFIDENCE, NO_ALLOWANCE, Allowance, Uncertainty
from milabench.events.attempts import with_node
from milabench.events.model import OutcomeName
from milabench.events.stored_json import AboveZero, NotNegative, Number, Whole, WholeOrFloat
from milabench.events.values import mappings_in, strict
from milabench.shown import some_of

SCHEMA = 1
Validity = Literal["valid", "imprecise", "suspect", "invalid"]
SOUND: tuple[Validity, ...] = ("valid", "imprecise")
"""Words for a number whose uncertainty is known, whether it is small enough or not."""
_WITH_RATIO = JsonKey(is_omitted=lambda bench: bench.ratio is None)
_WITH_AIM = JsonKey(is_omitted=lambda summary: not summary.aim)
MOST_NAMES = 8
_DERIVED = "(derived)"
"""Of a field whose key in JSON has something else, from which it is made where a summary is read."""
_NOT_COMPARED = ("rate", "warm_up", "data_wait")
"""Metrics of a benchmark that are in its processes already, or that only its own report shows."""
COUNTED_OUTCOMES = ("passed", "failed", "skipped", "missing", "cancelled")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicateResult:
    """A replicate that passed: its steps, where it ran (`node/tag`, empty for a job that spans devices), its rate."""

    steps: tuple[str, ...]
    slot: str
    repeat: int
    throughput: Throughput


class Validation(TypedDict):
    """The verdict of a check on a step, and the numbers that it is from."""

    step: str
    check: str
    verdict: str
    numbers: Mapping[str, Any]
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptAnswers:
    """The results of a model's first steps on equal devices, where they agree: losses, and norms of gradients.

    Numbers are hexadecimal floats, with all of their bits. `software` names the releases that decide about bits. `rank` is None
    of a program of a single process. Within `tolerance`, a relative difference, numbers count as equal.
    """

    device: str
    software: str
    rank: Whole | None = None
    losses: tuple[str, ...] = ()
    gradients: tuple[str, ...] = ()
    tolerance: Number = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A step that failed, was cancelled or never ended, on which node, if on any, and the file in which to look."""

    step: str
    why: str
    detail: str
    log: str | None
    node: str = ""

    @property
    def name(self) -> str:
        """The step, and where it ran."""
        return with_node(self.step, self.node)

    @property
    def reason(self) -> str:
        """Why it did not pass, on a single line."""
        return f"{self.why}: {self.detail}" if self.detail else self.why


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """A step, or a whole benchmark (`step` is None), that was not run on purpose, and the reason."""

    step: str | None
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Flaky:
    """A step that passed although another attempt at it failed, and all those attempts."""

    step: str
    attempt: Whole
    others: tuple[SupersededAttempt, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSummary:
    """The result of the last job of a share, in the words of docs/reference/protocol.md, section 3.

    `job` is empty for a share that was not submitted. `failure` says why it left steps undone, empty where it did not.
    `unpassed` are the `steps` that have not passed, whoever is to blame.
    """

    share: str
    job: str = ""
    stage: str = ""
    result: str = ""
    state: str = ""
    reason: str = ""
    exit_code: Whole | None = None
    failure: str = ""
    nodes: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    unpassed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeUse:
    """The operations that a benchmark does in a second on a device, without accelerators on a node.

    `device` is the product name where all devices are alike. `peak` is its maker's published figure for dense products in this
    precision, and `peak_source` where that is published. `measured_peak` is the rate of the matrix products of `measured_by`.
    """

    precision: str
    flops_per_item: Number
    achieved: Number
    device: str = ""
    peak: Number | None = None
    peak_source: str = ""
    measured_peak: Number | None = None
    measured_by: Annotated[str, JsonKey(followed_by=("mfu", "mfu_measured"))] = ""

    @property
    def mfu(self) -> float | None:
        """The use of the device: achieved over the published peak, 0 to 1. None where that is not known."""
        return self.achieved / self.peak if self.peak else None

    @property
    def mfu_measured(self) -> float | None:
        """Achieved over the measured peak. None where nothing measured it."""
        return self.achieved / self.measured_peak if self.measured_peak else None


class BenchSummary(Struct, frozen=True, kw_only=True):
    """The result of a benchmark.

    `perf` is the rate of an instance, the geometric mean over `processes`: a device for `per_gpu`, one of the n for
    `njobs`, the whole job for `multigpu` and `multinode`. `score` is perf times the `instances` that ran concurrently:
    the rate of the system. None unless everything planned passed. `counts` are steps. Spreads are relative: `within` a
    process (between its observations), between `devices` (the means of the slots), between `processes` on the same
    slot. `spread` between all processes. `ci95` stands on `replicates` repeats, the instances of each averaged.
    `overlap` is the share of the time in which all instances of a group measured, of that in which any did, 0 to 1.
    `validations` are the verdicts of checks, step by step. `ratio` is to a reference run, if there is one: > 1 means
    better. `reference_validity` is the validity of the reference's number, with its reasons, and `no_ratio` says why a
    number has none. `compute` is the use of the devices, where the operations of an item are known. `serving` the curve
    of a server. `wall_s` is the time of its repeats together, in seconds. `size` names its size, empty where it has none.
    `tags` are from the suite. `doubt_repeats` are the repeats that a warning is about, where it is not about all.
    `about` is the workload that the benchmark represents, in a sentence. `milabench13` are the figures of milabench
    1.3, where the records are its own.
    """

    bench: str
    about: Annotated[str, OPTIONAL] = ""
    size: Annotated[str, OPTIONAL] = ""
    tags: Annotated[tuple[str, ...], OPTIONAL] = ()
    outcome: OutcomeName
    counts: Mapping[str, Whole]
    ngpu: Whole = 0
    nodes: Whole = 0
    instances: Whole = 0
    replicates: Whole = 0
    processes: Annotated[tuple[ReplicateResult, ...], JsonKey("processes", write=len)] = field(
        default=(), name=_DERIVED
    )
    perf: AboveZero | None = None
    units: str = ""
    direction: Direction = "higher"
    uncertainty: Annotated[Uncertainty | None, OPTIONAL] = None
    ci95: tuple[AboveZero, AboveZero] | None = None
    spread: NotNegative | None = None
    spread_within: NotNegative | None = None
    spread_devices: NotNegative | None = None
    spread_processes: NotNegative | None = None
    memory_peak_mib: NotNegative | None = field(default=None, name="memory_peak_MiB")
    energy_j: NotNegative | None = field(default=None, name="energy_J")
    first_step_s: NotNegative | None = None
    wall_s: Annotated[NotNegative | None, OPTIONAL] = None
    overlap: NotNegative | None = None
    compute: Annotated[ComputeUse | None, OPTIONAL] = None
    serving: Annotated[ServingCurve | None, OPTIONAL] = None
    weight: NotNegative | None = None
    score: AboveZero | None = None
    validity: Validity | None = None
    doubts: tuple[str, ...] = field(default=(), name="reasons")
    doubt_repeats: Annotated[Mapping[str, tuple[Whole, ...]], OPTIONAL] = field(
        default_factory=dict, name="reason_repeats"
    )
    failures: tuple[Failure, ...] = ()
    skipped: tuple[Skip, ...] = ()
    flaky: tuple[Flaky, ...] = ()
    validations: tuple[Validation, ...] = ()
    answers: Annotated[tuple[KeptAnswers, ...], OPTIONAL] = ()
    messages: tuple[str, ...] = ()
    ratio: Annotated[Number | None, _WITH_RATIO] = None
    ratio_ci95: Annotated[Interval | None, _WITH_RATIO] = None
    reference_validity: Annotated[str, _WITH_RATIO] = ""
    no_ratio: Annotated[str, OPTIONAL] = ""
    metrics: tuple[Mapping[str, Any], ...] = ()
    milabench13: Annotated[BenchFigures | None, OPTIONAL] = None

    @property
    def interval(self) -> Interval | None:
        """The interval that holds its number at 95 %. Of a summary by an earlier version the interval of the repeats alone."""
        known = self.uncertainty
        if known is None:
            return self.ci95
        return None if known.low is None or known.high is None else (known.low, known.high)

    @property
    def imprecision(self) -> Uncertainty | None:
        """The uncertainty of a number that is only not as precise as was asked for. None for any other."""
        return self.uncertainty if self.validity == "imprecise" else None

    @property
    def allowance(self) -> Allowance:
        """The uncertainty of its number in addition to the scatter of repeats."""
        known, value = self.uncertainty, self.perf
        return NO_ALLOWANCE if known is None or value is None else known.beyond_launches(value)

    @property
    def confidence(self) -> float:
        """Confidence of Student's t of its repeats. See `Uncertainty`."""
        return CONFIDENCE if self.uncertainty is None else self.uncertainty.confidence

    @property
    def doubt_words(self) -> dict[str, str]:
        """Its warnings, each in words with its repeats where it is about single ones: `contended in repeat 3`."""
        repeats = {doubt: ", ".join(map(str, self.doubt_repeats.get(doubt, ()))) for doubt in self.doubts}
        return {doubt: f"{doubt} in repeat {known}" if known else doubt for doubt, known in repeats.items()}

    def to_json(self) -> dict[str, Any]:
        """Return the benchmark as docs/reference/protocol.md, section 6, spells it."""
        return dict(to_json_value(self))


def validity_words(validity: Validity | None, doubts: Sequence[str], uncertainty: Uncertainty | None = None) -> str:
    """Return whether a number is trustworthy, with every warning: `suspect (short)`; empty without a number.

    For an imprecise number it shows how imprecise, the cause, and the request.
    """
    if validity == "imprecise" and uncertainty is not None:
        return f"imprecise ({uncertainty.words})"
    return f"{validity or ''} ({', '.join(doubts)})" if doubts else validity or ""


def some_names(names: Sequence[str]) -> str:
    """Return names by commas. Of many, how many there are and the first ones."""
    many = f"{len(names)}: " if len(names) > MOST_NAMES else ""
    return many + some_of(names, MOST_NAMES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expense:
    """Expenses of a benchmark's work: `quantity` for each `per`: an item (`token`), `1M tokens`, `run`, `node year`, `year`.

    `run` is for a repeat on its nodes. `year` is of all `nodes` of the system: the nodes of an offer, else
    those that ran. `value` has the 95 % interval `ci95`, None where that is not known, and is made of `parts`.
    `power` says how the power is known, `level` the level of power measurement, `source` the origin of the figures.
    """

    bench: str
    quantity: Literal["energy", "cost", "carbon"]
    per: str
    value: Number
    ci95: Interval | None = None
    units: str = ""
    parts: tuple[str, ...] = ()
    power: Literal["meter", "node", "board", "provisioned"] = "board"
    level: str = ""
    source: str = ""
    nodes: Whole = 1


class Summary(Struct, frozen=True, kw_only=True):
    """The result of a run: everything that a report shows.

    `capsule` is the digest of the capsule that its suite was installed from. `argv` is the command line that made the
    run, `options` the values of its options, `software` versions by name, as far as recorded. `accelerators` the
    drivers' facts about each device at the start. `verdict` is passed when every planned step passed or was skipped.
    `overhead` is the cost of the control plane and the agents: `control_cpu_s`, `agent_cpu_s`, and `wall_s` of the
    steps. `aim` and `replicates` are the requested precision and the number of repeats
    (docs/explanation/methodology.md, 1.0). `ab` the result of an A/B run (without a score). `jobs` carried out its
    shares, where it was submitted to a scheduler. `expenses` are the energy, cost and carbon of its work by a tender.
    Stored summaries have none. `manifest` is the part of its manifest that tells whether another run did the same work.
    Only exported summaries have it, such as a JSON report.
    """

    run: str = ""
    system: Mapping[str, Any] = field(default_factory=dict)
    profile: Annotated[str, JsonKey(followed_by=("sizes",))] = ""
    verdict: Literal["passed", "failed", "interrupted"] = "failed"
    is_ended: bool = field(default=True, name="ended")
    created: str = ""
    version: str = ""
    capsule: Annotated[str, OPTIONAL] = ""
    argv: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    software: Mapping[str, str] = field(default_factory=dict)
    overhead: Mapping[str, Number] = field(default_factory=dict)
    accelerators: tuple[Mapping[str, Any], ...] = ()
    jobs: Annotated[tuple[JobSummary, ...], OPTIONAL] = ()
    benchmarks: tuple[BenchSummary, ...]
    expenses: Annotated[tuple[Expense, ...], OPTIONAL] = ()
    score: Score = Score()
    aim: Annotated[Mapping[str, WholeOrFloat | None], _WITH_AIM] = field(default_factory=dict)
    replicates: Annotated[Mapping[str, Mapping[str, WholeOrFloat | None]], _WITH_AIM] = field(default_factory=dict)
    ab: Annotated[AB | None, JsonKey("ab", write=AB.to_json, is_optional=True)] = field(default=None, name=_DERIVED)
    manifest: Annotated[Mapping[str, Any], OPTIONAL] = field(default_factory=dict)

    @property
    def sizes(self) -> tuple[str, ...]:
        """The sizes that its benchmarks had. A single one, except for merged runs. None where no benchmark has sizes."""
        return tuple(dict.fromkeys(bench.size for bench in self.benchmarks if bench.size))

    @property
    def is_of_milabench13(self) -> bool:
        """Whether milabench 1.3 made the run: nothing here runs it again."""
        return any(bench.milabench13 is not None for bench in self.benchmarks)

    @property
    def counts(self) -> dict[str, int]:
        """How many of the planned steps ended how."""
        return {outcome: sum(bench.counts[outcome] for bench in self.benchmarks) for outcome in COUNTED_OUTCOMES}

    @property
    def nodes(self) -> list[Mapping[str, Any]]:
        """The nodes of its machine, as they were recorded."""
        return mappings_in(self.system.get("nodes"))

    @property
    def node_names(self) -> tuple[str, ...]:
        """The names of the nodes that were measured. Empty where only this machine was measured, which has no name."""
        of_jobs = dict.fromkeys(node for job in self.jobs for node in job.nodes)
        names = of_jobs or dict.fromkeys(str(node.get("name") or "") for node in self.nodes)
        return () if names.keys() <= {"", "local"} else tuple(names)

    @property
    def devices(self) -> list[Mapping[str, Any]]:
        """The devices of all nodes, as they were recorded."""
        return [device for node in self.nodes for device in mappings_in(node.get("devices"))]

    def to_json(self) -> dict[str, Any]:
        """Return the summary as docs/reference/protocol.md, section 6, spells it. Strict JSON, whatever the records hold."""
        return {"schema": SCHEMA, **strict(to_json_value(self))}


def without_details(summary: Summary) -> Summary:
    """Return a summary without the verdicts of checks that passed, and without metrics that no comparison looks at."""
    benches = (
        replace(
            bench,
            validations=tuple(each for each in bench.validations if each["verdict"] != "pass"),
            metrics=tuple(each for each in bench.metrics if each["metric"] not in _NOT_COMPARED),
        )
        for bench in summary.benchmarks
    )
    return replace(summary, benchmarks=tuple(benches))
