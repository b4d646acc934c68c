"""An A/B run: two suites that were measured in turn, compared pair by pair."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from milabench.analysis.case_sets import cases_of, differing
from milabench.analysis.paired_comparison import AB, Pair, paired_verdicts, with_ratio
from milabench.analysis.sample_statistics import geometric_mean
from milabench.analysis.summary_model import BenchSummary
from milabench.events.doubts import Doubt
from milabench.events.values import as_mapping, mappings_in
from milabench.shown import grouped


def ab_of(manifest: Mapping[str, object], benches: Iterable[BenchSummary]) -> AB | None:
    """Return the comparison that a run was made for. None for a run of a single suite."""
    declared = as_mapping(manifest.get("ab"))
    if not declared:
        return None
    bench_of = {bench.bench: bench for bench in benches}
    sides, suites = as_mapping(declared.get("pairs")), declared.get("suites")
    nodes = _nodes_of_launches(manifest)
    return AB(
        suites=tuple(map(str, suites)) if isinstance(suites, list) else (),
        differs=str(declared.get("differs") or ""),
        pairs=paired_verdicts(
            [
                _on_its_nodes(_pair(name, as_mapping(sides_of_pair), bench_of), bench_of, nodes)
                for name, sides_of_pair in sorted(sides.items())
            ]
        ),
    )


def _pair(name: str, sides: Mapping[str, object], bench_of: Mapping[str, BenchSummary]) -> Pair:
    pair = Pair(bench=name, a=str(sides.get("A")), b=str(sides.get("B")), is_same=bool(sides.get("same_steps")))
    a, b = bench_of.get(pair.a), bench_of.get(pair.b)
    if a is None or b is None or a.perf is None or b.perf is None:
        without = [side for side, bench in (("A", a), ("B", b)) if bench is None or bench.perf is None]
        return replace(pair, why=f"no number on {' and '.join(without)}")
    if (a.units, a.direction) != (b.units, b.direction):
        return replace(pair, why=f"A is in {a.units}, B in {b.units}")
    if apart := differing(cases_of(a.metrics), cases_of(b.metrics)):
        return replace(pair, why=apart)
    pair = replace(pair, units=a.units, doubts=tuple(sorted({*a.doubts, *b.doubts})))
    pair = with_ratio(pair, launches(a), launches(b), lower_is_better=a.direction == "lower")
    is_judged = pair.ratio is None or a.direction != "none"
    return pair if is_judged else replace(pair, why="neither higher nor lower is better")


def _nodes_of_launches(manifest: Mapping[str, object]) -> Mapping[tuple[str, int], frozenset[str]]:
    """Return the nodes of each repeat, by benchmark and replicate, as the manifest has them."""
    nodes: dict[tuple[str, int], frozenset[str]] = {}
    for step in mappings_in(as_mapping(manifest.get("plan")).get("steps")):
        bench, repeat, node = step.get("bench"), step.get("repeat", 0), step.get("node")
        if isinstance(bench, str) and isinstance(repeat, int) and isinstance(node, str):
            nodes[bench, repeat] = nodes.get((bench, repeat), frozenset()) | {node}
    return nodes


def _on_its_nodes(
    pair: Pair, bench_of: Mapping[str, BenchSummary], nodes: Mapping[tuple[str, int], frozenset[str]]
) -> Pair:
    """Return the pair, suspect where the sides of a repeat had different nodes."""
    a, b = bench_of.get(pair.a), bench_of.get(pair.b)
    both = launches(a).keys() & launches(b).keys() if a is not None and b is not None else ()
    if all(nodes.get((pair.a, repeat)) == nodes.get((pair.b, repeat)) for repeat in both):
        return pair
    return replace(pair, doubts=tuple(sorted({*pair.doubts, Doubt.NODES_DIFFER})))


def launches(bench: BenchSummary) -> dict[int, float]:
    """Return the total rate of each repeat's instances, by replicate. A repeat without all of them is left out."""
    rates = grouped((process.repeat, process.throughput.value) for process in bench.processes)
    whole = (launch for launch in rates.items() if len(launch[1]) == bench.instances)
    scale = 1 / bench.instances if bench.direction == "lower" else bench.instances
    return {repeat: geometric_mean(members) * scale for repeat, members in whole}


def pair_ratios(bench_a: BenchSummary, bench_b: BenchSummary) -> list[float]:
    """Return B over A, pair by pair: the ratios whose precision an A/B run aims at."""
    a, b = launches(bench_a), launches(bench_b)
    return [b[repeat] / a[repeat] for repeat in sorted(a.keys() & b.keys())]
