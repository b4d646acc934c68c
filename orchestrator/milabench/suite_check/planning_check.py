"""Problems of a suite that only planning finds: placeholders and expressions that cannot be resolved, unknown launchers."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import islice

from milabench.config.problems import Problems
from milabench.config.schema import BenchmarkConfig, Suite
from milabench.config.select import lacking_problems
from milabench.errors import MAX_PROBLEMS, ConfigError, Problem
from milabench.facts.model import Node
from milabench.plan.container import container_of
from milabench.plan.context import COMMAND, Dirs, PlanContext, ResolvedBenchmark, benchmark_on
from milabench.plan.launchers import launcher_of, launcher_words
from milabench.plan.method import RANKS, placements
from milabench.plan.placeholders import names_for
from milabench.plan.profile import PROFILES
from milabench.plan.render import RenderedBenchmark, render_benchmark
from milabench.plan.run import unmet_requirement
from milabench.plan.sizing import sizer_options
from milabench.plan.system import system_facts


def planning_problems(suite: Suite, dirs: Dirs) -> tuple[Problem, ...]:
    """Return every problem that planning the suite would meet on any machine, each place once."""
    # Any machine does: which names there are does not depend on it.
    facts = system_facts(suite.system, Node(), suite.system.arch or "cpu")
    context = PlanContext(facts=facts, system=suite.system, dirs=dirs, profile=PROFILES[suite.profile])
    problems = Problems(most=MAX_PROBLEMS)
    with problems.taking():
        sizer_options(suite.system.origin)
    with suppress(ConfigError):  # too many to go on
        for config in suite.benchmarks.values():
            if config.name not in suite.lacking:
                _check_benchmark(config, context, problems)
        problems.extend(lacking_problems(suite))
    return problems.all()


def _check_benchmark(config: BenchmarkConfig, context: PlanContext, problems: Problems) -> None:
    facts = context.facts
    resolved = ResolvedBenchmark(config=config, folder="", declared=COMMAND)
    with problems.taking():
        benchmark_on(facts.main, resolved, context)
    bench = benchmark_on(facts.main, replace(resolved, config=replace(config, dirs={})), context)
    rendered = RenderedBenchmark()
    with problems.taking():
        rendered = render_benchmark(
            config,
            names_for(bench),
            argument_keys=("argv", "server.argv", "client.argv"),
            has_launcher=launcher_of(config) not in ("none", RANKS),
        )
    with problems.taking():
        render_benchmark(config, names_for(bench), command_key="server.command")
    with problems.taking():
        unmet_requirement(bench)
    with problems.taking():
        container_of(config, context.system)
    for placement in islice(placements(config, facts), 1):
        with problems.taking():
            launcher_words(bench, placement, rendered.launcher_options, env={})
