"""The events of a step as frozen values, with the names of docs/reference/protocol.md, section 4."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Pipe = Literal["stdout", "stderr", "data"] | None
VerdictName = Literal["pass", "warn", "fail"]
OutcomeName = Literal["passed", "failed", "skipped", "cancelled", "missing"]
Why = Literal[
    "exit",
    "signal",
    "timeout",
    "silent",
    "no-data",
    "probe",
    "invalid",
    "wrong",
    "lost-node",
    "out-of-memory",
    "no-space",
    "environment",
    # Of a step whose job ended before it did; `out-of-memory`, too.
    "time-limit",
    "preempted",
    "node-failed",
    "job-cancelled",
    "job-failed",
    "job-lost",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """The common part of events: the step it belongs to, and when the agent received it (unix seconds; absent in old files).

    `extra` holds the keys of the record that this version does not know, its payload's under `data`: a record
    that is read and written again loses nothing.
    """

    step: str
    t: float | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(Recorded):
    """The resolved benchmark configuration that the step ran with."""

    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Meta(Recorded):
    """The machine and the software."""

    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Start(Recorded):
    """A process was started. `data` holds command, env, cwd, time."""

    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase(Recorded):
    """The runner entered a phase: init, parse_args, load_script, run_script, finalize."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Line(Recorded):
    """A line of output, with its line end."""

    text: str
    pipe: Pipe


@dataclass(frozen=True, slots=True, kw_only=True)
class Data(Recorded):
    """A measurement, in the keys of docs/reference/protocol.md, section 4."""

    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Message(Recorded):
    """Something a person should know that is no measurement and no failure."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Error(Recorded):
    """An exception in the benchmark or its instruments."""

    type: str
    message: str
    trace: str = ""

    @property
    def is_failure(self) -> bool:
        """Whether it means that something went wrong: voir reports `sys.exit(0)` as an error, too."""
        return not (self.type == "SystemExit" and self.message in ("", "0", "None"))

    @property
    def headline(self) -> str:
        """`type: message`, its first line."""
        return f"{self.type}: {self.message}".splitlines()[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict(Recorded):
    """The verdict of a check."""

    check: str
    verdict: VerdictName
    numbers: Mapping[str, Any]
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop(Recorded):
    """The benchmark had all the observations it wanted and was ended early."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class End(Recorded):
    """The step attempt is over. Exactly one for an attempt, the last event, also when the process was killed.

    `wall_s` are the seconds from just before the command was executed until its end was noticed. None where it was not started.
    `host` is the use of the agent's processors meanwhile, in seconds. Empty where other steps ran, too.
    """

    # In the order in which the keys stand in a record.
    command: tuple[str, ...] = ()
    time: float | None = None
    return_code: int | None = None
    outcome: OutcomeName
    why: Why | None = None
    detail: str = ""
    wall_s: float | None = None
    host: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Other(Recorded):
    """A record of a kind that this version does not know. Kept untouched."""

    event: str
    data: Any
    pipe: Pipe = None


Event = Config | Meta | Start | Phase | Line | Data | Message | Error | Verdict | Stop | End | Other


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservationBatch:
    """Consecutive observations of a task on a rank, column by column. Each column has an entry per observation.

    A run has millions of them, so they are decoded and analysed many at a time. `t0_ns` is the begin on the monotonic clock,
    `ns` the duration on the observation's own clock (the device's, where it has one) and `host_ns` the duration on the host's.
    `n` counts items, `steps` the number of steps in an entry. `wait` is the time spent waiting for data in seconds, summed
    over the observations after warm-up that report it. None when none does. `end` is the unix time at which the first ended.
    """

    step: str
    task: str
    rank: int
    units: str
    end: float
    t0_ns: Sequence[int]
    ns: Sequence[int]
    host_ns: Sequence[int]
    n: Sequence[float]
    steps: Sequence[int]
    warmup: Sequence[bool]
    epoch_end: Sequence[bool]
    wait: float | None = None


StepEvent = Event | ObservationBatch
"""The interface of an observer of a step's records."""


def reported_error(event: StepEvent) -> Error | None:
    """Return the exception that an event reports, including errors of instruments of voir's overseer. None for other events."""
    match event:
        case Error():
            return event
        case Other(event="overseer_error", data=dict(data)):
            kind, message = str(data.get("type", "error")), str(data.get("message", ""))
            return Error(step=event.step, t=event.t, type=kind, message=message)
        case _:
            return None
