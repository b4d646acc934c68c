"""The inputs of use cases: options that several share, what is read by them, the reporter of messages, connections."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from milabench.errors import UsageError
from milabench.shown import is_lock

if TYPE_CHECKING:
    from milabench.config.schema import Suite, SystemConfig
    from milabench.display.base import Display
    from milabench.execute.local_agent import LocalAgent
    from milabench.execute.remote_host import HostPool
    from milabench.facts.allocated_nodes import Allocation
    from milabench.facts.model import Node
    from milabench.plan.context import Dirs, PlanContext, ResolvedBenchmark
    from milabench.schedulers.scheduler import HeldNodes

Level = Literal["info", "note", "warning", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteOptions:
    """The suite and system, the base, the selected benchmarks and their environments. None: the default.

    `ask_nodes`: query the other nodes for their facts instead of trusting the system file. `environ` are the variables that
    suite and system file may use. `engine` and `slurm_args` (`key=value`) replace `system.engine` and keys of `system.slurm`.
    `lock` is the source of the selected benchmarks' environment, instead of the lock in their folder.
    `distribute`: a benchmark of a single node runs on every node. Under Slurm, `allocate` asks for nodes where we are in no
    allocation, instead of planning for the stated nodes. `bound_nodes` are pairs of each stated node and the node of
    our allocation in its place, empty where there is none. `size`: the chosen size of the benchmarks. `size_by`:
    its source, where that was neither --size nor its variable.
    """

    config_file: Path | None = None
    system_file: Path | None = None
    base: Path | None = None
    overrides: tuple[str, ...] = ()
    max_benchmarks: int | None = None
    size: str | None = None
    size_by: str = ""
    arch: str | None = None
    select: str | None = None
    exclude: str | None = None
    lock: Path | None = None
    use_current_env: bool = False
    ask_nodes: bool = False
    accept_new_host_keys: bool = False
    ignore_node_checks: bool = False
    engine: str | None = None
    slurm_args: tuple[str, ...] = ()
    distribute: bool = False
    allocate: bool = False
    bound_nodes: tuple[tuple[str, str], ...] = ()
    # Not shown: it may hold tokens, and a traceback shows the options.
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """How much is measured: how often, how long, how precisely, within how many seconds, against which other suite.

    `precision` is the relative half-width of a 95% interval. `ab` are suites or locks of an A/B run. `seed` decides the
    order in which benchmarks run; None: the time for a run, 0 for a plan. `baseline` names the benchmark of the suite that
    all others are compared with, replicate by replicate.
    """

    repeat: int | None = None
    profile: str | None = None
    precision: float | None = None
    budget_s: float | None = None
    ab: tuple[Path, Path] | None = None
    baseline: str = ""
    # Empty where no run is made: `{run_name}` in the arguments of prepare.py is part of its marker's digest.
    run_name: str = ""
    seed: int | None = None

    def sides(self, options: SuiteOptions) -> tuple[SuiteOptions, ...]:
        """Return the options of each side of an A/B run, else of the run. Raises UsageError for a suite and a lock."""
        locks = [is_lock(file) for file in self.ab or ()]
        if len(set(locks)) > 1:
            raise UsageError("--ab takes two suites or two lock files (.lock, .txt), not a suite and a lock file")
        if self.ab is None:
            return (options,)
        return tuple(
            replace(options, lock=file) if locks[0] else replace(options, config_file=file) for file in self.ab
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallSettings:
    """How a suite is installed: missing parts. With `force` everything, with `update` unpinned parts. `jobs` at a time.

    `frozen`: from locks whose requirements have changed since, too. `ignore_space`: begin although a disk seems too small.
    `as_default`: from now on commands without --config mean this suite.
    """

    force: bool = False
    update: bool = False
    frozen: bool = False
    ignore_space: bool = False
    jobs: int = 1
    as_default: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """How a run is made as jobs of a scheduler: at most `max_jobs` of them at a time, None: as many as it lets run.

    `array`: each replicate of a benchmark is a task of a job array, instead of all of them in one job.
    """

    max_jobs: int | None = None
    array: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeRequest:
    """A search for the largest batch size of a benchmark, between `least` and `most`. `save` receives observations."""

    bench: str
    least: int = 1
    most: int | None = None
    save: Path | None = None
    wait: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRequest:
    """How a timing audit is run. `shuffle`: in random order within each block of processes."""

    base: Path | None = None
    shuffle: bool = True
    use_current_env: bool = False
    wait: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRequest:
    """Which runs are reported, by name or path, by default the latest, and how.

    `reference` is a run or its JSON report, by default the reference that each run's system file names. `score` is `index` or
    `compat`, the score of milabench 1.3. `from_db`: read summaries from the results store, at `location` or in the base,
    instead of records. `tender` is the file by whose terms energy, cost and carbon are computed.
    """

    runs: tuple[str, ...] = ()
    base: Path | None = None
    reference: str | None = None
    weights: Path | None = None
    score: str = "index"
    validations: str | None = None
    from_db: bool = False
    location: str | None = None
    tender: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareRequest:
    """Which runs, or JSON reports of runs, are compared, by name or path, and how.

    Each of `runs` is a system: a run, several by commas, or a sequence of runs. `margin` is the relative difference below
    which nothing is called faster or slower. `per` is `system`, all instances together, or `instance`. `weights` and `costs`
    are YAML files that replace the suite's and the system files'. `why`: list the differences between the systems. `across`:
    compare also benchmarks whose arguments differ.
    """

    runs: tuple[str | Sequence[str], ...]
    base: Path | None = None
    margin: float = 0.01
    per: Literal["system", "instance"] = "system"
    weights: Path | Mapping[str, float] | None = None
    costs: Path | None = None
    validations: str | None = None
    why: bool = False
    across: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptRequest:
    """Which run is checked, by default the latest, by which criteria. `reference` is the run of `x reference` in them.

    `across`: decide also on benchmarks whose arguments are not the reference's.
    """

    run: str | None = None
    base: Path | None = None
    criteria: Path | None = None
    reference: str | None = None
    across: bool = False

    @property
    def file(self) -> Path:
        """The file of criteria. Raises UsageError where none is named."""
        if self.criteria is None:
            raise UsageError("missing option --criteria FILE. docs/reference/criteria.md shows such a file")
        return self.criteria


class Reporter(Protocol):
    """Receives the messages of a use case. No method raises, so that a lost terminal does not end a run."""

    def report(self, level: Level, text: str) -> None:
        """Report a message of one or a few lines.

        Of the levels, `info` is progress or a result, `note` needs no action, `warning` may need one, `error` is a failure
        that does not end the use case at once.
        """

    def open_display(self, *, is_verbose: bool = False, clock: Callable[[], float] = time.monotonic) -> Display:
        """Return a new view of a run's progress, which the caller closes. `clock` returns seconds."""

    def show_progress(self, text: str) -> None:
        """Show how far a use case has come, instead of the previous text. An empty text ends it."""


@dataclass(slots=True)
class CollectingReporter:
    """Keeps the messages, for programs and tests. Shows no progress."""

    messages: list[tuple[Level, str]] = field(default_factory=list)

    def report(self, level: Level, text: str) -> None:
        """Keep the message."""
        self.messages.append((level, text))

    def open_display(self, *, is_verbose: bool = False, clock: Callable[[], float] = time.monotonic) -> Display:
        """Return a display that shows nothing."""
        from milabench.display.base import Display

        return Display()

    def show_progress(self, text: str) -> None:
        """Do nothing."""

    def texts(self, level: Level) -> list[str]:
        """Return the messages of a level, in order."""
        return [text for kept, text in self.messages if kept == level]


class Session:
    """A command, or a program that calls use cases: its reporter, and a connection to each machine until `close`."""

    def __init__(self, reporter: Reporter) -> None:
        self.reporter = reporter
        self.allocation: HeldNodes | None = None
        """The nodes of Slurm that the command uses."""
        self.wanted_nodes: tuple[str, ...] = ()
        """Those that it is to ask for, where not any will do."""
        self.agent: LocalAgent | None = None
        """This machine's, started ahead for the next run, while it describes the machine. See `start_agent`."""
        self._hosts: HostPool | None = None
        self._warnings: set[str] = set()

    def start_agent(self, run_name: str) -> None:
        """Start this machine's agent for the run that is made next, before its suite is read. Raises Unreachable.

        It describes the machine. The lock of a run that takes it over names its marker. Until then it has nothing to leave
        behind, and ends with us.
        """
        from milabench.events.names import run_dir_name
        from milabench.execute.local_agent import LocalAgent, lock_folder, new_marker

        marker = new_marker(run_dir_name(run_name, datetime.now()))
        self.agent = LocalAgent("local", marker, locks=lock_folder(), describes=True)

    @property
    def hosts(self) -> HostPool:
        """The machines that this session reaches."""
        if self._hosts is None:
            from milabench.execute.remote_host import HostPool

            self._hosts = HostPool()
        return self._hosts

    def info(self, text: str) -> None:
        """Report progress or a result."""
        self.reporter.report("info", text)

    def note(self, text: str) -> None:
        """Report something that needs no action."""
        self.reporter.report("note", text)

    def error(self, text: str) -> None:
        """Report a failure that does not end the use case at once."""
        self.reporter.report("error", text)

    def warn(self, text: str) -> None:
        """Report something that the user may want to change, once: a suite is often read more than once."""
        if text not in self._warnings:
            self._warnings.add(text)
            self.reporter.report("warning", text)

    def close(self) -> None:
        """End the connections, of which a later use opens new ones, and give back the nodes that were asked for."""
        if self.agent is not None:
            self.agent.leave()
            self.agent = None
        try:
            self.disconnect()
        finally:
            if self.allocation is not None:
                self.allocation.release()
                self.allocation = None

    def disconnect(self) -> None:
        """End the connections. A later use of a machine opens a new connection."""
        if self._hosts is not None:
            self._hosts.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandContext:
    """The suite as read, the selected benchmarks with their folders, everything else that a plan depends on, and this machine.

    `session` reports messages and reaches the other machines. `allocation` are the nodes that Slurm gave, or will give to a
    job, where it is Slurm that places the steps. `missing_locks` has, by benchmark, the lock that a benchfile which is not ours
    does not bring for this machine.
    """

    session: Session
    options: SuiteOptions
    suite: Suite
    suite_file: Path
    benches: tuple[ResolvedBenchmark, ...]
    plan_context: PlanContext
    machine: Node
    allocation: Allocation | None = None
    missing_locks: Mapping[str, str] = field(default_factory=dict)

    @property
    def dirs(self) -> Dirs:
        """The folders under the base, on this machine."""
        return self.plan_context.dirs

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes of the system, including this machine if it is listed."""
        return self.plan_context.facts.nodes

    @property
    def system(self) -> SystemConfig:
        """The system as configured."""
        return self.plan_context.system
