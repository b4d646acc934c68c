"""Reads what every verb that knows a suite starts from: the suite, the system, this machine, the benchmarks' folders."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from milabench.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from milabench.cli.options import SuiteOptions
    from milabench.config.schema import BenchmarkConfig, Suite
    from milabench.facts.model import Node
    from milabench.plan.context import PlanContext, ResolvedBenchmark
    from milabench.plan.dirs import Dirs
    from milabench.plan.group import Instruments

# The checkout: config/, benchmarks/, constraints/ and benchmate/ stand beside the package.
ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandContext:
    """The suite as read, the selected benchmarks with their folders, everything else a plan depends on, and this machine."""

    suite: Suite
    suite_file: Path
    benches: tuple[ResolvedBenchmark, ...]
    where: PlanContext
    here: Node


def base_folder(base: Path | None) -> Path:
    """The folder that holds environments, data and runs: what was asked for, else `results` here."""
    return (base or Path("results")).expanduser().resolve()


def suite_file(asked: Path | None) -> Path:
    """The suite to read: what was asked for, else config/standard.yaml, here or of the checkout."""
    if asked is not None:
        return asked
    for folder in (Path.cwd(), ROOT):
        if (found := folder / "config" / "standard.yaml").is_file():
            return found
    raise UsageError("no suite: give one with --config FILE or MILABENCH_CONFIG")


def overrides(options: SuiteOptions) -> tuple[str, ...]:
    """The overrides, `--arch` among them: what is said on the command line wins over the system file."""
    return (*options.overrides, *((f"system.arch={options.arch}",) if options.arch is not None else ()))


def max_jobs(options: SuiteOptions) -> int:
    """How many benchmarks one matrix may become."""
    from milabench.config.matrix import MAX_JOBS

    return options.max_jobs if options.max_jobs is not None else MAX_JOBS


# Environment variables that stand for options of the system file: MILABENCH_SIZER_MULT is system.options.sizer.mult.
_OPTION_VARIABLES = {"MILABENCH_SIZER_": "sizer", "MILABENCH_CPU_": "cpu"}
_OWN_OPTIONS = ("MILABENCH_SIZER_SAVE",)


def settings_overrides(environ: Mapping[str, str]) -> dict[str, str]:
    """The overrides that environment variables stand for, by variable; they win over files, and lose to the command line."""
    return {
        name: f"system.options.{group}.{name.removeprefix(prefix).lower()}={value}"
        for name, value in sorted(environ.items())
        for prefix, group in _OPTION_VARIABLES.items()
        if name.startswith(prefix) and name not in _OWN_OPTIONS
    }


def warn_user(text: str) -> None:
    """Say something that the user may want to change."""
    print(f"warning: {text}", file=sys.stderr)


def read_context(
    options: SuiteOptions,
    *,
    run_name: str = "",
    repeats: int | None = None,
    profile: str | None = None,
    seed: int = 0,
    environ: Mapping[str, str] = os.environ,
    warn: Callable[[str], None] = warn_user,
) -> CommandContext:
    """Read everything; ConfigError and NothingSelected say what is wrong with the input."""
    from milabench.facts.probe import this_machine

    machine = this_machine()  # importing what reads the suite takes as long as its answer
    from milabench.config.read import read_suite
    from milabench.config.select import select
    from milabench.plan.context import PlanContext
    from milabench.plan.placeholders import sizing_notes
    from milabench.plan.profile import PROFILES
    from milabench.plan.system import system_facts
    from milabench.workflow.scaling_files import read_sizer

    local = machine.answer()
    detected = local.devices[0].arch if local.devices else "cpu"
    file = suite_file(options.config_file)
    suite = read_suite(
        [file],
        system=options.system_file,
        overrides=overrides(options),
        env=environ,
        detected_arch=detected,
        declared=declared_options,
        max_jobs=max_jobs(options),
        settings=settings_overrides(environ),
    )
    for warning in suite.warnings:
        warn(str(warning))
    arch = suite.system.arch or detected
    name = profile or suite.profile
    if name not in PROFILES:
        raise ConfigError(f"profile: no profile '{name}'; known: {', '.join(PROFILES)}")
    asked: dict[str, Node] = {}
    if options.ask_nodes and suite.system.nodes:
        from milabench.workflow.remote_nodes import ask_nodes

        base = str(base_folder(options.base))
        asked = ask_nodes(suite.system, local, base, accept_new=options.accept_new_host_keys)
    facts = system_facts(suite.system, local, arch, asked)
    where = PlanContext(
        facts=facts,
        system=suite.system,
        dirs=suite_dirs(options, suite),
        profile=PROFILES[name],
        run_name=run_name,
        repeats=repeats,
        seed=seed,
        current_env=sys.prefix if options.use_current_env else None,
        current_python=sys.executable if options.use_current_env else None,
        sizer=read_sizer(suite.system, facts),
        instruments=instruments(),
    )
    benches = tuple(resolve_benchmark(bench, where.dirs) for bench in select(suite, options.select, options.exclude))
    for note in sizing_notes(benches, where):
        warn(note)
    return CommandContext(suite=suite, suite_file=file, benches=benches, where=where, here=local)


def instruments() -> Instruments | None:
    """What watches a command that has no environment: the instruments' sources in this checkout, if it is one."""
    from milabench.plan.group import Instruments

    folder = ROOT / "benchmate" / "src"
    return Instruments(python=sys.executable, folder=str(folder)) if folder.is_dir() else None


def read_suite_only(
    options: SuiteOptions, environ: Mapping[str, str] = os.environ
) -> tuple[Suite, tuple[BenchmarkConfig, ...]]:
    """The suite and what is selected of it, without asking the machine what it is."""
    from milabench.config.read import read_suite
    from milabench.config.select import select

    suite = read_suite(
        [suite_file(options.config_file)],
        system=options.system_file,
        overrides=overrides(options),
        env=environ,
        detected_arch="cpu",
        declared=declared_options,
        max_jobs=max_jobs(options),
        settings=settings_overrides(environ),
    )
    return suite, select(suite, options.select, options.exclude)


def suite_dirs(options: SuiteOptions, suite: Suite) -> Dirs:
    """The folders under the base, with those that the system file moves elsewhere."""
    from milabench.plan.dirs import dirs_under

    return dirs_under(str(base_folder(options.base)), suite.system.dirs)


def declared_options(folder: Path) -> frozenset[str] | None:
    """The extra suite keys that the benchmark in `folder` understands; None, unknown, while it is not fetched."""
    from milabench.bench.load import load

    return frozenset(load(folder).options) if folder.is_dir() else None


def resolve_benchmark(bench: BenchmarkConfig, dirs: Dirs) -> ResolvedBenchmark:
    """A selected benchmark with what its folder declares."""
    from milabench.bench.load import load
    from milabench.plan.context import COMMAND, ResolvedBenchmark

    if isinstance(bench.definition, Path):
        return ResolvedBenchmark(config=bench, folder=str(bench.definition), declared=load(bench.definition))
    if bench.definition is None and bench.command:
        return ResolvedBenchmark(config=bench, folder=str(Path.cwd()), declared=COMMAND)
    if bench.definition is None:
        raise ConfigError(f"{bench.name}: has no definition; give the folder with its benchfile.py, or a command")
    folder = Path(dirs.code, bench.definition.folder)
    return ResolvedBenchmark(config=bench, folder=str(folder), declared=load(folder) if folder.is_dir() else None)
