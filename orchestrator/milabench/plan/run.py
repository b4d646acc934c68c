"""The plan of a run: which benchmarks it leaves out and why, and the order of the steps of the others."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final

from milabench.config.expr import evaluate
from milabench.config.problems import UnplacedProblem
from milabench.facts.model import SystemFacts
from milabench.plan.container import container_of
from milabench.plan.context import NodeBenchmark, PlanContext, ResolvedBenchmark, benchmark_on
from milabench.plan.method import placements, why_not_placed
from milabench.plan.model import Plan, SkippedBench, Step
from milabench.plan.placeholders import names_for
from milabench.plan.step import replicate_steps

MAX_STEPS: Final = 100_000


def plan_run(benches: Sequence[ResolvedBenchmark], context: PlanContext) -> Plan:
    """Return the steps of a run.

    Benchmarks are shuffled inside each replicate block by the seed (docs/explanation/methodology.md, 1.0), so that a slow
    drift of the machine does not favour the first benchmark. A plan with more replicates begins with the plan with fewer.
    Raises ConfigError for a placeholder that cannot be resolved.
    """
    skipped = tuple(
        SkippedBench(bench=bench.config.name, why=why)
        for bench in benches
        if (why := _why_skipped(bench, context)) is not None
    )
    left_out = {skip.bench for skip in skipped}
    runnable = [bench for bench in benches if bench.config.name not in left_out]
    replicates = {bench.config.name: context.replicates_of(bench.config.name) for bench in runnable}
    _require_few(runnable, replicates, context.facts)
    blocks = max(replicates.values(), default=0)
    steps: list[Step] = []
    for block in range(blocks):
        in_block = [bench for bench in runnable if replicates[bench.config.name] > block]
        for bench in sorted(in_block, key=lambda bench: shuffle_key(context.seed, block, bench.config.name)):
            steps += replicate_steps(bench, context, repeat=block if blocks > 1 else None)
    return Plan(phase="run", steps=tuple(steps), skipped=skipped, system=describe_system(context.facts))


def _require_few(benches: Sequence[ResolvedBenchmark], replicates: Mapping[str, int], facts: SystemFacts) -> None:
    count = 0
    for bench in benches:
        for _ in placements(bench.config, facts):
            count += replicates[bench.config.name]
            if count > MAX_STEPS:
                what = f"with it, the plan has more than the limit of {MAX_STEPS} steps"
                raise bench.config.error("plan", what, "select fewer benchmarks, or lower --repeat")


def shuffle_key(seed: int, block: int, name: str) -> bytes:
    """Return the key for an order that only seed and block decide, the same on every machine."""
    # Not random.shuffle: adding a benchmark must not change the order of the others.
    return hashlib.sha256(f"{seed}:{block}:{name}".encode()).digest()


def _why_skipped(bench: ResolvedBenchmark, context: PlanContext) -> str | None:
    if bench.declared is None:
        return "not fetched"
    if bench.config.name in context.unavailable:
        return context.unavailable[bench.config.name]
    if (why := why_not_placed(bench.config, context.facts)) is not None:
        return why
    missing = context.missing_programs.get(bench.config.name)
    # A container has programs of its own, which nobody asks.
    if missing is not None and container_of(bench.config, context.system) is None:
        return f"requires the program {missing}, which is not on the PATH"
    if not bench.config.requires_capabilities:
        return None
    return unmet_requirement(benchmark_on(context.facts.main, bench, context))


def unmet_requirement(bench: NodeBenchmark) -> str | None:
    """Return the first of `requires_capabilities` that does not hold, or None."""
    config, names = bench.config, names_for(bench)
    for expression in config.requires_capabilities:
        try:
            holds = evaluate(expression, names)
        except UnplacedProblem as error:
            raise config.error("requires_capabilities", str(error), error.hint) from None
        if not holds:
            return f"requires {expression}"
    return None


def describe_system(facts: SystemFacts) -> dict[str, object]:
    """Return the system as plans and manifests carry it."""
    return {
        "arch": facts.arch,
        "nodes": [
            {
                "name": node.name,
                "ip": node.ip,
                "hostname": node.hostname,
                "cpu": {"model": node.cpu_model, "count": node.cpu_count},
                "memory_MiB": node.memory_mib,
                "os": node.os,
                "kernel": node.kernel,
                "python": node.python,
                "devices": [
                    {"index": d.index, "uuid": d.uuid, "name": d.name, "arch": d.arch, "memory_MiB": d.memory_mib}
                    for d in node.devices
                ],
                "details": dict(node.details),
            }
            for node in facts.nodes
        ],
    }
