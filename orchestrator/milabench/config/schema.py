"""What a suite and a system file may say: the keys and their kinds, and the frozen values that they become.

The same tables parse the files (parse.py) and make the JSON Schema that editors use (show.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from milabench.config.source_map import DELETED, Located, Mark, leaves, plain, settled
from milabench.errors import Problem

Method = Literal["per_gpu", "njobs", "multigpu", "multinode"]
Profile = Literal["quick", "default", "rigorous"]
Seconds: TypeAlias = float

METHODS: Final[tuple[Method, ...]] = ("per_gpu", "njobs", "multigpu", "multinode")
PROFILES: Final[tuple[Profile, ...]] = ("quick", "default", "rigorous")
ENGINES: Final = ("docker", "podman", "apptainer", "none")
ARCHS: Final = ("cuda", "rocm", "xpu", "hpu", "cpu")
REDUCTIONS: Final = (
    *("last", "first", "mean", "median", "min", "max", "std", "sum", "count"),
    *("p50", "p90", "p95", "p99", "harmonic"),
)
MAX_DURATION: Final = 600
FILE_KEYS: Final = ("include", "system", "multirun", "profile")
"""The keys of a file that are not benchmarks."""

# --- kinds of values ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """Text; a number or a boolean is taken as the text that it was written with."""

    what: str = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A number; `above` excludes the bound itself."""

    what: str = "a number"
    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """A whole number."""

    what: str = "a whole number"
    at_least: int | None = None
    at_most: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """True or false."""

    what: str = "true or false"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One of a few words."""

    words: tuple[str, ...]

    @property
    def what(self) -> str:
        """As messages say it."""
        return "one of " + ", ".join(self.words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """An amount of memory: `80 GiB`, or a number of MiB."""

    what: str = "an amount of memory such as 80 GiB"


@dataclass(frozen=True, slots=True, kw_only=True)
class Anything:
    """Any plain value."""

    what: str = "a value"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOf:
    """A list; with `lone`, a value that is no list stands for a list of one."""

    item: Kind
    what: str = "a list"
    lone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MapOf:
    """A mapping with keys of the user's choice."""

    item: Kind
    what: str = "a mapping"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """A condition in the language of expr.py."""

    what: str = "an expression"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """A regular expression."""

    what: str = "a regular expression"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """Command line arguments: a mapping from option to value, or a list taken verbatim."""

    what: str = "a mapping of options or a list of arguments"


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionKind:
    """Where a benchmark's files are: a folder, or {git, rev | branch}, or {pypi, version}."""

    what: str = "a folder, {git, rev | branch} or {pypi, version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key of a record: its kind, and one line on what it means."""

    kind: Kind
    doc: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A mapping with known keys. An `open` one keeps other keys, except what looks like a slip of a known one.

    With `lone`, text stands for a mapping with nothing but that key.
    """

    keys: Mapping[str, Key]
    what: str = "a mapping"
    open: bool = False
    required: tuple[str, ...] = ()
    lone: str = ""


Kind: TypeAlias = (
    Text
    | Number
    | Whole
    | Flag
    | Choice
    | Capacity
    | Anything
    | ListOf
    | MapOf
    | Expression
    | Pattern
    | Arguments
    | DefinitionKind
    | Record
)

_FREE: Final = MapOf(item=Anything())
_SECONDS: Final = Number(what="a number of seconds", above=0)

USAGE: Final = Record(
    open=True,
    keys={
        "gpu_load_threshold": Key(
            kind=Number(at_least=0, at_most=1), doc="least mean load of the accelerators, 0 to 1"
        ),
        "gpu_mem_threshold": Key(kind=Number(at_least=0, at_most=1), doc="least share of their memory in use, 0 to 1"),
    },
)
VOIR_OPTIONS: Final = Record(
    open=True,
    keys={
        "stop": Key(kind=Whole(at_least=1), doc="observations wanted"),
        "skip": Key(kind=Whole(at_least=0), doc="first observations to mark as warm-up"),
        "interval": Key(kind=Text(), doc="how often observations are gathered, such as 1s"),
        "gpu_poll": Key(kind=Number(at_least=0), doc="seconds between two samples of the accelerators"),
        "dash": Key(kind=Anything(), doc="display of the program itself"),
    },
)
PLAN: Final = Record(
    open=True,
    keys={
        "method": Key(kind=Choice(words=METHODS), doc="placement of the processes on the devices"),
        "n": Key(kind=Whole(at_least=1), doc="number of jobs of the method njobs"),
        "nodes": Key(
            kind=ListOf(item=Text(), lone=True),
            doc="names of the nodes that run it; all, or as many as num_machines says, by default",
        ),
        "launcher": Key(
            kind=Text(), doc="none, torchrun, accelerate, ranks, mpirun; what starts one process per device"
        ),
    },
)
METRIC: Final = Record(
    keys={
        "pattern": Key(
            kind=Pattern(),
            doc="regular expression whose first group (or all of it) is the number; the task's where there is a driver",
        ),
        "reduce": Key(kind=Choice(words=REDUCTIONS), doc="how several matches become one number"),
        "scale": Key(kind=Number(above=0), doc="what that number is multiplied by; 1 by default"),
        "units": Key(kind=Text(), doc="unit of the number"),
        "direction": Key(kind=Choice(words=("higher", "lower", "none")), doc="which way is better"),
    },
)
READY: Final = Record(
    lone="pattern",
    keys={
        "pattern": Key(kind=Text(), doc="regular expression that its output matches; a number is a port"),
        "port": Key(kind=Text(), doc="a port that answers; @port is one that was free at the start"),
        "timeout": Key(kind=_SECONDS, doc="seconds after which it has failed; max_duration by default"),
    },
)
SERVER: Final = Record(
    keys={
        "argv": Key(kind=Arguments(), doc="arguments of the server"),
        "ready": Key(kind=READY, doc="a pattern in its output, or a port that answers, once it can take requests"),
    },
)
CONTAINER: Final = Record(
    keys={
        "engine": Key(kind=Choice(words=ENGINES), doc="what runs it; docker by default, none for no container"),
        "image": Key(kind=Text(), doc="the image, in the place of docker_image"),
        "args": Key(kind=ListOf(item=Text(), lone=True), doc="further options of the engine, such as --privileged"),
        "mounts": Key(
            kind=ListOf(item=Text(), lone=True), doc="folders to see inside beside ours: path, or path:inside[:ro]"
        ),
    },
)
CLIENT: Final = Record(keys={"argv": Key(kind=Arguments(), doc="arguments of the client")})

BENCHMARK: Final = Record(
    keys={
        "inherits": Key(kind=Text(), doc="the benchmark or template whose keys this one starts from"),
        "definition": Key(kind=DefinitionKind(), doc="folder with benchfile.py, or where to fetch it from"),
        "group": Key(kind=Text(), doc="name shared by benchmarks of one kind; the benchmark's own by default"),
        "install_group": Key(kind=Text(), doc="name of the virtual environment; the group by default"),
        "install_variant": Key(kind=Text(), doc="suffix of the requirements file; ${system.arch} by default"),
        "enabled": Key(kind=Flag(), doc="false: only runs when it is selected by name"),
        "weight": Key(kind=Number(at_least=0), doc="weight in the score"),
        "tags": Key(
            kind=ListOf(item=Text(), lone=True), doc="words that --select understands; united with the parent's"
        ),
        "url": Key(kind=Text(), doc="where to ask for access to gated data"),
        "max_duration": Key(kind=_SECONDS, doc="time limit of a step in seconds; 600 by default"),
        "max_silence": Key(kind=_SECONDS, doc="seconds without record and output after which the step has failed"),
        "voir": Key(
            kind=Record(open=True, keys={"options": Key(kind=VOIR_OPTIONS, doc="of the voirfile")}), doc="probes"
        ),
        "validation": Key(
            kind=Record(open=True, keys={"usage": Key(kind=USAGE, doc="use of the accelerators")}),
            doc="checks of the results; off unless given",
        ),
        "plan": Key(kind=PLAN, doc="how it is placed"),
        "argv": Key(kind=Arguments(), doc="arguments of the program"),
        "server": Key(kind=SERVER, doc="the server of a client/server benchmark"),
        "client": Key(kind=CLIENT, doc="its client"),
        "command": Key(
            kind=ListOf(item=Text(), lone=True, what="a command"), doc="any program, measured by its log lines"
        ),
        "shell": Key(kind=Flag(), doc="the command is one line for the shell"),
        "driver": Key(
            kind=Text(), doc="task file (.cfg) whose task gives metrics, and the command unless there is one here"
        ),
        "task": Key(kind=Text(), doc="section of the driver's file; the benchmark's name by default"),
        "cwd": Key(
            kind=Text(), doc="where a command is started; the folder of the driver's file, else data/<benchmark>"
        ),
        "metrics": Key(kind=MapOf(item=METRIC), doc="numbers to find in the log lines"),
        "env": Key(kind=MapOf(item=Text()), doc="environment variables of the process"),
        "matrix": Key(kind=_FREE, doc="lists of values; with job: one benchmark per combination"),
        "requires_capabilities": Key(
            kind=ListOf(item=Expression(), lone=True), doc="conditions; where one is false the benchmark is skipped"
        ),
        "num_machines": Key(kind=Whole(at_least=1), doc="number of nodes used"),
        "docker_image": Key(kind=Text(), doc="container image to run in, in the place of the system's"),
        "container": Key(kind=CONTAINER, doc="the container to run in, where it differs from the system's"),
        "pip": Key(kind=_FREE, doc="overrides for the installation"),
        "venv": Key(kind=_FREE, doc="overrides for the virtual environment"),
        "dirs": Key(kind=MapOf(item=Text()), doc="overrides for the folders"),
    },
)

GPU: Final = Record(
    open=True,
    keys={
        "count": Key(kind=Whole(at_least=0), doc="accelerators of each node"),
        "capacity": Key(kind=Capacity(), doc="memory of each accelerator"),
        "name": Key(kind=Text(), doc="product name"),
    },
)
_PORT: Final = Whole(what="a port", at_least=1, at_most=65_535)
NODE: Final = Record(
    open=True,
    required=("ip",),
    keys={
        "name": Key(kind=Text(), doc="how it is called; its address by default"),
        "ip": Key(kind=Text(), doc="address or host name"),
        "hostname": Key(kind=Text(), doc="name that launchers use; the address by default"),
        "port": Key(kind=_PORT, doc="SSH port; 22 by default"),
        "sshport": Key(kind=_PORT, doc="the same as port"),
        "user": Key(kind=Text(), doc="user to log in as"),
        "main": Key(kind=Flag(), doc="holds rank 0 and everything that runs once"),
        "base": Key(kind=Text(), doc="folder for environments and data there; the same as here by default"),
        "python": Key(kind=Text(), doc="the Python, 3.8 or later, that runs our agent there; python3 by default"),
        "proxy_jump": Key(kind=Text(), doc="user@host:port through which it is reached"),
        "gpu": Key(kind=GPU, doc="its accelerators, where they differ from the system's"),
        "cpu_count": Key(kind=Whole(at_least=1), doc="its processors"),
        "memory": Key(kind=Capacity(), doc="its memory"),
    },
)
COSTS: Final = Record(
    keys={
        "price": Key(kind=Number(above=0), doc="of the whole system"),
        "currency": Key(kind=Text(), doc="of price and electricity"),
        "years": Key(kind=Number(above=0), doc="of use, over which the price is written off"),
        "power_W": Key(kind=Number(above=0), doc="of the whole system at work, where energy is not measured"),
        "pue": Key(kind=Number(at_least=1), doc="what the building draws for each watt of the system"),
        "electricity": Key(kind=Number(above=0), doc="money for a kWh"),
    },
)
SYSTEM: Final = Record(
    open=True,
    keys={
        "arch": Key(kind=Choice(words=ARCHS), doc="kind of accelerator; detected when absent"),
        "gpu": Key(kind=GPU, doc="overrides what is detected, for plans made elsewhere"),
        "cpu_count": Key(kind=Whole(at_least=1), doc="processors of each node, for plans made elsewhere"),
        "nodes": Key(kind=ListOf(item=NODE), doc="the machines"),
        "sshkey": Key(kind=Text(), doc="private key for SSH"),
        "known_hosts": Key(kind=Text(), doc="file of known host keys"),
        "transport": Key(kind=Choice(words=("asyncssh", "openssh")), doc="how nodes are reached"),
        "sync": Key(
            kind=ListOf(item=Choice(words=("venv", "data", "cache")), lone=True),
            doc="folders of this machine that install and prepare copy to the nodes, in the place of making them there",
        ),
        "docker_image": Key(kind=Text(), doc="container image to run in"),
        "container": Key(kind=CONTAINER, doc="the container to run in: engine, image, options, folders"),
        "dirs": Key(kind=MapOf(item=Text()), doc="folders: venv, data, cache, ..."),
        "options": Key(kind=_FREE, doc="sizer, cpu, torchrun, ..."),
        "reference": Key(kind=Text(), doc="run, or file of a JSON report, that scores are relative to"),
        "costs": Key(kind=COSTS, doc="what the system costs; reports derive cost, energy and value from it"),
    },
)
MULTIRUN: Final = Record(
    keys={
        "runs": Key(
            kind=ListOf(
                item=Record(
                    required=("name", "matrix"),
                    keys={
                        "name": Key(kind=Text(), doc="name of the run, with fields such as {sizer.mult} and {time}"),
                        "matrix": Key(kind=_FREE, doc="options and their values; a run for each combination"),
                    },
                )
            ),
            doc="sets of runs",
        )
    },
)
PROFILE: Final = Choice(words=PROFILES)

# --- what they become -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a value comes from.

    `replaced`: place and value of everything that it replaced, nearest first. `interpolated`: its text before
    `${...}` was resolved, None where there was nothing to resolve. Line 0: not a place in a file but an option or a
    built-in default.
    """

    file: str
    line: int
    column: int
    replaced: tuple[tuple[str, Any], ...] = ()
    interpolated: str | None = None

    @property
    def where(self) -> str:
        """`file:line:column`, or the option."""
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


class Origins(Mapping[str, Origin]):
    """The origin of every value of a benchmark by its dotted key (`argv.--lr`); made when first asked for."""

    __slots__ = ("_found", "_node")

    def __init__(self, node: Located) -> None:
        self._node = node
        self._found: dict[str, Located] | None = None

    def _all(self) -> dict[str, Located]:
        if self._found is None:
            self._found = {".".join(path): node for path, node in leaves(self._node) if path}
        return self._found

    def __getitem__(self, key: str) -> Origin:
        return origin_of(self._all()[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def where(self, key: str) -> str:
        """The place of a value, or of the nearest container that has one; empty where nothing is known."""
        found = self._all()
        while key and key not in found:
            key = key.rpartition(".")[0]
        return str(found[key].mark) if key else ""

    def __copy__(self) -> Origins:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Origins:
        return self


def origin_of(node: Located) -> Origin:
    """The origin of one located value."""
    mark: Mark = node.mark
    return Origin(
        file=mark.source.name,
        line=mark.line,
        column=mark.column,
        replaced=tuple((str(old.mark), _shown(old)) for old in node.replaced),
        interpolated=node.raw,
    )


def _shown(node: Located) -> Any:
    return DELETED.value if node.value is DELETED else plain(settled(node))


@dataclass(frozen=True, slots=True, kw_only=True)
class GitDefinition:
    """A benchmark's folder at the top of a git repository; `rev` a commit, else the tip of `branch`."""

    url: str
    rev: str = ""
    branch: str = ""

    @property
    def folder(self) -> str:
        """Where it lies under `base/code`: `<repository>-<revision>`, or the branch while no revision is known."""
        name = self.url.rstrip("/").rsplit("/", 1)[-1].removesuffix(".git")
        return f"{name}-{self.rev[:12] or self.branch.replace('/', '-')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PyPIDefinition:
    """A benchmark's folder inside a release on the package index."""

    project: str
    version: str

    @property
    def folder(self) -> str:
        """Where it lies under `base/code`: `<project>-<version>`."""
        return f"{self.project}-{self.version}"


Definition: TypeAlias = Path | GitDefinition | PyPIDefinition
Argument: TypeAlias = str | tuple[str, Any]
"""One verbatim argument, or an option and its value; placeholders are not resolved yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanConfig:
    """How a benchmark is placed; `extra` holds the keys that a launcher understands."""

    method: Method = "per_gpu"
    n: int = 1
    launcher: str | None = None
    nodes: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """The server of a client/server benchmark; `ready` is a pattern in its output, or the number of a port.

    `timeout` is how long it may take to become ready, in seconds; None where the suite does not say.
    """

    argv: tuple[Argument, ...] = ()
    ready: str = ""
    timeout: Seconds | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """The client of a client/server benchmark."""

    argv: tuple[Argument, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerConfig:
    """A container as a suite or a system file describes it; None where it does not."""

    engine: str | None = None
    image: str | None = None
    args: tuple[str, ...] | None = None
    mounts: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricConfig:
    """A number to find in log lines."""

    pattern: str
    reduce: str = "last"
    scale: float = 1.0
    units: str = ""
    direction: str = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkConfig:
    """One benchmark of a suite, resolved but for its placeholders.

    `matrix` is the choice that made it, when it came out of one; `options` holds the keys that its benchfile declares.
    """

    name: str
    definition: Definition | None
    group: str
    install_group: str
    install_variant: str
    inherits: str | None = field(default=None, compare=False)
    enabled: bool = True
    weight: float = 0.0
    tags: tuple[str, ...] = ()
    url: str = ""
    max_duration: Seconds = MAX_DURATION
    max_silence: Seconds | None = None
    voir: Mapping[str, Any] = field(default_factory=dict)
    validation: Mapping[str, Any] = field(default_factory=dict)
    plan: PlanConfig = PlanConfig()
    argv: tuple[Argument, ...] = ()
    server: ServerConfig | None = None
    client: ClientConfig | None = None
    command: tuple[str, ...] = ()
    shell: bool = False
    cwd: Path | None = None
    metrics: Mapping[str, MetricConfig] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    matrix: Mapping[str, Any] = field(default_factory=dict)
    requires_capabilities: tuple[str, ...] = ()
    num_machines: int = 1
    docker_image: str | None = None
    container: ContainerConfig = ContainerConfig()
    pip: Mapping[str, Any] = field(default_factory=dict)
    venv: Mapping[str, Any] = field(default_factory=dict)
    dirs: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    origin: Origins = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuConfig:
    """Accelerators as a system file states them; None where it does not."""

    count: int | None = None
    capacity_mib: int | None = None
    name: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """One machine of the system file."""

    name: str
    ip: str
    hostname: str
    port: int = 22
    user: str = ""
    main: bool = False
    gpu: GpuConfig | None = None
    cpu_count: int | None = None
    memory_mib: int | None = None
    base: str = ""
    python: str = ""
    proxy_jump: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemConfig:
    """What the system file says. The main node comes first in `nodes`; `raw` is the whole mapping, for placeholders."""

    arch: str | None = None
    gpu: GpuConfig = GpuConfig()
    cpu_count: int | None = None
    nodes: tuple[NodeConfig, ...] = ()
    sshkey: str = ""
    known_hosts: str = ""
    transport: str = "asyncssh"
    sync: tuple[str, ...] = ()
    docker_image: str | None = None
    container: ContainerConfig = ContainerConfig()
    dirs: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    reference: str = ""
    costs: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    raw: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    origin: Origins = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Multirun:
    """One set of runs: a name with fields, and options with the values that they take."""

    name: str
    matrix: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """Everything that the files and the overrides say; `files` are those that were read, in order."""

    benchmarks: Mapping[str, BenchmarkConfig]
    system: SystemConfig
    profile: Profile = "default"
    multirun: tuple[Multirun, ...] = ()
    warnings: tuple[Problem, ...] = ()
    files: tuple[Path, ...] = ()
