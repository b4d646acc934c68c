"""The plan: everything that will be done, as one frozen value; its JSON form is protocol.md, section 6."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Final, Literal

from milabench.plan.canonical import Writer, canonical_json, digest, fast_writer, shown_json
from milabench.redaction import mask_settings

PhaseName = Literal["install", "prepare", "run"]
SCHEMA = 1
STEP_DIR: Final = "@{step_dir}"
"""What `{step_dir}`, the folder of a launch, is in a plan: the same in every run, so that hashes can be compared."""
STEP_DIRS: Final = "steps"
"""The folder of a run directory that the folders of its launches are in."""
# What names a step, follows from the rest of it, or watches it does not decide what it does.
# `--batch-size 8`, `--per_device_train_batch_size=8`, `data.batch=8`; not `--batches 8`.
_BATCH = r"[\w.-]*batch(?:[_-]?size[\w-]*)?"
_SIZING = re.compile(rf"(?<![^\s'\"])(?:-{_BATCH}[ =]|{_BATCH}=)\d+(?!\w)")
_MANY: Final = 300
"""Steps whose hashes take longer than it takes to import what writes them faster."""
_NOT_HASHED = ("id", "stem", "monitor", "job", "one_job", "keep_step_dir")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One process to start on one node.

    `env` holds the variables that we set, on top of what the agent inherits; values known only at the start (`@sink`, `@config`,
    `@port`, `@run`) are filled in by the agent and stay outside the hashes. `config` is the benchmark's resolved configuration,
    handed to the process as a JSON file. `needs_data` says that ending well without one observation is a failure. `monitor` is
    the command that watches the step's group on its node, one for all of them; it does not decide what the step does.
    `job` is what all steps share that need each other: the ranks of a job, a server and its client; empty for a step that
    needs no other. `one_job`: the steps of a replicate give one measurement, else each is an instance that has its own.
    `prerun` is a command that runs right before each attempt; its time is not the step's. `keep_step_dir` is when the folder
    of a launch stays after it: always, failed or never.
    `end_argv` ends what the end of the process does not: the container, when only its engine's client is a child of ours.
    """

    id: str
    bench: str
    phase: PhaseName
    argv: tuple[str, ...]
    stem: str = ""
    tag: str = ""
    repeat: int = 0
    group: str = ""
    job: str = ""
    one_job: bool = False
    node: str = "local"
    devices: tuple[int, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    secret_env: tuple[str, ...] = ()
    cwd: str = ""
    venv: str = ""
    container: str | None = None
    timeout_s: float | None = None
    max_silence_s: float | None = None
    after: tuple[str, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    needs_data: bool = True
    monitor: tuple[str, ...] = ()
    end_argv: tuple[str, ...] = ()
    prerun: tuple[str, ...] = ()
    keep_step_dir: str = "failed"

    @property
    def sizing(self) -> str:
        """The arguments that say how many items it takes at a time, else the batch size of the sizer; empty if unknown."""
        arguments = ", ".join(dict.fromkeys(_SIZING.findall(" ".join(self.argv))))
        size = self.config.get("batch_size")
        return arguments or (f"batch size {size}" if size else "")

    @property
    def hash(self) -> str:
        """sha256 over everything that decides what this step does; of secrets only the names."""
        return self.hash_by(canonical_json)

    def hash_by(self, write: Writer) -> str:
        """Return the hash, its JSON written by this writer."""
        # Plans from before there was a prerun keep their hash.
        hashed = self._fields(_HASHED if self.prerun else _HASHED_BEFORE_PRERUN)
        data = shown_json(hashed, write)
        return hashlib.sha256(canonical_json(mask_settings(hashed)) if data is None else data).hexdigest()

    def to_json(self, write: Writer = canonical_json) -> dict[str, Any]:
        """Return the step as protocol.md, section 6, spells it; of secrets only the names."""
        return {**self.shown(write), "hash": self.hash_by(write)}

    def shown(self, write: Writer = canonical_json) -> dict[str, Any]:
        """Return its fields as they may be shown; of secrets only the names."""
        shown = self._fields(_FIELDS)
        # Secrets are shown and kept nowhere: plans go into records, and those to other people.
        return shown if shown_json(shown, write) is not None else dict(mask_settings(shown))

    def _fields(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the values of some fields by their names, `env` without secrets."""
        env = {name: value for name, value in self.env.items() if name not in self.secret_env}
        return {**{name: getattr(self, name) for name in names}, "env": env}


_FIELDS: Final = tuple(key.name for key in fields(Step))
_HASHED: Final = tuple(name for name in _FIELDS if name not in _NOT_HASHED)
_HASHED_BEFORE_PRERUN: Final = tuple(name for name in _HASHED if name != "prerun")


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedBench:
    """A benchmark that is in the suite but not in the plan, and why."""

    bench: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The steps of one phase, in the order in which they are carried out.

    Steps that share a `group` run together; groups run one after the other.
    """

    phase: PhaseName
    steps: tuple[Step, ...]
    skipped: tuple[SkippedBench, ...] = ()
    system: Mapping[str, Any] = field(default_factory=dict)

    @property
    def hash(self) -> str:
        """sha256 over the steps' hashes and the skipped benchmarks."""
        write = self._writer()
        return digest([[step.hash_by(write) for step in self.steps], [asdict(skip) for skip in self.skipped]])

    def _writer(self) -> Writer:
        return fast_writer() if len(self.steps) >= _MANY else canonical_json

    def groups(self) -> tuple[tuple[Step, ...], ...]:
        """Return the steps that run together, group by group, in order."""
        groups: dict[str, list[Step]] = {}
        for step in self.steps:
            groups.setdefault(step.group or step.id, []).append(step)
        return tuple(tuple(steps) for steps in groups.values())

    def to_json(self) -> dict[str, Any]:
        """Return the plan as protocol.md, section 6, spells it."""
        write = self._writer()
        return {
            "schema": SCHEMA,
            "hash": self.hash,
            "phase": self.phase,
            "system": dict(self.system),
            "steps": [step.to_json(write) for step in self.steps],
            "skipped": [asdict(skip) for skip in self.skipped],
        }


def remaining_plan(plan: Plan, passed: Collection[str], bundles: Sequence[Sequence[Step]] | None = None) -> Plan:
    """Return the plan of the bundles in which a step has not passed; of its groups, where no bundles are given.

    A group is done again as a whole: its steps are concurrent, and an instance measured alone is not comparable. So
    are the two sides of a pair: what drifts cancels only while one follows the other.
    """
    todo = (bundle for bundle in bundles or plan.groups() if not all(step.id in passed for step in bundle))
    return replace(plan, steps=tuple(step for bundle in todo for step in bundle))


def restricted_plan(plan: Plan, steps: Collection[str]) -> Plan:
    """Return the plan of the groups that hold one of these steps."""
    groups = (group for group in plan.groups() if any(step.id in steps for step in group))
    return replace(plan, steps=tuple(step for group in groups for step in group))
