"""The inputs of a plan: selected benchmarks with their declarations, the folders, and everything else it depends on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path, PurePath
from typing import Any

from milabench.bench.api import Benchmark
from milabench.config.schema import BenchmarkConfig, SystemConfig
from milabench.errors import ConfigError
from milabench.facts.model import Node, SystemFacts
from milabench.plan.model import STEP_DIR
from milabench.plan.profile import Profile
from milabench.plan.sizing import Sizer

_FOLDERS = ("venv", "code", "data", "runs", "extra", "cache")
_VARIABLES = tuple((f"MILABENCH_DIR_{name.upper()}", name) for name in _FOLDERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dirs:
    """Absolute paths of everything milabench writes."""

    base: str
    venv: str
    code: str
    data: str
    cache: str
    extra: str
    runs: str

    def environment(self) -> dict[str, str]:
        """Return `MILABENCH_DIR_*` and the caches of the frameworks, all below this base."""
        return {
            **{variable: getattr(self, name) for variable, name in _VARIABLES},
            "XDG_CACHE_HOME": self.cache,
            "TORCH_HOME": f"{self.cache}/torch",
            "HF_HOME": f"{self.cache}/huggingface",
        }


def dirs_under(base: str, overrides: Mapping[str, str]) -> Dirs:
    """Return the folders under `base`. `overrides` (the system file's `dirs`) move single ones elsewhere.

    Raises ConfigError for `runs`.
    """
    if "runs" in overrides:
        raise ConfigError(
            "system.dirs.runs: runs stay below the base, where every verb looks for them. Choose it with --base"
        )
    return Dirs(base=base, **{name: str(PurePath(base, overrides.get(name, name))) for name in _FOLDERS})


# The program of a benchmark that is only a `command`: nothing of ours runs in it, and nothing is prepared for it.
COMMAND = Benchmark(voirfile=None, prepare=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedBenchmark:
    """A selected benchmark with its folder's declarations. `declared` is None while its definition is not fetched.

    `modules` is the folder next to it whose Python modules its prepare.py shares with others. Empty where there is none.
    """

    config: BenchmarkConfig
    folder: str
    declared: Benchmark | None
    modules: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruments:
    """The sources of the instruments on the machine that commands are given on, and an interpreter for them there."""

    python: str
    folder: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanContext:
    """Everything a plan depends on that is not a benchmark.

    `environments` are the folders of the install groups' environments, below `dirs.venv`: each by the digest of its
    inputs, so that two suites may use the same group name for two environments. A group that is not in it has an environment of
    its own name there. `repeats` is how often each benchmark is run, in fresh processes, as the profile says unless given.
    `replicates` are the numbers of single benchmarks, where they were computed separately. `missing_programs` has, by
    benchmark, the first of its `requires_programs` that the main node does not have, as far as is known. `unavailable` says
    why benchmarks cannot run in the active interpreter, if all of them are to run in it.
    """

    facts: SystemFacts
    system: SystemConfig
    dirs: Dirs
    profile: Profile
    run_name: str = ""
    repeats: int | None = None
    replicates: Mapping[str, int] = field(default_factory=dict)
    seed: int = 0
    environments: Mapping[str, str] = field(default_factory=dict)
    current_env: str | None = None
    current_python: str | None = None
    unavailable: Mapping[str, str] = field(default_factory=dict)
    sizer: Sizer = field(default_factory=Sizer)
    instruments: Instruments | None = None
    missing_programs: Mapping[str, str] = field(default_factory=dict)
    on_nodes: dict[str, OnNode] = field(init=False, default_factory=dict, compare=False, repr=False)
    """The values computed for each node, by its name: the same for all benchmarks."""

    def on(self, node: Node) -> OnNode:
        """Return the values that all benchmarks share on a node."""
        known = self.on_nodes.get(node.name)
        if known is None or known.node is not node:
            context = self if node.local else replace(self, dirs=dirs_at(self, node))
            known = self.on_nodes[node.name] = OnNode(node=node, context=context)
        return known

    def replicates_of(self, bench: str) -> int:
        """Return how often a benchmark is run."""
        return self.replicates.get(bench, self.repeats if self.repeats is not None else self.profile.processes)


@dataclass(slots=True, kw_only=True)
class OnNode:
    """The values that all benchmarks share on a node: the context with its folders there, and values of placeholders."""

    node: Node
    context: PlanContext
    names: Mapping[str, Any] | None = None


def dirs_at(context: PlanContext, node: Node) -> Dirs:
    """Return the folders on a node."""
    local = context.dirs
    base = local.base if node.local else node.base or local.base
    # A folder that was moved out of the base by hand has the same path on every node.
    return Dirs(**{folder.name: rebase_path(local.base, getattr(local, folder.name), base) for folder in fields(local)})


def definition_on(node: Node, bench: ResolvedBenchmark, path: str, context: PlanContext) -> str:
    """Return where a folder of a benchmark, its own or that of shared modules, lies on a node: never outside of its base."""
    if node.local or not path:
        return path
    base = context.on(node).context.dirs.base
    if isinstance(bench.config.definition, Path):
        folder = PurePath(path)
        return f"{base}/definitions/{folder.parent.name}-{folder.name}"
    return rebase_path(context.dirs.base, path, base)


def rebase_path(base: str, path: str, new_base: str) -> str:
    """Return a path below `base` as it is called below `new_base`. Another path as it is."""
    return str(PurePath(new_base, PurePath(path).relative_to(base))) if PurePath(path).is_relative_to(base) else path


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeBenchmark:
    """A benchmark on a node, with the paths that it has there.

    `dirs` are the folders as the benchmark sees them. `source` is the folder of the fetched program, or the benchmark's own
    where nothing is fetched. `venv` is empty for a command without a benchfile, which has no environment.
    `modules` is the folder of the Python modules that its prepare.py shares with others. Empty where there are none.
    """

    config: BenchmarkConfig
    declared: Benchmark
    context: PlanContext
    node: Node
    folder: str
    modules: str
    dirs: Dirs
    source: str
    venv: str

    @property
    def python(self) -> str:
        """The interpreter of its environment."""
        return self.context.current_python or f"{self.venv}/bin/python"

    @property
    def cwd(self) -> str:
        """Where the program is started. In a folder of its own in each repeat, unless suite or benchfile say otherwise."""
        if self.config.cwd is not None:
            return str(self.config.cwd)
        folders = {"source": self.source, "definition": self.folder, "data": self.data_folder}
        return folders.get(self.declared.cwd, STEP_DIR)

    @property
    def prepare_cwd(self) -> str:
        """The working folder of prepare.py. Its files there stay, for all repeats."""
        return self.data_folder if self.cwd == STEP_DIR else self.cwd

    @property
    def data_folder(self) -> str:
        """Its own folder below the folder of all data."""
        return f"{self.dirs.data}/{self.config.name}"


def benchmark_on(node: Node, bench: ResolvedBenchmark, context: PlanContext) -> NodeBenchmark:
    """Return a benchmark with its paths on a node. Raises ConfigError for a folder that only the system can move."""
    config, declared, folder = (
        bench.config,
        bench.declared or COMMAND,
        definition_on(node, bench, bench.folder, context),
    )
    modules = definition_on(node, bench, bench.modules, context)
    context = context.on(node).context
    source = str(PurePath(context.dirs.code, declared.source.folder)) if declared.source is not None else folder
    return NodeBenchmark(
        config=config,
        declared=declared,
        context=context,
        node=node,
        folder=folder,
        modules=modules,
        dirs=_own_dirs(config, context.dirs),
        source=source,
        venv=_venv_of(config, context),
    )


def _venv_of(config: BenchmarkConfig, context: PlanContext) -> str:
    if config.definition is None:
        return ""
    if context.current_env is not None:
        return context.current_env
    return f"{context.dirs.venv}/{context.environments.get(config.install_group, config.install_group)}"


def _own_dirs(config: BenchmarkConfig, dirs: Dirs) -> Dirs:
    if not config.dirs:
        return dirs
    for name in config.dirs:
        if name not in ("data", "cache", "extra"):
            hint = "move data, cache or extra, as system.dirs moves any folder for all"
            raise config.error(f"dirs.{name}", f"'{name}' cannot be moved for a single benchmark", hint)
    return replace(dirs, **{name: str(PurePath(dirs.base, folder)) for name, folder in config.dirs.items()})
