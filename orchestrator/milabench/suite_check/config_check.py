"""Checks suite and system files, and explains the source and the resolved form of their values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from milabench.bench.registry import BENCHFILE, ask_together, foreign_format
from milabench.config.problems import Problems
from milabench.config.schema import BenchmarkConfig, Suite
from milabench.config.show import explain, split_key
from milabench.config.source_map import SourceLocation, plain
from milabench.config.yaml_reader import decode_text, parse_document
from milabench.devices.regular_file import read_regular
from milabench.errors import MAX_PROBLEMS, ConfigError, MilabenchError, Problem
from milabench.plan.context import Dirs, benchmark_on
from milabench.plan.placeholders import names_for
from milabench.plan.render import placeholders, render_text, texts
from milabench.plan.sizing import KEYS_OF_13
from milabench.suite_check.planning_check import planning_problems
from milabench.workflow.context import (
    read_context,
    read_suite_only,
    read_whole_suite,
    resolve_benchmark,
    suite_dirs,
    with_processes,
)
from milabench.workflow.files import suite_file
from milabench.workflow.options import Session, SuiteOptions
from milabench.workflow.scaling_files import read_scaling

_DEVICES = 8  # of each imaginary machine


def explain_key(options: SuiteOptions, key: str, session: Session) -> list[str]:
    """Return lines on a value: its source, the value it replaced, its resolved placeholders on this machine.

    Raises ConfigError and NothingSelected.
    """
    suite = read_suite_only(options)
    return [*explain(suite, key), *rendered_placeholders(suite, options, key, session)]


def rendered_placeholders(suite: Suite, options: SuiteOptions, key: str, session: Session) -> list[str]:
    """Return the resolved placeholders in a value on this machine. Empty where it has none."""
    name, rest = split_key(suite, key)
    if name not in suite.benchmarks:
        return []
    spans = placeholders(suite.benchmarks[name], rest)
    if not spans:
        return []
    quote = '"' if "'" in name else "'"
    context = read_context(replace(options, select=f"{quote}{name}{quote}"), session)
    (bench,) = context.benches
    plan_context = context.plan_context
    names = names_for(benchmark_on(plan_context.facts.main, bench, plan_context))
    wanted = [text for text in spans if text.startswith("{")]
    if len(wanted) < len(spans):
        # A function is evaluated in the whole value that it stands in.
        wanted += [text for text in texts(bench.config, rest) if text not in wanted]
    return [f"  {text} is {render_text(text, names)}" for text in wanted]


def check_files(files: Sequence[Path], options: SuiteOptions, session: Session) -> int:
    """Report everything that is wrong with these suite files, or those in these folders. Return how many were checked.

    Raises ConfigError when any of them cannot be used.
    """
    paths = [path for file in files or (suite_file(options.config_file),) for path in yaml_files(file)]
    broken = 0
    for path in paths:
        try:
            if is_scaling_file(path):
                read_scaling(path)
                session.info(f"{path}: batch sizes, for system.options.sizer.config")
                continue
            suite = read_whole_suite(replace(options, config_file=path))
            for warning in suite.warnings:
                session.warn(str(warning))
            if problems := planning_problems(suite, suite_dirs(options, suite)) or foreign_problems(
                suite, suite_dirs(options, suite)
            ):
                raise ConfigError(problems)
            if not suite.benchmarks:
                session.warn(f"{path}: has no benchmark, so nothing can be run")
            elif not any(bench.enabled for bench in suite.benchmarks.values()):
                session.info(
                    f"{path}: every benchmark is disabled. `milabench run --select NAME` runs a benchmark anyway"
                )
        except MilabenchError as error:
            broken += 1
            session.error(str(error))
    if broken:
        raise ConfigError(f"{broken} of {len(paths)} files cannot be used")
    return len(paths)


def foreign_problems(suite: Suite, dirs: Dirs) -> tuple[Problem, ...]:
    """Return the errors of foreign benchfiles' classes when asked for their processes.

    They are asked on imaginary machines, with accelerators of this machine's kind: as many as any benchmark takes.
    Benchmarks that are disabled are not asked.
    """
    foreign = {
        bench.definition: bench
        for bench in suite.benchmarks.values()
        if isinstance(bench.definition, Path) and foreign_format(bench.definition / BENCHFILE) is not None
    }
    if not foreign:
        return ()
    from milabench.facts.probe import this_machine
    from milabench.suite_check.imaginary_systems import imaginary_system, most_machines

    devices = this_machine().answer().devices
    arch = suite.system.arch or (devices[0].arch if devices else "cpu")
    context = replace(imaginary_system(suite, arch, most_machines(suite), _DEVICES), dirs=dirs)
    problems = Problems(most=MAX_PROBLEMS)

    def ask(asked: Sequence[BenchmarkConfig]) -> None:
        with_processes([resolve_benchmark(bench, context.dirs) for bench in asked], context)

    ask_together(foreign)
    wanted = [bench for bench in suite.benchmarks.values() if bench.enabled and bench.definition in foreign]
    try:
        ask(wanted)  # in the time of a few
    except ConfigError:
        with suppress(ConfigError):  # too many to go on
            for bench in wanted:
                with problems.taking():
                    ask([bench])
    return problems.all()


def yaml_files(path: Path) -> list[Path]:
    """Return the file itself, or the YAML files of a folder. Raises ConfigError for a folder without any."""
    if not path.is_dir():
        return [path]
    files = sorted(file for file in (*path.rglob("*.yaml"), *path.rglob("*.yml")) if not _has_other_schema(file))
    if not files:
        raise ConfigError(f"{path}: no .yaml file in this folder")
    return files


def _has_other_schema(file: Path) -> bool:
    """Return whether a file begins with the schema of something else than a suite: a tender, an offer, criteria."""
    try:
        first = read_regular(file).partition(b"\n")[0].decode()
    except (OSError, UnicodeDecodeError):
        return False  # whoever reads it says what is wrong
    return "$schema=" in first and "suite.schema.json" not in first


def is_scaling_file(path: Path) -> bool:
    """Return whether a file holds observed batch sizes, in any of their forms. A file that cannot be read does not."""
    try:
        root = plain(parse_document(decode_text(read_regular(path), str(path)), SourceLocation(str(path), "")).root)
    except (OSError, ConfigError):
        return False
    entries = [entry for name, entry in root.items() if name != "version"] if isinstance(root, dict) else []
    return any(entries) and all(map(_has_sizes, entries))


def _has_sizes(entry: object) -> bool:
    if isinstance(entry, list):
        return all(isinstance(item, Mapping) and "batch_size" in item for item in entry)
    return isinstance(entry, Mapping) and entry.keys() <= KEYS_OF_13 and entry.keys() != {"tags"}
