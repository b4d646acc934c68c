"""What a plan is made from: selected benchmarks with their declarations, and everything else that it depends on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path, PurePath

from milabench.bench.api import Benchmark
from milabench.config.schema import BenchmarkConfig, SystemConfig
from milabench.errors import ConfigError, Problem
from milabench.facts.model import Node, SystemFacts
from milabench.plan.dirs import Dirs
from milabench.plan.group import Instruments
from milabench.plan.profile import Profile
from milabench.plan.sizing import Sizer

# The program of a benchmark that is only a `command`: nothing of ours runs in it, and nothing is prepared for it.
COMMAND = Benchmark(voirfile=None, prepare=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedBenchmark:
    """A selected benchmark with what its folder declares; `declared` is None while its definition is not fetched."""

    config: BenchmarkConfig
    folder: str
    declared: Benchmark | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanContext:
    """Everything a plan depends on that is not a benchmark.

    `repeats` is how often each is run, in fresh processes, as the profile says unless given; `replicates` are the numbers
    of single benchmarks, where they were computed one by one.
    """

    facts: SystemFacts
    system: SystemConfig
    dirs: Dirs
    profile: Profile
    run_name: str = ""
    repeats: int | None = None
    replicates: Mapping[str, int] = field(default_factory=dict)
    seed: int = 0
    current_env: str | None = None
    current_python: str | None = None
    sizer: Sizer = field(default_factory=Sizer)
    instruments: Instruments | None = None

    def replicates_of(self, bench: str) -> int:
        """How often a benchmark is run."""
        return self.replicates.get(bench, self.repeats if self.repeats is not None else self.profile.processes)


def at_node(bench: ResolvedBenchmark, where: PlanContext, node: Node) -> tuple[ResolvedBenchmark, PlanContext]:
    """A benchmark and the circumstances with the paths that they have on a node."""
    if node.local:
        return bench, where
    dirs = dirs_at(where, node)
    return replace(bench, folder=folder_at(bench, where.dirs, dirs.base)), replace(where, dirs=dirs)


def dirs_at(where: PlanContext, node: Node) -> Dirs:
    """The folders on a node."""
    base = where.dirs.base if node.local else node.base or where.dirs.base
    moved = {one.name: rebase_path(where.dirs.base, getattr(where.dirs, one.name), base) for one in fields(where.dirs)}
    return replace(where.dirs, **moved)


def folder_at(bench: ResolvedBenchmark, dirs: Dirs, base: str) -> str:
    """Where a benchmark's own folder lies on another node, whose base this is: never outside of it."""
    if isinstance(bench.config.definition, Path):
        folder = PurePath(bench.folder)
        return f"{base}/definitions/{folder.parent.name}-{folder.name}"
    return rebase_path(dirs.base, bench.folder, base)


def rebase_path(base: str, path: str, there: str) -> str:
    """A path below `base` as it is called below the folder `there`; another path as it is."""
    return str(PurePath(there, PurePath(path).relative_to(base))) if PurePath(path).is_relative_to(base) else path


def source_of(bench: ResolvedBenchmark, dirs: Dirs) -> str:
    """The folder of the fetched program, or the benchmark's own where nothing is fetched."""
    if bench.declared is None or bench.declared.source is None:
        return bench.folder
    return str(PurePath(dirs.code, bench.declared.source.folder))


def venv_of(config: BenchmarkConfig, where: PlanContext) -> str:
    """The environment that a benchmark's programs run in; none, empty, for a command without a benchfile."""
    if config.definition is None:
        return ""
    if where.current_env is not None:
        return where.current_env
    return f"{where.dirs.venv}/{config.install_group}"


def dirs_of(config: BenchmarkConfig, where: PlanContext) -> Dirs:
    """The folders as a benchmark sees them. Raises ConfigError for one that only the system can move."""
    moved = {}
    for name, folder in config.dirs.items():
        if name not in ("data", "cache", "extra"):
            what = f"'{name}' cannot be moved for one benchmark"
            way_out = "move data, cache or extra; system.dirs moves any folder for all"
            place = config.origin.where(f"dirs.{name}")
            raise ConfigError(Problem(where=place, path=f"{config.name}.dirs.{name}", what=what, way_out=way_out))
        moved[name] = str(PurePath(where.dirs.base, folder))
    return replace(where.dirs, **moved)


def working_folder(bench: ResolvedBenchmark, dirs: Dirs, source: str) -> str:
    """Where the program is started; `data` gives each benchmark a folder of its own to write into."""
    assert bench.declared is not None
    if bench.config.cwd is not None:
        return str(bench.config.cwd)
    match bench.declared.cwd:
        case "source":
            return source
        case "definition":
            return bench.folder
        case _:
            return f"{dirs.data}/{bench.config.name}"
