"""Checks suite and system files, and explains where their values come from and what they become."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from milabench.config.schema import Suite
from milabench.config.show import explain
from milabench.errors import ConfigError, MilabenchError
from milabench.plan.check import planning_problems
from milabench.plan.context import benchmark_on
from milabench.plan.placeholders import names_for
from milabench.plan.render import placeholders, render_text, texts
from milabench.workflow.context import read_context, read_suite_only, read_whole_suite, suite_dirs
from milabench.workflow.files import suite_file
from milabench.workflow.options import Session, SuiteOptions
from milabench.workflow.scaling_files import is_scaling_file, read_scaling


def explain_key(options: SuiteOptions, key: str, session: Session) -> list[str]:
    """Return lines on a value: where it comes from, what it replaced, what its placeholders become on this machine.

    Raises ConfigError and NothingSelected.
    """
    suite = read_suite_only(options)
    return [*explain(suite, key), *rendered_placeholders(suite, options, key, session)]


def rendered_placeholders(suite: Suite, options: SuiteOptions, key: str, session: Session) -> list[str]:
    """Return what the placeholders in a value become on this machine; nothing where it has none."""
    name = max((bench for bench in suite.benchmarks if key.startswith(bench + ".")), key=len, default=None)
    if name is None:
        return []
    spans = placeholders(suite.benchmarks[name], key[len(name) + 1 :])
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
        wanted += [text for text in texts(bench.config, key[len(name) + 1 :]) if text not in wanted]
    return [f"  {text} is {render_text(text, names)}" for text in wanted]


def check_files(files: Sequence[Path], options: SuiteOptions, session: Session) -> int:
    """Report everything that is wrong with these suite files, or those in these folders; return how many were checked.

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
            if problems := planning_problems(suite, suite_dirs(options, suite)):
                raise ConfigError(problems)
            if suite.benchmarks and not any(bench.enabled for bench in suite.benchmarks.values()):
                session.info(
                    f"{path}: every benchmark is disabled; `milabench run --select NAME` runs one all the same"
                )
        except MilabenchError as error:
            broken += 1
            session.error(str(error))
    if broken:
        raise ConfigError(f"{broken} of {len(paths)} files cannot be used")
    return len(paths)


def yaml_files(path: Path) -> list[Path]:
    """Return the file itself, or the YAML files of a folder. Raises ConfigError for a folder without any."""
    if not path.is_dir():
        return [path]
    files = sorted([*path.rglob("*.yaml"), *path.rglob("*.yml")])
    if not files:
        raise ConfigError(f"{path}: no .yaml file in this folder")
    return files
