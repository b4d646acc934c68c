"""The interfaces of an execution: step requests, outcomes and progress events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from milabench.events.model import Why
from milabench.plan.model import Step

if TYPE_CHECKING:
    from milabench.records.hang_evidence import NodeEvidence


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRequest:
    """A step with the values known only when it is executed. None of them changes the measurement.

    `values` replace `@name` in command, environment and folders. `group_size` is how many steps pass the start barrier
    together on its node. `is_spread`: they wait for steps on other nodes too, until `AgentNode.release`. `marks` are files
    that say, once it has passed, that it need not be done again. `step_dir` is the folder that is made for this attempt,
    which the step already names. Empty where it names none. `secrets` come from the steps that talk to this step: it may
    repeat them.
    """

    step: Step
    group_size: int = 1
    is_spread: bool = False
    values: Mapping[str, str] = field(default_factory=dict)
    makedirs: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    step_dir: str = ""
    secrets: tuple[str, ...] = ()
    grace_s: float = 5.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a step ended: skipped, when it was not started because of something before it; cancelled, when it or the run was ended.

    `detail` is a line for a person, on a step that did not pass. `why` classifies a failure. `doubts` are those
    that the end of a passed step gives (protocol.md, section 5).
    """

    name: Literal["passed", "failed", "skipped", "cancelled"]
    detail: str = ""
    why: Why | None = None
    doubts: tuple[str, ...] = ()

    @property
    def failure(self) -> str:
        """Why the step failed or was skipped, in a line. Empty for any other outcome."""
        return f"{self.why}: {self.detail}" if self.name == "failed" else self.detail if self.name == "skipped" else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A batch of stamped records of a step, as bytes, in whole lines.

    `kind` is `line` for output, `rec` for anything from the sink or the agent, `obs` for observations. `last`
    comes with observations and has their sums (docs/reference/protocol.md, section 11): a display decodes no records.
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
class StepNotice:
    """A stage of a step, in the words of its agent's frames.

    `ready`: a server can take requests. `at-barrier` and `measured`: a step whose group has members on other nodes waits at
    the start barrier, or has its observations and goes on. `hung`: it is about to be ended for silence or time. On its node
    its processes are looked at first.
    """

    step: str
    stage: Literal["ready", "at-barrier", "measured", "hung"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceCollected:
    """The state of a step's processes, as sent by its node."""

    step: str
    evidence: NodeEvidence
    payload: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """An attempt at a step has its outcome."""

    step: str
    outcome: Outcome
    attempt: int = 1
    node: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who uses a device, as the lock file tells. `since` in unix seconds, 0 when unknown."""

    name: str
    run: str = ""
    pid: int = 0
    host: str = ""
    user: str = ""
    since: float = 0.0

    def __str__(self) -> str:
        since = datetime.fromtimestamp(self.since).strftime(" since %Y-%m-%d %H:%M:%S") if self.since else ""
        whom = f"run {self.run} (pid {self.pid}" if self.run else "another process ("
        owner = f"{self.user}@{self.host}" if self.host else "unknown"
        return f"device {self.name} is held by {whom}{', ' if self.run else ''}{owner}){since}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """The run waits for devices that others use."""

    node: str
    holders: tuple[Holder, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A line that a person should read."""

    text: str


Progress = Frame | Started | StepNotice | EvidenceCollected | Ended | Waiting | Notice
Emit = Callable[[Progress], object]
