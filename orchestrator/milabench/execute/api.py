"""The interfaces of an execution: step requests, outcomes, progress events, Executor and Recorder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from milabench.events.model import Why
from milabench.plan.model import Step


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRequest:
    """A step with what is only known when it is executed; nothing here changes what is measured.

    `values` replace `@name` in command, environment and folders. `group_size` is how many steps pass the start barrier
    together on its node; `is_spread`: they wait for steps on other nodes too, until `Executor.release`. `marks` are files
    that say, once it has passed, that it need not be done again.
    """

    step: Step
    group_size: int = 1
    is_spread: bool = False
    values: Mapping[str, str] = field(default_factory=dict)
    makedirs: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    grace_s: float = 5.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a step ended: skipped, when it was not started because of something before it; cancelled, when it or the run was ended.

    `detail` is one line for a person, on a step that did not pass; `why` classifies a failure. `reasons` are those for doubt
    that the end of a passed step gives (protocol.md, section 5).
    """

    name: Literal["passed", "failed", "skipped", "cancelled"]
    detail: str = ""
    why: Why | None = None
    reasons: tuple[str, ...] = ()

    @property
    def failure(self) -> str:
        """Why the step failed or was skipped, in one line; empty for any other."""
        return f"{self.why}: {self.detail}" if self.name == "failed" else self.detail if self.name == "skipped" else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A batch of stamped records of one step, as bytes; whole lines.

    `kind` says what they are: `line` output, `rec` anything from the sink or the agent, `obs` observations. `last`
    comes with observations, their sums (docs/reference/protocol.md, section 11): a display decodes no records.
    """

    kind: Literal["line", "rec", "obs"]
    step: str
    payload: bytes
    last: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The process of a step runs."""

    step: str
    node: str = "local"
    pid: int | None = None
    pgid: int | None = None
    pid_start: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerReady:
    """A server can take requests."""

    step: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BarrierEvent:
    """A step whose group has members on other nodes waits at the start barrier, or has its observations and goes on."""

    step: str
    at: Literal["barrier", "end"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """An attempt at a step has its outcome."""

    step: str
    outcome: Outcome
    attempt: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who uses a device, as the lock file tells; `since` in unix seconds, 0 when unknown."""

    name: str
    run: str = ""
    pid: int = 0
    host: str = ""
    user: str = ""
    since: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """The run waits for devices that others use."""

    node: str
    holders: tuple[Holder, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One line that a person should read."""

    text: str


Progress = Frame | Started | ServerReady | BarrierEvent | Ended | Waiting | Notice
Emit = Callable[[Progress], object]


class Executor(Protocol):
    """Runs steps on one node: its agent, or a fake of it."""

    name: str
    """The node's name in the plan."""

    async def run(self, request: StepRequest, emit: Emit) -> Outcome:
        """Execute one step: emit `Started`, then frames in order (the last record is `end`); return the outcome.

        Cancelling the task first ends the step in order: TERM, then KILL. A lost node is an outcome, not an exception.
        """

    async def end(
        self, step: str, *, grace_s: float | None = None, is_done: bool = False, late: str | None = None
    ) -> None:
        """End a running step; a grace of 0 kills at once. No-op when it is not running.

        Its outcome will be cancelled; passed when it `is_done`, as a server is with its client; failed for a timeout
        when `late` says what it was too late for.
        """

    async def release(self, group: str) -> float | None:
        """Release the steps of a group from the start barrier, and those that reach it later.

        Return the time on the node's clock, in unix seconds; None when the node cannot be asked.
        """

    async def stop(self, step: str) -> None:
        """Tell a step that its load is no longer needed. No-op when it is not running."""

    async def port(self) -> int | None:
        """Return a port that is free on the node now; None when the node cannot be asked."""

    async def lock(self, names: Sequence[str], *, wait: bool, emit: Emit) -> tuple[Holder, ...]:
        """Hold the devices' locks until `close`; without `wait` return the current holders instead."""

    async def cpu_s(self) -> float:
        """Return the CPU seconds that supervision has used so far."""

    async def close(self) -> None:
        """End what runs and release all resources."""


class Recorder(Protocol):
    """Where records go; events.rundir.RunWriter is one. Every method may raise OSError."""

    def journal(self, entry: Mapping[str, Any]) -> None:
        """Append one change of state, durably."""

    def append(self, stem: str, payload: bytes) -> None:
        """Append whole records."""

    def append_lines(self, stem: str, payload: bytes) -> None:
        """Append `line` records, and their text to the files that people read."""

    def finish(self, stem: str) -> None:
        """Make the records of an ended step durable."""
