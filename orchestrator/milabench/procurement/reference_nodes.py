"""The number of nodes that a tender's reference has and used, and which of these are missing or contradict its run."""

from __future__ import annotations

from collections.abc import Iterator

from milabench.analysis.comparison_model import System
from milabench.errors import Problem
from milabench.procurement.scores import METRICS
from milabench.procurement.tender import Tender
from milabench.shown import counted


def run_nodes(system: System) -> int:
    """Return how many nodes a run had."""
    used = max((bench.nodes for bench in system.summary.benchmarks), default=0)
    return max(len(system.summary.nodes), used, 1)


def nodes_on(reference: System | None, bench: str) -> int | None:
    """Return how many nodes a benchmark used on the reference run. None where that is not known."""
    benches = () if reference is None else reference.benches
    return next((max(1, summary.nodes) for _, summary in benches if summary.bench == bench), None)


def reference_problems(tender: Tender, reference: System | None) -> Iterator[Problem]:
    """Yield the nodes of the reference, of the whole and of each benchmark, that its run or each other contradict."""
    problem, owned = tender.origin.problem, tender.reference.nodes
    if reference is not None and owned is not None and owned < (ran := run_nodes(reference)):
        yield problem("reference.nodes", f"{owned:g}, and its run had {ran}")
    for name, wanted in tender.benchmarks.items():
        path, used = f"benchmarks.{name}.reference.nodes", wanted.reference.nodes
        if used is None:
            continue
        measured = nodes_on(reference, name)
        if owned is not None and used > owned:
            yield problem(path, f"{used:g}, more than the {owned:g} of the reference system")
        elif wanted.reference.value is None and measured is not None and used != measured:
            hint = "give the nodes of the run, or the figure at these as 'value'"
            yield problem(path, f"{used:g}, and the reference's run measured {measured}", hint)


def unknown_reference_nodes(tender: Tender, metric: str, reference: System | None) -> Iterator[Problem]:
    """Yield where all nodes of an offer would be compared with the nodes that the reference's run happened to use."""
    if (
        reference is None
        or tender.reference.nodes is not None
        or "machine.reference_nodes" not in METRICS[metric].needs
    ):
        return
    what = f"the nodes of the reference system are missing, {metric} needs them together with all nodes of an offer"
    ran = f"its run had {counted(run_nodes(reference), 'node')}. Write 'nodes: 1024'"
    yield tender.origin.problem("reference", what, ran)
