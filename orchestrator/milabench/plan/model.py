"""The plan: everything that will be done, as a frozen value. Its JSON form is protocol.md, section 6."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from operator import attrgetter
from typing import Any, Final, Literal

from milabench.plan.canonical import (
    PlainSettings,
    Writer,
    canonical_json,
    digest,
    fast_writer,
    has_secret_name,
    is_plain_number,
)
from milabench.redaction import mask_settings, may_hold_secret
from milabench.shown import grouped

PhaseName = Literal["install", "prepare", "run"]
SCHEMA = 1
STEP_DIR: Final = "@{step_dir}"
"""The value of `{step_dir}`, the folder of a launch, in a plan: the same in every run, so that hashes can be compared."""
STEP_DIRS: Final = "steps"
"""The folder of a run directory that holds the folders of its repeats."""
RECORDS_MIB: Final = 4096
"""The most MiB of records of an attempt, where the configuration of its step has no `max_records_mib`."""
# `--batch-size 8`, `--per_device_train_batch_size=8`, `data.batch=8`; not `--batches 8`.
_BATCH = r"[\w.-]*batch(?:[_-]?size[\w-]*)?"
_SIZING = re.compile(rf"(?<![^\s'\"])(?:-{_BATCH}[ =]|{_BATCH}=)\d+(?!\w)")
_MANY: Final = 300
"""Number of steps from which it pays to import the faster writer of hashes."""
# What names a step, follows from the rest of it, or watches it does not decide what it does.
_NOT_HASHED = ("id", "stem", "monitor", "job", "one_job", "keep_step_dir")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A process to start on a node.

    `env` holds the variables that we set, on top of the agent's own. Values known only at the start (`@sink`, `@config`,
    `@port`, `@run`) are filled in by the agent and stay outside the hashes. `config` is the benchmark's resolved configuration,
    handed to the process as a JSON file. `needs_data` says that ending well without an observation is a failure. `monitor` is
    the command that watches the step's group on its node, a single one for all of them. It does not change the step's work.
    `job` is shared by all steps that need each other: the ranks of a job, a server and its client. Empty for a step that
    needs no other. `one_job`: the steps of a replicate give a single measurement, else each is an instance that has its own.
    `prerun` is a command that runs right before each attempt. Its time is not the step's. `keep_step_dir` is when the folder
    of a repeat stays after it: always, failed or never.
    `end_argv` ends programs that survive the process: the container, when only its engine's client is a child of ours.
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
        """The arguments that say how many items it takes at a time, else the batch size of the sizer. Empty if unknown."""
        arguments = ", ".join(dict.fromkeys(_SIZING.findall(" ".join(self.argv))))
        size = self.config.get("batch_size")
        return arguments or (f"batch size {size}" if size else "")

    @property
    def hash(self) -> str:
        """sha256 over everything that decides the step's work, with only the names of secrets."""
        return _ShownSteps().hash(self)

    def to_json(self) -> dict[str, Any]:
        """Return the step as protocol.md, section 6, spells it, with only the names of secrets."""
        shown = _ShownSteps()
        return {**shown.fields(self), "hash": shown.hash(self)}

    def shown(self) -> dict[str, Any]:
        """Return its fields as they may be shown, with only the names of secrets."""
        return _ShownSteps().fields(self)


def _values_of(names: Sequence[str]) -> Callable[[Step], dict[str, Any]]:
    """Return a reader of a step's fields by their names, `env` without secrets."""
    read = attrgetter(*names)

    def values_of(step: Step) -> dict[str, object]:
        values = dict(zip(names, read(step), strict=True))
        values["env"] = env = dict(step.env)
        for name in step.secret_env:
            env.pop(name, None)
        return values

    return values_of


_FIELDS: Final = tuple(key.name for key in fields(Step))
_shown = _values_of(_FIELDS)
_hashed = _values_of(sorted({*_FIELDS} - {*_NOT_HASHED}))


class _ShownSteps:
    """Steps as they may be shown, and their hashes. Shared parts of thousands of them are checked once."""

    def __init__(self, write: Writer = canonical_json) -> None:
        self._write = write
        self._plain = PlainSettings()

    def hash(self, step: Step) -> str:
        hashed = _hashed(step)
        if not step.prerun:
            del hashed["prerun"]  # plans from before there was one keep their hash
        data = self._json(hashed)
        return hashlib.sha256(canonical_json(mask_settings(hashed)) if data is None else data).hexdigest()

    def fields(self, step: Step) -> dict[str, Any]:
        shown = _shown(step)
        # Secrets are shown and kept nowhere: plans go into records, and those to other people.
        return dict(mask_settings(shown)) if self._json(shown) is None else shown

    def _json(self, values: Mapping[str, object]) -> bytes | None:
        """Return the canonical JSON of a step's values. None where something in them may have to be masked."""
        try:
            data = self._write(values)
        except (TypeError, ValueError):  # what is no JSON, and letters that UTF-8 does not have
            return None
        return None if may_hold_secret(data) or not self._are_plain(values) else data

    def _are_plain(self, values: Mapping[str, Any]) -> bool:
        """Return whether the values of a step are plain. For most their declared type shows that."""
        words = (
            *values["argv"],
            *values["after"],
            *values["end_argv"],
            *values["secret_env"],
            *values.get("prerun", ()),
            *values.get("monitor", ()),
        )
        timeout_s, max_silence_s = values["timeout_s"], values["max_silence_s"]
        return (
            not has_secret_name(tuple(values["env"]))
            and self._plain.hold_words(words)
            and (timeout_s is None or is_plain_number(timeout_s))
            and (max_silence_s is None or is_plain_number(max_silence_s))
            and self._plain.holds(values["config"])
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedBench:
    """A benchmark that is in the suite but not in the plan, and why."""

    bench: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The steps of a phase, in the order in which they are carried out.

    Steps that share a `group` run together. Groups run in sequence.
    """

    phase: PhaseName
    steps: tuple[Step, ...]
    skipped: tuple[SkippedBench, ...] = ()
    system: Mapping[str, Any] = field(default_factory=dict)

    @property
    def hash(self) -> str:
        """sha256 over the steps' hashes and the skipped benchmarks."""
        return self._hash_of(list(map(self._shown_steps().hash, self.steps)))

    def _hash_of(self, steps: Sequence[str]) -> str:
        return digest([steps, [asdict(skip) for skip in self.skipped]])

    def _shown_steps(self) -> _ShownSteps:
        return _ShownSteps(fast_writer() if len(self.steps) >= _MANY else canonical_json)

    def groups(self) -> tuple[tuple[Step, ...], ...]:
        """Return the steps that run together, group by group, in order."""
        groups = grouped((step.group or step.id, step) for step in self.steps)
        return tuple(map(tuple, groups.values()))

    def to_json(self) -> dict[str, Any]:
        """Return the plan as protocol.md, section 6, spells it."""
        shown = self._shown_steps()
        hashes = list(map(shown.hash, self.steps))
        return {
            "schema": SCHEMA,
            "hash": self._hash_of(hashes),
            "phase": self.phase,
            "system": dict(self.system),
            "steps": [{**shown.fields(step), "hash": own} for step, own in zip(self.steps, hashes, strict=True)],
            "skipped": [asdict(skip) for skip in self.skipped],
        }


def remaining_plan(plan: Plan, passed: Collection[str], bundles: Sequence[Sequence[Step]] | None = None) -> Plan:
    """Return the plan of the bundles, by default of the groups, in which a step has not passed.

    A group is done again as a whole: its steps are concurrent, and an instance measured alone is not comparable. So
    are the two sides of a pair: drift cancels only while they run in turn.
    """
    todo = (bundle for bundle in bundles or plan.groups() if not all(step.id in passed for step in bundle))
    return replace(plan, steps=tuple(step for bundle in todo for step in bundle))


def restricted_plan(plan: Plan, steps: Collection[str]) -> Plan:
    """Return the plan of the groups that hold any of these steps."""
    groups = (group for group in plan.groups() if any(step.id in steps for step in group))
    return replace(plan, steps=tuple(step for group in groups for step in group))
