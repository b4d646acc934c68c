"""Reads the context of every use case of a suite: the suite, the system, this machine, the benchmarks' folders."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from milabench.bench.load import OptionError, load_benchfile, shared_modules, with_options
from milabench.bench.registry import BENCHFILE, EVERY_NAME, foreign_format, module_of
from milabench.errors import ConfigError, UsageError
from milabench.redaction import mask_argument
from milabench.shown import grouped
from milabench.workflow.files import ROOT, base_folder, suite_file
from milabench.workflow.options import CommandContext, Extent, SuiteOptions

if TYPE_CHECKING:
    from milabench.config.schema import BenchmarkConfig, Suite, SystemConfig
    from milabench.facts.allocated_nodes import Allocation
    from milabench.facts.model import Node
    from milabench.plan.context import Dirs, Instruments, PlanContext, ResolvedBenchmark
    from milabench.plan.profile import Profile
    from milabench.workflow.options import Session

ALL_DEFAULTS = Extent()


# Environment variables that stand for options of the system file: MILABENCH_SIZER_MULT is system.options.sizer.mult.
_OPTION_VARIABLES = {
    "MILABENCH_SIZER_": "options.sizer",
    "MILABENCH_CPU_": "options.cpu",
    "MILABENCH_TORCHRUN_": "options.torchrun",
    "MILABENCH_DIRS_": "dirs",
    "MILABENCH_GPU_": "gpu",
}
_OWN_OPTIONS = ("MILABENCH_SIZER_SAVE", "MILABENCH_GPU_ARCH")


def settings_overrides(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the overrides from environment variables, by variable. They win over files, the command line over them."""
    return {
        name: f"system.{group}.{name.removeprefix(prefix).lower()}={value}"
        for name, value in sorted(environ.items())
        for prefix, group in _OPTION_VARIABLES.items()
        if name.startswith(prefix) and name not in _OWN_OPTIONS
    }


_SLURM_KEY = re.compile(r"[a-z][a-z0-9_-]*")


def slurm_overrides(options: SuiteOptions) -> dict[str, str]:
    """Return the overrides from --engine and each --slurm-arg, by option. Raises UsageError for a malformed option.

    `time=1:00:00` sets a key of `system.slurm`, however its words are joined. Any other option of sbatch is added to `extra`.
    """
    from milabench.config.kinds import Text
    from milabench.config.schema import SLURM

    overrides = {} if options.engine is None else {"--engine": f"system.engine={options.engine}"}
    extra: list[str] = []
    for word in options.slurm_args:
        name, equals, value = word.partition("=")
        name = name.strip().removeprefix("--")
        key = name.replace("-", "_")
        if not equals or not _SLURM_KEY.fullmatch(name):
            raise UsageError(
                f"--slurm-arg '{mask_argument(word)}': not an option of Slurm. Write it as key=value, such as time=1:00:00"
            )
        if key == "extra":
            extra.append(value)
        elif key not in SLURM.keys:
            extra.append(f"--{name}={value}")
        else:
            # As typed: YAML would read 010 or 1:00 in ways of its own.
            is_text = isinstance(SLURM.keys[key].kind, Text)
            overrides[f"--slurm-arg {word!r}"] = f"system.slurm.{key}={json.dumps(value) if is_text else value}"
    if extra:
        overrides["--slurm-arg"] = f"system.slurm.extra={json.dumps({'append': extra})}"
    return overrides


def read_context(
    options: SuiteOptions, session: Session, extent: Extent = ALL_DEFAULTS, *, warn: bool = True
) -> CommandContext:
    """Read suite, system, this machine and, where `options` say so, the other nodes.

    Of `extent`, precision, budget and the suites of an A/B run do not matter here. Raises ConfigError, NothingSelected and
    Unreachable.
    """
    from milabench.facts.probe import this_machine

    probe = session.agent or this_machine()  # answers while the modules that read the suite are imported
    from milabench.plan.context import PlanContext
    from milabench.plan.placeholders import sizing_notes
    from milabench.plan.system import allocated_facts, system_facts
    from milabench.workflow.environments import environment_folders, unavailable_benches
    from milabench.workflow.foreign_environments import with_own_environments
    from milabench.workflow.scaling_files import read_sizer

    machine = probe.answer()
    detected = machine.devices[0].arch if machine.devices else "cpu"
    suite = read_suite_only(options, detected_arch=detected)
    selected = selected_benchmarks(suite, options)
    if warn:
        for warning in suite.warnings:
            session.warn(str(warning))
    profile = _profile_of(suite, extent)
    allocation = _allocation(suite.system, options, session)
    remote: dict[str, Node] = {}
    if options.ask_nodes and (suite.system.nodes if allocation is None else allocation.job):
        from milabench.workflow.node_query import answered_nodes, query_nodes

        reports = query_nodes(suite.system, machine, options, session, allocation)
        remote = answered_nodes(reports, options, allocation)
    if allocation is None:
        facts = system_facts(suite.system, machine, suite.system.arch or detected, remote)
    else:
        from milabench.workflow.allocation import arch_of_nodes, as_node_of

        arch = suite.system.arch or arch_of_nodes(allocation, machine, remote)
        if arch != detected and suite.system.arch is None:
            session.warn(
                f"the nodes have devices of kind {arch}, this machine {detected}: --arch {arch} makes all commands agree"
            )
            suite = read_suite_only(options, detected_arch=arch)
            selected = selected_benchmarks(suite, options)
        facts = allocated_facts(suite.system, as_node_of(allocation, machine), arch, allocation, remote)
    plan_context = PlanContext(
        facts=facts,
        system=suite.system,
        dirs=suite_dirs(options, suite),
        profile=profile,
        run_name=extent.run_name,
        repeats=extent.repeat,
        seed=extent.seed or 0,
        current_env=sys.prefix if options.use_current_env else None,
        current_python=sys.executable if options.use_current_env else None,
        sizer=read_sizer(suite.system, facts),
        instruments=instruments(),
    )
    suite, selected, missing_locks = with_own_environments(suite, selected)
    benches = tuple(resolve_benchmark(bench, plan_context.dirs) for bench in selected)
    if warn:
        for note in sizing_notes(benches, plan_context):
            session.warn(note)
    context = CommandContext(
        session=session,
        options=options,
        suite=suite,
        suite_file=suite_file(options.config_file),
        benches=benches,
        plan_context=plan_context,
        machine=machine,
        allocation=allocation,
        missing_locks=missing_locks,
    )
    known = replace(plan_context, environments=environment_folders(context), unavailable=unavailable_benches(context))
    if facts.main.local:
        known = replace(known, missing_programs=missing_programs(benches, known))
    return replace(context, benches=with_processes(benches, known), plan_context=known)


def _allocation(system: SystemConfig, options: SuiteOptions, session: Session) -> Allocation | None:
    """Return the nodes that Slurm places the steps on. None where neither suite nor command says so, nor are we in a job."""
    in_job = bool(options.environ.get("SLURM_JOB_ID")) and not system.nodes
    if system.engine == "local" or (system.engine is None and not in_job):
        return None
    from milabench.workflow.allocation import allocation_for  # imports asyncio, for the one who uses Slurm

    return allocation_for(system, options, session)


def with_processes(benches: Sequence[ResolvedBenchmark], context: PlanContext) -> tuple[ResolvedBenchmark, ...]:
    """Return the benchmarks, those whose benchfile is not ours with the processes that it starts on these machines."""
    from milabench.bench.api import ForeignBenchmark

    foreign = ((bench.declared, bench) for bench in benches)
    by_format = grouped((own.format, bench) for own, bench in foreign if isinstance(own, ForeignBenchmark))
    placed = {bench.config.name: bench for bench in benches}
    for name, of_format in by_format.items():
        placed |= {bench.config.name: bench for bench in module_of(name).placed(of_format, context)}
    return tuple(placed.values())


def _profile_of(suite: Suite, extent: Extent) -> Profile:
    """Return the measuring profile of the command, else of the suite. Raises ConfigError for an unknown profile."""
    from milabench.plan.profile import PROFILES

    name = extent.profile or suite.profile
    if name not in PROFILES:
        raise ConfigError(f"profile: unknown profile '{name}'. Known: {', '.join(PROFILES)}")
    return PROFILES[name]


def missing_programs(benches: Iterable[ResolvedBenchmark], context: PlanContext) -> dict[str, str]:
    """Return, by benchmark, the first program that it requires and its PATH on this machine, the main node, lacks."""
    from milabench.plan.context import benchmark_on
    from milabench.plan.environ import search_path

    missing: dict[str, str] = {}
    for bench in benches:
        if required := bench.config.requires_programs:
            path = search_path(benchmark_on(context.facts.main, bench, context), os.environ.get("PATH", os.defpath))
            if lacking := next((name for name in required if shutil.which(name, path=path) is None), None):
                missing[bench.config.name] = lacking
    return missing


def on_this_machine(context: CommandContext) -> CommandContext:
    """Return the context for work on this machine for all nodes of Slurm, in the base that they share."""
    if context.allocation is None:
        return context
    from milabench.plan.system import system_facts

    system = replace(context.system, nodes=())
    facts = system_facts(system, context.machine, context.plan_context.facts.arch)
    return replace(context, plan_context=replace(context.plan_context, facts=facts, system=system), allocation=None)


def read_single_context(
    options: SuiteOptions, bench: str, session: Session, extent: Extent, what: str
) -> CommandContext:
    """Return the context of a single benchmark. Raises UsageError, which begins with `what`, where `bench` selects several."""
    context = read_context(replace(options, select=bench), session, extent)
    if len(context.benches) != 1:
        names = ", ".join(selected.config.name for selected in context.benches)
        raise UsageError(f"{what} one benchmark, but '{bench}' selects {names}")
    return context


def instruments() -> Instruments | None:
    """Return the instruments for a command without an environment: their sources, if they are here."""
    from milabench.plan.context import Instruments

    folder = ROOT / "benchmate" / "src"
    return Instruments(python=sys.executable, folder=str(folder)) if folder.is_dir() else None


def read_suite_only(options: SuiteOptions, *, detected_arch: str = "cpu") -> Suite:
    """Return the suite without probing the machine, for callers that need no benchmark. All benchmarks may be disabled."""
    return read_whole_suite(options, detected_arch=detected_arch, settings=settings_overrides(options.environ))


def selected_benchmarks(suite: Suite, options: SuiteOptions) -> tuple[BenchmarkConfig, ...]:
    """Return the selected benchmarks of a suite, on every node if distributed. Raises NothingSelected, which names --select."""
    from milabench.config.select import select

    selected = select(suite, options.select, options.exclude)
    return tuple(map(on_every_node, selected)) if options.distribute else selected


def read_whole_suite(
    options: SuiteOptions, *, detected_arch: str = "cpu", settings: Mapping[str, str] | None = None
) -> Suite:
    """Return the suite. Raises ConfigError with everything that is wrong in it."""
    from milabench.config.matrix import MAX_BENCHMARKS
    from milabench.config.read import read_suite

    # The command line wins over the system file.
    arch = () if options.arch is None else (f"system.arch={options.arch}",)
    return read_suite(
        [suite_file(options.config_file)],
        system=options.system_file,
        overrides=(*options.overrides, *arch),
        env=options.environ,
        detected_arch=detected_arch,
        declared=declared_options,
        max_benchmarks=options.max_benchmarks or MAX_BENCHMARKS,
        settings={**(settings or {}), **slurm_overrides(options), **_size_override(options)},
    )


def _size_override(options: SuiteOptions) -> dict[str, str]:
    """Return the override from --size, by its source."""
    if options.size is None:
        return {}
    variable = "MILABENCH_SIZE"
    by = options.size_by or (variable if options.environ.get(variable) == options.size else "--size")
    return {by: f"size={options.size}"}


def on_every_node(bench: BenchmarkConfig) -> BenchmarkConfig:
    """Return a benchmark of one node as a benchmark of every node, by itself on each. Others stay unchanged."""
    from milabench.plan.method import is_client_server, method_of

    if bench.num_machines > 1 or bench.plan.nodes or method_of(bench).spans_nodes or is_client_server(bench):
        return bench
    return replace(bench, plan=replace(bench.plan, nodes=("all",)))


def suite_dirs(options: SuiteOptions, suite: Suite) -> Dirs:
    """Return the folders under the base, with those that the system file moves elsewhere.

    The suite of a capsule moves none: its programs, data and caches stay in its own folder, where no other suite looks.
    """
    from milabench.plan.context import dirs_under

    home, base = suite_file(options.config_file).resolve().parent.parent, base_folder(options.base)
    if home.parent != base / "cache" / "capsules":
        return dirs_under(str(base), suite.system.dirs)
    return dirs_under(str(base), {name: str(home / name) for name in ("code", "data", "cache")})


def declared_options(folder: Path) -> frozenset[str] | None:
    """Return the extra suite keys that the benchmark in `folder` understands. None, unknown, while it is not fetched."""
    if not folder.is_dir():
        return None
    return EVERY_NAME if foreign_format(folder / BENCHFILE) else frozenset(load_benchfile(folder).options)


def resolve_benchmark(bench: BenchmarkConfig, dirs: Dirs) -> ResolvedBenchmark:
    """Return a selected benchmark with the keys that its folder declares. Raises ConfigError."""
    from milabench.plan.context import COMMAND, ResolvedBenchmark

    if bench.definition is None and not bench.command:
        raise ConfigError(f"{bench.name}: has no definition. Give the folder with its benchfile.py, or a command")
    if bench.definition is None:
        return ResolvedBenchmark(config=bench, folder=str(Path.cwd()), declared=COMMAND)
    is_local = isinstance(bench.definition, Path)
    folder = bench.definition if isinstance(bench.definition, Path) else Path(dirs.code, bench.definition.folder)
    declared = load_benchfile(folder) if is_local or folder.is_dir() else None
    if declared is not None:
        try:
            declared = with_options(declared, bench.options)
        except OptionError as error:
            raise bench.error(error.name, str(error), f"it stands in braces in {folder}/{BENCHFILE}") from None
    modules = shared_modules(declared, folder) if declared is not None else None
    return ResolvedBenchmark(
        config=bench, folder=str(folder), declared=declared, modules=str(modules) if modules is not None else ""
    )
