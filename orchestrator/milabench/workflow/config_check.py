"""Checks suite and system files, and explains where their values come from and what they become."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from milabench.config.read import read_suite
from milabench.config.schema import Suite
from milabench.config.show import explain
from milabench.errors import ConfigError, MilabenchError, Problem
from milabench.facts.model import Node
from milabench.plan.argv import placeholders, render_argv, render_env, render_text, texts
from milabench.plan.container import container_of
from milabench.plan.context import PlanContext
from milabench.plan.launchers import launcher_words
from milabench.plan.placeholders import names_for
from milabench.plan.placement import placements, system_facts
from milabench.plan.profile import PROFILES
from milabench.plan.run import unmet_requirement
from milabench.plan.sizing import sizer_options
from milabench.workflow.context import (
    declared_options,
    max_jobs,
    overrides,
    read_context,
    read_suite_only,
    suite_dirs,
    suite_file,
)
from milabench.workflow.options import SuiteOptions
from milabench.workflow.session import Session


def explain_key(options: SuiteOptions, key: str, session: Session) -> list[str]:
    """Return lines on a value: where it comes from, what it replaced, what its placeholders become on this machine.

    Raises ConfigError and NothingSelected.
    """
    suite, _ = read_suite_only(options)
    return [*explain(suite, key), *rendered_placeholders(suite, options, key, session)]


def rendered_placeholders(suite: Suite, options: SuiteOptions, key: str, session: Session) -> list[str]:
    """Return what the placeholders in a value become on this machine; nothing where it has none."""
    name = max((bench for bench in suite.benchmarks if key.startswith(bench + ".")), key=len, default=None)
    if name is None:
        return []
    found = placeholders(suite.benchmarks[name], key[len(name) + 1 :])
    if not found:
        return []
    quote = '"' if "'" in name else "'"
    context = read_context(replace(options, select=f"{quote}{name}{quote}"), session)
    (bench,) = context.benches
    plan_context = context.plan_context
    names = names_for(bench.config, bench.folder, plan_context, plan_context.facts.main)
    wanted = [text for text in found if text.startswith("{")]
    if len(wanted) < len(found):
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
            suite = read_suite(
                [path],
                system=options.system_file,
                overrides=overrides(options),
                env=os.environ,
                declared=declared_options,
                max_jobs=max_jobs(options),
            )
            for warning in suite.warnings:
                session.warn(str(warning))
            if problems := planning_problems(suite, options):
                raise ConfigError(problems)
        except MilabenchError as error:
            broken += 1
            session.error(str(error))
    if broken:
        raise ConfigError(f"{broken} of {len(paths)} files cannot be used")
    return len(paths)


def planning_problems(suite: Suite, options: SuiteOptions) -> list[Problem]:
    """Return what only planning would find: placeholders and expressions that cannot be resolved, each location once."""
    # Any machine does: which names exist does not depend on it.
    facts = system_facts(suite.system, Node(), suite.system.arch or "cpu")
    plan_context = PlanContext(
        facts=facts, system=suite.system, dirs=suite_dirs(options, suite), profile=PROFILES[suite.profile]
    )
    problems: dict[tuple[str, str], Problem] = {}

    def attempt(what: Callable[[], object]) -> None:
        try:
            what()
        except ConfigError as error:
            for problem in error.problems:
                problems.setdefault((problem.where, problem.what), problem)

    attempt(lambda: sizer_options(suite.system.options.get("sizer"), suite.system.origin.where))
    for bench in suite.benchmarks.values():
        attempt(partial(names_for, bench, "", plan_context, facts.main))
        names = names_for(replace(bench, dirs={}), "", plan_context, facts.main)
        for key in ("argv", "server.argv", "client.argv", "command"):
            attempt(partial(render_argv, bench, names, key=key))
        attempt(partial(render_env, bench, names))
        attempt(partial(unmet_requirement, bench, names))
        attempt(partial(container_of, bench, suite.system))
        for placement in placements(bench, facts)[:1]:
            attempt(partial(launcher_words, bench, placement, facts, suite.system.options, names))
    return list(problems.values())


def yaml_files(path: Path) -> list[Path]:
    """Return the file itself, or the YAML files of a folder. Raises ConfigError for a folder without any."""
    if not path.is_dir():
        return [path]
    files = sorted([*path.rglob("*.yaml"), *path.rglob("*.yml")])
    if not files:
        raise ConfigError(f"{path}: no .yaml file in this folder")
    return files
