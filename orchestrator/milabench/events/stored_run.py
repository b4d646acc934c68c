"""A run's manifest, plan and journal as they are stored: which kinds of values they have where.

Keys that are not declared may have any value. Imports msgspec: import this module where a run is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from milabench.events.stored_json import FileName, Number, Whole, from_json_value
from milabench.events.wire import parse_object

Texts = list[str] | None
Object = Mapping[str, Any] | None
TextOf = Mapping[str, str | None] | None
NumberOf = Mapping[str, Number | None]


class StoredDevice(Struct):
    """A device of a node."""

    index: Whole | None = None
    uuid: str | None = None
    name: str | None = None
    arch: str | None = None
    memory_mib: Number | None = field(default=None, name="memory_MiB")


class StoredProcessor(Struct):
    """The processor of a node, and its number of cores."""

    model: str | None = None
    count: Number | None = None


class StoredNode(Struct):
    """A node, as it described itself."""

    name: str | None = None
    ip: str | None = None
    hostname: str | None = None
    os: str | None = None
    kernel: str | None = None
    python: str | None = None
    cpu: StoredProcessor | None = None
    memory_mib: Number | None = field(default=None, name="memory_MiB")
    devices: list[StoredDevice] | None = None
    details: Object = None


class StoredSystem(Struct):
    """The machine of a run."""

    arch: str | None = None
    nodes: list[StoredNode] | None = None


class StoredStep(Struct):
    """A planned step."""

    id: str
    bench: str
    phase: str | None = None
    tag: str | None = None
    group: str | None = None
    node: str | None = None
    hash: str | None = None
    cwd: str | None = None
    venv: str | None = None
    repeat: Whole | None = None
    devices: list[Whole] | None = None
    one_job: bool | None = None
    config: Object = None


class StoredSkip(Struct):
    """A benchmark that was left out of a plan."""

    bench: str
    why: str | None = None


class StoredPlan(Struct):
    """A plan, in a file of its own or in a manifest."""

    phase: str | None = None
    hash: str | None = None
    system: StoredSystem | None = None
    steps: list[StoredStep] | None = None
    skipped: list[StoredSkip] | None = None


class StoredOptions(Struct):
    """The values of the options that a run was started with."""

    overrides: Texts = None
    ab: Texts = None
    environ: TextOf = None


class StoredReplicates(Struct):
    """How many repeats of a benchmark were planned, and wanted for the precision that was asked for."""

    planned: Number
    wanted: Number | None = None
    log_spread: Number | None = None


class StoredPair(Struct):
    """The benchmarks of both sides of an A/B run."""

    A: str
    B: str
    same_steps: bool | None = None


class StoredAB(Struct):
    """The sides of an A/B run."""

    suites: Texts = None
    differs: str | None = None
    pairs: Mapping[str, StoredPair | None] | None = None


class StoredShare(Struct):
    """The part of a plan that one job carries out."""

    steps: list[str]
    nodes: Texts = None


class StoredSubmission(Struct):
    """The jobs that carry out a run."""

    marker: str | None = None
    scheduler: str | None = None
    shares: Mapping[str, StoredShare | None] | None = None


class StoredManifest(Struct):
    """`manifest.json` of a run."""

    phase: str | None = None
    name: str | None = None
    created: str | None = None
    version: str | None = None
    cwd: str | None = None
    suite_file: str | None = None
    plan_hash: str | None = None
    profile: str | None = None
    reference: str | None = None
    capsule: str | None = None
    argv: Texts = None
    suite: Mapping[str, Object] | None = None
    system: StoredSystem | None = None
    plan: StoredPlan | None = None
    files: Mapping[str, FileName] | None = None
    seed: Whole | None = None
    costs: Object = None
    locks: TextOf = None
    programs: TextOf = None
    about: TextOf = None
    imported: TextOf = None
    validations: Texts = None
    options: StoredOptions | None = None
    precision: Number | None = None
    aim: NumberOf | None = None
    replicates: Mapping[str, StoredReplicates | None] | None = None
    ab: StoredAB | None = None
    submission: StoredSubmission | None = None


class ShareManifest(Struct):
    """The work and the place of a share, `manifest.SHARE.json`."""

    share: str | None = None
    job: str | None = None
    system: StoredSystem | None = None
    plan: StoredPlan | None = None


class JournalNode(Struct):
    """A node of a run: where it is reached."""

    name: str
    host: str
    port: Whole | None = None


class JournalAllocation(Struct):
    """The allocation that an orchestrator asked for."""

    scheduler: str | None = None
    job: str | None = None
    marker: str | None = None
    nodes: Texts = None


class JournalEntry(Struct):
    """A line of `journal.jsonl`: of a step, of an orchestrator that started or resumed the run, of a share and its job."""

    t: Number | None = None
    run: str | None = None
    step: str | None = None
    state: str | None = None
    node: str | None = None
    outcome: str | None = None
    why: str | None = None
    detail: str | None = None
    verdict: str | None = None
    group: str | None = None
    attempt: Whole | None = None
    reasons: Texts = None
    steps: TextOf = None
    clocks: Mapping[str, NumberOf | None] | None = None
    overhead: NumberOf | None = None
    # Of an orchestrator.
    boot: str | None = None
    host: str | None = None
    user: str | None = None
    marker: str | None = None
    pid: Whole | None = None
    pid_start: Whole | None = None
    oom_kills: Whole | None = None
    since: Number | None = None
    nodes: list[JournalNode] | None = None
    allocation: JournalAllocation | None = None
    # Of a share of the run and of its job.
    share: str | None = None
    job: str | None = None
    name: str | None = None
    output: str | None = None
    result: str | None = None
    job_state: str | None = None
    reason: str | None = None
    witness: str | None = None
    task: Whole | None = None
    hosts: Texts = None
    exit_code: Whole | None = None


def parse_entry(line: bytes) -> Mapping[str, object]:
    """Return the entry on a line of a journal. Raises ValueError for a torn line, or other text."""
    entry = parse_object(line)
    from_json_value(JournalEntry, entry)
    return entry
