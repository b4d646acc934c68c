"""Divides the plan of a run into shares, each carried out by a job of a scheduler."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from milabench.events.shares import Share
from milabench.plan.model import Plan, Step


def shares_of(
    plan: Plan,
    bundles: Sequence[Sequence[Step]],
    *,
    compared: Iterable[tuple[str, str]] = (),
    reached: Mapping[str, Sequence[str]] = {},
    array: bool = False,
    distribute: bool = False,
) -> tuple[Share, ...]:
    """Return the shares of a plan, named `s1`, `s2`, ... in its order. Each step is in exactly one share.

    A share is a benchmark with all its replicates: compared benchmarks are measured on the same nodes. So are the two
    sides of a pair (they share a bundle) and the benchmarks that `compared` names. Its nodes are the nodes of its
    steps, and the nodes that `reached` names for a benchmark whose single step starts ranks on others. With `array`,
    each replicate is a share. With `distribute`, each node is, except for jobs that span nodes: a benchmark on a node,
    not all benchmarks of a node, so that a node that is lost takes only one of them with it, and the limit of jobs
    counts small ones.
    """
    leader = _leaders(bundles, compared)
    units: dict[tuple[str, int, str], list[Step]] = {}
    for bundle in bundles:
        for node, steps in _by_node(bundle).items() if distribute else [("", bundle)]:
            key = (leader[bundle[0].bench], bundle[0].repeat if array else 0, node)
            units.setdefault(key, []).extend(steps)
    tasks = Counter((bench, node) for bench, _, node in units)
    order = [node["name"] for node in plan.system.get("nodes", ())]
    number_of = {step.id: number for number, step in enumerate(plan.steps)}
    first: dict[tuple[str, str], str] = {}
    shares = []
    for number, ((bench, _, node), steps) in enumerate(units.items(), 1):
        used = dict.fromkeys(name for step in steps for name in (step.node, *reached.get(step.bench, ())))
        name = f"s{number}"
        shares.append(
            Share(
                name=name,
                steps=tuple(sorted((step.id for step in steps), key=number_of.__getitem__)),
                nodes=tuple(sorted(used, key=lambda name: order.index(name) if name in order else len(order))),
                array=first.setdefault((bench, node), name) if tasks[bench, node] > 1 else "",
            )
        )
    return tuple(shares)


def _leaders(bundles: Sequence[Sequence[Step]], compared: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return of each benchmark the first of those that it must not be parted from."""
    leader = {step.bench: step.bench for bundle in bundles for step in bundle}

    def find(bench: str) -> str:
        while leader[bench] != bench:
            bench = leader[bench]
        return bench

    pairs = [(bundle[0].bench, step.bench) for bundle in bundles for step in bundle]
    for one, other in (*pairs, *compared):
        if one in leader and other in leader:
            leader[find(other)] = find(one)
    return {bench: find(bench) for bench in leader}


def _by_node(bundle: Sequence[Step]) -> dict[str, list[Step]]:
    """Return the steps of a bundle by node. All of them under the name of the first, where a job of theirs spans nodes."""
    nodes: dict[str, set[str]] = {}
    for step in bundle:
        nodes.setdefault(step.job or step.id, set()).add(step.node)
    if any(len(of_job) > 1 for of_job in nodes.values()):
        return {bundle[0].node: list(bundle)}
    parts: dict[str, list[Step]] = {}
    for step in bundle:
        parts.setdefault(step.node, []).append(step)
    return parts
