"""The interface of a batch scheduler: four verbs on batches of jobs, and their scripts, for any scheduler."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, cast

from milabench import seams
from milabench.errors import UsageError
from milabench.events.model import Why

if TYPE_CHECKING:
    from milabench.config.schema import SystemConfig
    from milabench.facts.allocated_nodes import Allocation

JobPhase = Literal["pending", "running", "ended", "absent", "unknown"]
"""Where a job is: `absent`, when the scheduler answered and does not know it. `unknown`, when it gave no usable answer."""

_Reported = Literal[
    "", "completed", "failed", "cancelled", "time-limit", "preempted", "node-failed", "out-of-memory", "not-started"
]
JobResult = Literal[_Reported, "lost"]
"""How a job ended. Empty while it has not. `not-started`: the scheduler gave it up before its first process. `lost`: nobody
knows it any more.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """A job to submit: the text of its batch script, and the file that the scheduler may keep it in.

    `name` is unique among the jobs of a run: by it a job is found again whose submission was not heard of. `after` are
    jobs that must have ended before, however they ended. With `tasks` it is an array of this many, of which at most `at_once`
    run together.
    """

    name: str
    script: str
    path: Path
    after: tuple[str, ...] = ()
    tasks: int = 0
    at_once: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobBatch:
    """The jobs submitted at once: a job for a share, or an array with a task for each of several. Without shares it holds nodes.

    `benchmarks` are its shares' benchmarks.
    """

    request: JobRequest
    shares: tuple[str, ...] = ()
    benchmarks: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Its name for a person: its first share."""
        return self.shares[0] if self.shares else self.request.name

    def to_json(self) -> dict[str, Any]:
        """Return it for a program."""
        limit = {"at_once": self.request.at_once} if self.request.at_once else {}
        shares = {"shares": list(self.shares), "benchmarks": list(self.benchmarks)}
        return {"name": self.name, **shares, **limit, "script": self.request.script}

    @property
    def text(self) -> str:
        """Its output in `milabench plan run`."""
        what = f"runs {', '.join(self.benchmarks)}" if self.shares else "holds the nodes of the run"
        what += f" by the tasks of an array, {self.shares[0]} to {self.shares[-1]}" if len(self.shares) > 1 else ""
        what += f", at most {self.request.at_once} at once" if self.request.at_once else ""
        return f"job {self.name} {what}:\n\n{self.request.script}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobHandle:
    """A submitted job: the scheduler's id (of an array's task `123_4`), and the name that it was given."""

    id: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """The scheduler's present state of a job.

    `state` and `reason` are its own words, `nodes` the names of the nodes that it has or had, `witness` the source
    (`squeue`, `sacct`, `scontrol`). `exit_code` is its script's, None where unknown.
    """

    phase: JobPhase
    result: JobResult = ""
    state: str = ""
    reason: str = ""
    nodes: tuple[str, ...] = ()
    exit_code: int | None = None
    witness: str = ""


UNKNOWN_STATE: Final = JobState(phase="unknown")
"""Of a job of which nothing was said."""
WHY_OF_RESULT: Final[Mapping[str, Why]] = {
    "time-limit": "time-limit",
    "preempted": "preempted",
    "node-failed": "node-failed",
    "out-of-memory": "out-of-memory",
    "cancelled": "job-cancelled",
    "not-started": "job-cancelled",
    "lost": "job-lost",
}
"""Why steps failed whose job ended under them, by its result. Of other results the job does not say."""


class Scheduler(Protocol):
    """A batch scheduler. Each method blocks for as long as its commands take, which is bounded."""

    def submit(self, jobs: Sequence[JobRequest]) -> list[JobHandle]:
        """Submit jobs in order and return their handles, for an array a handle for each task.

        Raises UsageError with the scheduler's own reason for a job that it refuses, Unreachable when it does not answer.
        Jobs before it stay submitted, and `adopt` finds them.
        """

    def observe(self, handles: Sequence[JobHandle], *, is_doubted: bool = False) -> Mapping[str, JobState]:
        """Return the state of each job, by id: a single question for all of them. Raises nothing: an unknown state is `unknown`.

        `is_doubted`: of jobs whose reported end is not believed. A different source is asked, if there is one.
        Jobs may be left out, others every time.
        """

    def cancel(self, handles: Sequence[JobHandle]) -> None:
        """End jobs. Those that have ended are left. Raises Unreachable when the scheduler does not answer."""

    def adopt(self, marker: str) -> list[JobHandle]:
        """Return the jobs of a run that the scheduler knows, by the run's marker, ended ones too where it remembers them.

        Raises Unreachable when the scheduler does not answer.
        """


class HeldNodes(Protocol):
    """The nodes that a command uses. Where it has asked for them itself, it claims them until it gives them back."""

    nodes: Allocation

    def to_json(self) -> dict[str, object]:
        """Return its entry in the journal."""

    def rest(self) -> None:
        """Let the nodes be claimed by nobody for a moment: a thread does not survive a fork."""

    def go_on(self) -> None:
        """Claim the nodes again after `rest`."""

    def release(self) -> None:
        """Give the nodes back, unless they were ours before the command. Raises nothing."""


class JobSystem(Protocol):
    """A kind of batch scheduler: how milabench speaks to it, writes its jobs, and detects its own job.

    `seams.SCHEDULERS` has them by the name that `system.engine`, manifests and journals give them.
    """

    def connect(self, *, timeout_s: float | None = None, say: Callable[[str], object] = lambda _: None) -> Scheduler:
        """Return the scheduler of this machine, whose commands have this time limit. `say` gets a line when a command is slow."""

    def script(self, system: SystemConfig, job: JobText) -> str:
        """Return the batch script of a job with the options of a system.

        Raises ConfigError for options that cannot be written.
        """

    def allocation(self, environ: Mapping[str, str]) -> Allocation | None:
        """Return the nodes of the job that these variables are of. None outside of a job. Raises ConfigError."""

    def job_id(self, environ: Mapping[str, str]) -> str:
        """Return the id of that job, as its submission returned it: of an array's task `123_4`. Empty outside of a job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobText:
    """The parts of a batch script.

    `nodes` are the names of those that the job was planned for: stated ones, unless the system names them. `output` is the file
    of its standard output and error. `tasks`, of an array: the word that each task adds to the command.
    """

    marker: str
    share: str
    command: tuple[str, ...]
    output: Path
    nodes: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()


def job_system(name: str) -> JobSystem:
    """Return the batch scheduler of this name. Raises UsageError for a scheduler that this version does not have."""
    if name not in seams.SCHEDULERS:
        raise UsageError(f"'{name}' is no scheduler that this version knows. It has {', '.join(seams.SCHEDULERS)}")
    seams.require(seams.SCHEDULERS[name], f"--engine {name}")
    return cast("JobSystem", seams.resolved(seams.SCHEDULERS[name]))


def job_name(marker: str, share: str) -> str:
    """Return the name of the job that carries out a share: by it a job is found whose submission was not heard of."""
    return f"mb-{marker}-{share}"
