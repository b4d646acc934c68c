"""The keys of suites and system files. Each is declared once, on the frozen class that it becomes part of.

The parser, the defaults, the JSON Schema (config/schemas/suite.schema.json) and the reference page (docs/reference/suite-keys.md)
are derived from these declarations. kinds.py says how.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias, get_args

from milabench.config.definition import Definition, DefinitionKind
from milabench.config.kinds import (
    Argument,
    Arguments,
    Arithmetic,
    Capacity,
    Choice,
    Expression,
    Flag,
    ListOf,
    Matching,
    Number,
    Pattern,
    Record,
    ShareText,
    Text,
    Texts,
    Whole,
    extra_keys,
    key,
    keys_of,
    record_of,
)
from milabench.config.serving import ServeConfig
from milabench.config.sizes import SIZES
from milabench.config.source_map import Origins
from milabench.devices.registry import ARCHS
from milabench.errors import ConfigError, Problem
from milabench.seams import SCHEDULERS

Method = Literal["per_gpu", "njobs", "multigpu", "multinode"]
"""The plan methods. plan/method.py describes each."""
Profile = Literal["quick", "default", "rigorous"]
Engine = Literal["docker", "podman", "apptainer", "enroot", "pyxis", "none"]
KeepStepDir = Literal["always", "failed", "never"]
Precision = Literal["fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8"]
Arch: TypeAlias = Annotated[str, Choice(words=ARCHS)]

PROFILES: Final[tuple[Profile, ...]] = get_args(Profile)
REDUCTIONS: Final = (
    *("last", "first", "mean", "median", "min", "max", "std", "sum", "count"),
    *("p50", "p90", "p95", "p99", "harmonic"),
)

# Kinds of values that several keys have.
Seconds: TypeAlias = Annotated[float, Number(expected="a number of seconds", above=0)]
Share: TypeAlias = Annotated[float, Number(at_least=0, at_most=1)]
Positive: TypeAlias = Annotated[float, Number(above=0)]
NotNegative: TypeAlias = Annotated[float, Number(at_least=0)]
PositiveWhole: TypeAlias = Annotated[int, Whole(at_least=1)]
NotNegativeWhole: TypeAlias = Annotated[int, Whole(at_least=0)]
Port: TypeAlias = Annotated[int, Whole(expected="a port", at_least=1, at_most=65_535)]
Commit: TypeAlias = Annotated[
    str, Matching(pattern="[0-9a-f]{40}", expected="a full commit, 40 digits and letters a to f")
]
# No part of it begins with a dot: it is joined to an address, and to folders.
Repository: TypeAlias = Annotated[
    str,
    Matching(
        pattern="[A-Za-z0-9_][A-Za-z0-9_.-]*/[A-Za-z0-9_][A-Za-z0-9_.-]*",
        expected="a repository of the hub, owner/name",
    ),
]
ProgramName: TypeAlias = Annotated[
    str, Matching(pattern=r"[^\s\x00]([^\x00]*[^\s\x00])?", expected="the name of a program")
]
Page: TypeAlias = Annotated[
    str, Matching(pattern=r"https://[^\s/\"<>]+[^\s\"<>]*", expected="an address that begins with https://")
]
# What becomes part of paths, markers and command lines holds nothing that means something else there.
NodeName: TypeAlias = Annotated[
    str, Matching(pattern=r"\w[\w.@:-]*", expected="a name of letters, digits and . _ - : @")
]
Address: TypeAlias = Annotated[
    str, Matching(pattern=r"[\w:\[][\w.:%\[\]-]*", expected="an address, which has no - at its start")
]
User: TypeAlias = Annotated[str, Matching(pattern=r"(\w[\w.@+\\-]*\$?)?", expected="a user, with no - at the start")]
JumpHost: TypeAlias = Annotated[
    str, Matching(pattern=r"([\w\[][\w.@:%,\[\]-]*)?", expected="a jump host, user@host:port")
]
MemoryMiB: TypeAlias = Annotated[int, Capacity()]
ArgumentList: TypeAlias = Annotated[tuple[Argument, ...], Arguments()]

# --- a benchmark ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanConfig:
    """How a benchmark is placed. `extra` holds the options of its launcher."""

    method: Method = key(
        "Placement. `per_gpu`: a process per device, `njobs`: `n` processes that see all devices of a node, `multigpu`: a"
        " program over all devices of a node, `multinode`: the same over num_machines nodes.",
        default="per_gpu",
    )
    n: Annotated[int, Whole(at_least=1, at_most=10_000)] = key(
        "Number of processes, for the method `njobs`.", default=1
    )
    devices: Annotated[int, Whole(at_least=1, at_most=10_000)] | None = key(
        "Number of devices of a node that the processes of `njobs` see. Default: all.", default=None
    )
    launcher: str | None = key(
        "Launcher of a process per device: `none`, `torchrun`, `accelerate`, `ranks`, `mpirun` or `srun`; `torchrun` by default"
        " for `multigpu` and `multinode`, else, and for a `command`, `none`. Other keys of `plan` are its options.",
        default=None,
    )
    nodes: tuple[str, ...] = key(
        "Names of the nodes that run it, or `all`. Default: the first num_machines.", default=()
    )
    extra: Mapping[str, Any] = extra_keys()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyConfig:
    """When a server can take requests. A port wins over a pattern, and a pattern of digits alone is a port too.

    With a `path` the port has to answer to HTTP too: some servers open it before they have loaded their model.
    """

    SHORTHAND: ClassVar = "pattern"

    pattern: str = key("Regular expression that a line of its output matches. A number is a port.", default="")
    port: str = key("Port that accepts connections. `@port` is a port that was free at the start.", default="")
    path: Annotated[str, Matching(pattern=r"/[!-~]*", expected="a path that begins with /")] = key(
        "Path of that port, such as `/health`, that answers 200 to HTTP.", default=""
    )
    timeout: Seconds | None = key("Seconds after which the server has failed. Default: max_duration.", default=None)

    @property
    def condition(self) -> str:
        """The port or the pattern. Empty where there is neither."""
        return self.port or self.pattern


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """The server of a client/server benchmark."""

    url: Annotated[
        str,
        Matching(
            pattern=r"https?://[^\s/?#@]+(/[^\s?#]*)?", expected="http://HOST:PORT or https://HOST, without a password"
        ),
    ] = key("Where a server that runs already answers: nothing is started, a sweep goes there.", default="")
    command: Annotated[tuple[str, ...], ListOf(item=Text(), lone=True, expected="a command")] = key(
        "Any program. Default: the program of the benchfile.", default=()
    )
    argv: ArgumentList = key("Arguments of the server.", default=())
    ready: ReadyConfig = key("When it can take requests: a pattern in its output, or a port.", default=ReadyConfig())


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """The client of a client/server benchmark."""

    argv: ArgumentList = key("Arguments of the client.", default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerConfig:
    """A container as a suite or a system file describes it. None where it does not."""

    engine: Engine | None = key(
        "Container engine. Default: docker. `pyxis` is srun with a container, `none` means no container.", default=None
    )
    image: str | None = key("Image. Wins over docker_image.", default=None)
    args: tuple[str, ...] | None = key("More options of the engine, such as `--privileged`.", default=None)
    mounts: tuple[str, ...] | None = key("More folders to mount: `path` or `path:inside[:ro]`.", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricConfig:
    """A number to find in log lines. Its pattern may come from the task of a driver, so parsing does not require it."""

    pattern: Annotated[str, Pattern()] = key(
        "Regular expression. Its first group, else its whole match, is the number.", default=""
    )
    reduce: Annotated[str, Choice(words=REDUCTIONS)] = key(
        "How several matches become a single number.", default="last"
    )
    scale: Positive = key("Factor that the number is multiplied by.", default=1.0)
    units: str = key("Unit of the number.", default="")
    direction: Literal["higher", "lower", "none"] = key("Which direction is better.", default="none")


class VoirOptions:
    """The keys of `voir.options`. Benchmarks read the mapping."""

    stop: PositiveWhole = key("Number of observations.", default=None)
    skip: NotNegativeWhole = key("First observations to mark as warm-up.", default=None)
    interval: str = key("How often observations are collected, such as `1s`.", default=None)
    gpu_poll: NotNegative = key("Seconds between two samples of the devices.", default=None)
    dash: Any = key("Display of the program itself.", default=None)
    extra: Mapping[str, Any] = extra_keys()


class VoirKeys:
    """The keys of `voir`. Benchmarks read the mapping."""

    options: Annotated[Mapping[str, Any], keys_of(VoirOptions)] = key("Options of the voirfile.", default=None)
    extra: Mapping[str, Any] = extra_keys()


class UsageKeys:
    """The keys of `validation.usage`. The check reads the mapping."""

    gpu_load_threshold: Share = key("Smallest mean load of the devices, 0 to 1.", default=None)
    gpu_mem_threshold: Share = key("Smallest share of their memory in use, 0 to 1.", default=None)
    extra: Mapping[str, Any] = extra_keys()


_NO_DRIFT: Final = "`drift` was removed: it is a component of the uncertainty, which `precision` limits"


class ValidationKeys:
    """The keys of `validation`. Each check reads its own."""

    rate: Annotated[bool, Flag(_NO_DRIFT)] = key("Whether observations are checked.", default=True)
    usage: Annotated[Mapping[str, Any], keys_of(UsageKeys)] = key("Use of the devices.", default=None)
    extra: Mapping[str, Any] = extra_keys()


_MINUTES_OF_A_YEAR: Final = 525_600


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentResources:
    """Needs of a benchmark's environment. None where unknown."""

    disk_mib: MemoryMiB | None = key("Disk of the environment, installed.", name="disk", default=None)
    download_mib: MemoryMiB | None = key("Packages that are downloaded for it.", name="download", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourcesConfig:
    """Measured needs of a benchmark. `plan` sums them before anything starts. None where unknown."""

    memory_mib: MemoryMiB | None = key("Memory that it needs on each of its devices.", name="memory", default=None)
    host_memory_mib: MemoryMiB | None = key("Memory that it needs on its node.", name="host_memory", default=None)
    data_mib: MemoryMiB | None = key("Disk of its prepared data.", name="data", default=None)
    shared_data: str | None = key(
        "Name of these data, where several benchmarks share them: counted once.", default=None
    )
    download_mib: MemoryMiB | None = key("Size of the downloads that prepare it.", name="download", default=None)
    minutes: Annotated[float, Number(at_least=0, at_most=_MINUTES_OF_A_YEAR)] | None = key(
        "Minutes of a repeat with the profile `default`.", default=None
    )
    environment: EnvironmentResources = key("Its environment.", default=EnvironmentResources())


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeConfig:
    """Texts about a benchmark on the page of the suite, from no other source. Read by people only."""

    what: str = key("Purpose, in a few words. Default: the first sentence of its README.", default="")
    model: str = key("Model that is trained or run, such as `Llama-3.2 shape` or `ResNet-50`.", default="")
    parameters: str = key("Number of parameters of the model, such as `1.2 B`.", default="")
    data: str = key("Data that it learns from and their source, such as `texts by seed`.", default="")
    unit: str = key("Unit of work that its rate counts each second, such as `tokens`.", default="")
    upstream: tuple[str, ...] = key("Names of the benchmarks of milabench 1.3 that it represents.", default=())
    mlperf: tuple[str, ...] = key("Names of the MLPerf benchmarks that it represents.", default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswersConfig:
    """The first steps of a program, made once more after the window, whose losses are compared bit by bit."""

    steps: Annotated[int, Whole(at_least=1, at_most=64)] = key("How many steps.", default=20)
    seed: int = key("Seed of random numbers, unless the program sets its own.", default=1)
    gradients: bool = key("Whether the norms of gradients are compared as well.", default=False)
    tolerance: NotNegative = key("Relative difference that counts as equal. 0: no difference, to the bit.", default=0.0)
    profiles: tuple[Profile, ...] = key("Only with these profiles. Default: with each.", default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedConfig:
    """Weights or data that can only be fetched by who has accepted their terms."""

    repository: Repository = key("Repository of the hub, `owner/name`.")
    revision: Commit = key("Commit that is fetched: a name may move, a commit cannot.")
    accept: Page = key("Page where the terms are accepted. Default: the page of the repository.", default="")

    @property
    def page(self) -> str:
        """Where the terms are accepted."""
        return self.accept or f"https://huggingface.co/{self.repository}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkConfig:
    """A benchmark of a suite, resolved except for its placeholders.

    `matrix` is the choice that made it, if a matrix did. `size` is the chosen size, empty where it has
    none. `options` holds the keys that its benchfile declares.
    """

    name: str
    definition: Annotated[Definition, DefinitionKind()] | None = key(
        "Folder with benchfile.py, or where to fetch it from. Until it is fetched, plans skip the benchmark.",
        default=None,
    )
    group: str = key("Name shared by related benchmarks. Default: the benchmark's own name.", default="")
    install_group: str = key("Name of the virtual environment. Default: the group.", default="")
    install_variant: str = key(
        "Suffix of the requirements file, `${system.arch}` by default; `unpinned` uses requirements.in.", default=""
    )
    inherits: str | None = key(
        "Benchmark or template whose keys are inherited. The benchmark's own keys win.", default=None, compare=False
    )
    enabled: bool = key("Whether it runs without being selected by its name.", default=True)
    weight: NotNegative = key("Weight in the score. Where all weights are zero the score is unweighted.", default=0.0)
    tags: Annotated[tuple[str, ...], ListOf(item=Text(), lone=True, unique=True)] = key(
        "Words for `--select`. The parent's words are added.", default=()
    )
    url: Annotated[str | tuple[str, ...], Texts()] = key(
        "Where the program, its model or its data come from: an address, or a list.", default=""
    )
    describe: DescribeConfig = key("Texts about it for the page of the suite.", default=DescribeConfig(), compare=False)
    gated: GatedConfig | None = key(
        "Weights or data whose terms must have been accepted. `milabench list --gated` lists them.", default=None
    )
    answers: AnswersConfig | None = key("Steps that are computed twice, to check results.", default=None)
    max_duration: Seconds = key("Time limit of a step in seconds. In a sweep, of each point.", default=600)
    max_silence: Seconds | None = key(
        "Seconds without an observation after which a step fails. Before the first observation, records and output count.",
        default=None,
    )
    max_records_mib: PositiveWhole = key(
        "Limit of the records and output of an attempt at a step, in MiB. Beyond it the attempt has failed.",
        default=4096,
    )
    voir: Annotated[Mapping[str, Any], keys_of(VoirKeys)] = key("Options of the instruments.", default={})
    validation: Annotated[Mapping[str, Any], keys_of(ValidationKeys)] = key(
        "Checks of the results. Off unless given.", default={}
    )
    plan: PlanConfig = key("Placement and launcher.", default=PlanConfig())
    argv: ArgumentList = key("Arguments of the program.", default=())
    server: ServerConfig | None = key("Server of a client/server benchmark.", default=None)
    client: ClientConfig | None = key("Client of a client/server benchmark.", default=None)
    serve: ServeConfig | None = key(
        "Sweep over the server: the load of each point, and the requests that it consists of.", default=None
    )
    command: Annotated[tuple[str, ...], ListOf(item=Text(), lone=True, expected="a command")] = key(
        "Any program. It is measured by its log lines, or its time (`timed`).", default=()
    )
    shell: bool = key("Whether the command is a line for /bin/sh. `argv` are its parameters.", default=False)
    cwd: Path | None = key(
        "Where a command is started, relative to this file. Default: the folder of the driver's file, else `{step_dir}`.",
        default=None,
    )
    keep_step_dir: KeepStepDir = key(
        "When `{step_dir}`, the folder of a repeat, is kept after it: `always`, when it `failed` (did not pass), or `never`.",
        default="failed",
    )
    prerun: str = key(
        "Line for /bin/sh that runs right before each repeat, outside of its container. It is not part of the measured time.",
        default="",
    )
    timed: bool = key("Whether the number of a `command` without metrics is its wall-clock time.", default=False)
    metrics: Mapping[str, MetricConfig] = key("Numbers to find in the log lines.", default={})
    env: Mapping[str, str] = key("Environment variables of the process.", default={})
    matrix: Mapping[str, Any] = key(
        "Lists of values. With `job`, a benchmark per combination. Other values count as a list of length 1.",
        default={},
    )
    requires_capabilities: tuple[Annotated[str, Expression()], ...] = key(
        "Conditions. The benchmark is skipped where any of them is false.", default=()
    )
    requires_programs: tuple[ProgramName, ...] = key(
        "Programs that must be on the benchmark's PATH on the main node. If any is missing, the benchmark is skipped, with its"
        " name.",
        default=(),
    )
    num_machines: PositiveWhole = key(
        "Number of nodes used, the main node first: all by default, 1 for `multinode`. With fewer nodes it is skipped.",
        default=1,
    )
    resources: ResourcesConfig = key("Memory, disk and time that it needs.", default=ResourcesConfig())
    flops_per_item: Annotated[float, Arithmetic()] | None = key(
        "Floating-point operations for each item of its rate, such as `6 * 1.1e9`. Reports derive the use of the device from it.",
        default=None,
    )
    precision: Precision | None = key("Number format of most of these operations.", default=None)
    docker_image: str | None = key("Container image. Wins over the system's.", default=None)
    container: ContainerConfig = key("Container, where it differs from the system's.", default=ContainerConfig())
    pip: Mapping[str, Any] = key("Overrides for the installation.", default={})
    venv: Mapping[str, Any] = key("Overrides for the virtual environment.", default={})
    dirs: Mapping[str, str] = key("Overrides for the folders `data`, `cache` and `extra`.", default={})
    size: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    origin: Origins = field(compare=False, repr=False)

    def error(self, key: str, what: str, hint: str = "") -> ConfigError:
        """Return the error about the value of a key, with its place."""
        return ConfigError(Problem(self.origin.where(key), f"{self.name}.{key}", what, hint))


class DriverKeys:
    """Keys of a benchmark that a task file's keys replace before it is parsed."""

    driver: str = key(
        "Task file (.cfg) whose task gives the metrics, and the command unless it is given here.", default=""
    )
    task: str = key("Section of the driver's file. Default: the benchmark's name.", default="")


class SizeKeys:
    """The key of a benchmark that disappears once a size is laid over it."""

    sizes: Mapping[str, Any] = key(
        "Keys of each size: `tiny`, `device`, `node` (laid over `device`), `cluster` (laid over `node`).",
        default={},
    )


# --- the system, and what else stands in a file ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuConfig:
    """Accelerators as a system file states them. None where it does not."""

    count: Annotated[int, Whole(at_least=0, at_most=1_000)] | None = key("Devices of each node.", default=None)
    capacity_mib: MemoryMiB | None = key("Memory of each device.", name="capacity", default=None)
    name: str = key("Product name.", default="")
    extra: Mapping[str, Any] = extra_keys()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """A machine of the system file."""

    name: NodeName = key("Name of the node. Default: its address.", default="", same_as="ip")
    ip: Address = key("Address or host name.")
    hostname: str = key("Name that launchers use. Default: the address.", default="", same_as="ip")
    port: Port = key("SSH port. A tunnel to another machine needs a port other than 22.", default=22, alias="sshport")
    user: User = key("User to log in as.", default="")
    main: bool = key("Whether it has rank 0 and everything that runs once. Default: the first node.", default=False)
    gpu: GpuConfig | None = key("Its devices, where they differ from the system's.", default=None)
    cpu_count: PositiveWhole | None = key("Its processors.", default=None)
    memory_mib: MemoryMiB | None = key("Its memory.", name="memory", default=None)
    base: Annotated[str, Matching(pattern="(/.*)?", expected="an absolute path")] = key(
        "Folder for environments and data there. Default: the same as here.", default=""
    )
    python: str = key("Python 3.8 or later that runs the agent there. Default: python3.", default="")
    proxy_jump: JumpHost = key("`user@host:port` through which it is reached.", default="")
    extra: Mapping[str, Any] = extra_keys()


class CostKeys:
    """The keys of `system.costs`. Reports read the mapping."""

    price: Positive = key("Price of the whole system.", default=None)
    currency: str = key("Currency of price and electricity.", default=None)
    years: Positive = key("Years of use over which the price is written off.", default=None)
    power_W: Positive = key("Power of the whole system at work, where energy is not measured.", default=None)  # noqa: N815
    pue: Annotated[float, Number(at_least=1)] = key("Power of the building for each watt of the system.", default=None)
    electricity: Positive = key("Price of a kWh.", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmConfig:
    """The options of Slurm, as it writes them. Empty or None where Slurm, or the site, decides."""

    partition: str = key("Partition, or several by commas.", default="")
    account: str = key("Account that is charged.", default="")
    qos: str = key("Quality of service.", default="")
    time: str = key("Time limit of a job: minutes, or `days-hours:minutes:seconds`.", default="")
    constraint: str = key("Features that the nodes must have.", default="")
    gpus_per_node: str = key("Devices of each node: a number, or `type:number`.", default="")
    nodes: Annotated[int, Whole(at_least=1, at_most=100_000)] | None = key("Nodes of the allocation.", default=None)
    exclusive: bool = key("Whether nobody else may be on the nodes meanwhile.", default=True)
    reservation: str = key("Reservation to run in.", default="")
    nodelist: str = key("Nodes that must be in it, such as `n[1-4]`.", default="")
    exclude: str = key("Nodes that must not.", default="")
    install_partition: str = key(
        "Partition with a network, where install and prepare run. Default: where they are typed.", default=""
    )
    extra: tuple[str, ...] = key("More options of sbatch, such as `--switches=1`.", default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemConfig:
    """The content of the system file. The main node comes first in `nodes`. `raw` is the whole mapping, for placeholders."""

    arch: Arch | None = key("Kind of accelerator. Default: as detected.", default=None)
    engine: Annotated[str, Choice(words=("local", *SCHEDULERS))] | None = key(
        "Source of the nodes: `slurm` asks Slurm for them. By default the nodes of an allocation that milabench is started"
        " in, else those that are listed here, else this machine.",
        default=None,
    )
    slurm: SlurmConfig = key("Options of Slurm.", default=SlurmConfig())
    gpu: GpuConfig = key("Devices. Wins over the detected devices, for plans made elsewhere.", default=GpuConfig())
    cpu_count: PositiveWhole | None = key("Processors of each node, for plans made elsewhere.", default=None)
    nodes: tuple[NodeConfig, ...] = key("The machines.", default=())
    sshkey: str = key("Private key for SSH.", default="")
    known_hosts: str = key("File of known host keys.", default="")
    transport: Literal["asyncssh", "openssh"] = key("How nodes are reached.", default="asyncssh")
    sync: tuple[Literal["venv", "data", "cache"], ...] = key(
        "Folders of this machine that install and prepare copy to the nodes instead of making them there.", default=()
    )
    docker_image: str | None = key("Container image to run in.", default=None)
    container: ContainerConfig = key("Container to run in.", default=ContainerConfig())
    dirs: Mapping[str, str] = key("Folders: venv, data, cache and others.", default={})
    options: Mapping[str, Any] = key("Options of the sizer, of cpu, of torchrun and others.", default={})
    reference: str = key("Run, or file of a JSON report, that scores are relative to.", default="")
    costs: Annotated[Mapping[str, Any], keys_of(CostKeys)] = key(
        "Costs of the system. Reports derive cost, energy and value from them.", default={}
    )
    extra: Mapping[str, Any] = extra_keys()
    raw: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    origin: Origins = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Multirun:
    """A set of runs: a name with fields, and options with their values."""

    name: str = key("Name of the run, with fields such as `{sizer.mult}` and `{time}`.")
    matrix: Mapping[str, Any] = key("Options and their values. A run for each combination.")


@dataclass(frozen=True, slots=True, kw_only=True)
class MultirunConfig:
    """The file key `multirun`."""

    runs: tuple[Multirun, ...] = key("Sets of runs.", default=())


class SuiteFileKeys:
    """The keys of a file that are not benchmarks. The last of several files decides."""

    include: tuple[str, ...] = key("Files merged before this one, relative to it.", default=())
    system: SystemConfig = key("The machines, and the settings for all benchmarks.", default=None)
    multirun: MultirunConfig = key("Sets of runs.", default=MultirunConfig())
    profile: Profile = key("Extent of the measurement: quick, default or rigorous.", default="default")
    precision: Annotated[float, ShareText()] = key(
        "Uncertainty asked of each number, such as `3 %`. Default: from the profile.", default=None
    )
    size: Annotated[str, Choice(words=SIZES)] = key(
        "Size of the benchmarks, from their `sizes`: tiny, device, node or cluster. Default: device.", default="device"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """The content of the files and the overrides. `files` are the files that were read, `size` is the requested size.

    `lacking` has the message for each benchmark that has sizes, but not the requested size.
    """

    benchmarks: Mapping[str, BenchmarkConfig]
    system: SystemConfig
    profile: Profile = "default"
    precision: float | None = None
    size: str = ""
    multirun: tuple[Multirun, ...] = ()
    warnings: tuple[Problem, ...] = ()
    files: tuple[Path, ...] = ()
    lacking: Mapping[str, Problem] = field(default_factory=dict)


SYSTEM: Final = record_of(SystemConfig)
SLURM: Final = record_of(SlurmConfig)
MULTIRUN: Final = record_of(MultirunConfig)
FILE: Final = keys_of(SuiteFileKeys)
FILE_KEYS: Final = tuple(FILE.keys)
BENCHMARK: Final = Record(
    {**record_of(BenchmarkConfig).keys, **record_of(DriverKeys).keys, **record_of(SizeKeys).keys}, BenchmarkConfig
)
