"""An A/B run: two suites that were measured in turn, compared pair by pair."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
    steps = mappings_in(as_mapping(manifest.get("plan")).get("steps"))
    nodes = grouped(((step.get("bench"), step.get("repeat", 0)), step.get("node")) for step in steps)
    return AB(
        suites=tuple(map(str, suites)) if isinstance(suites, list) else (),
        differs=str(declared.get("differs") or ""),
        pairs=paired_verdicts([_pair(name, as_mapping(own), bench_of, nodes) for name, own in sorted(sides.items())]),
    )


def _pair(
    name: str,
    sides: Mapping[str, object],
    bench_of: Mapping[str, BenchSummary],
    nodes: Mapping[tuple[object, int], Sequence[object]],
) -> Pair:
    """Return a pair, suspect where the sides of a repeat had different nodes. `nodes` are by benchmark and repeat."""
    pair = Pair(bench=name, a=str(sides.get("A")), b=str(sides.get("B")), is_same=bool(sides.get("same_steps")))
    a, b = bench_of.get(pair.a), bench_of.get(pair.b)
    if a is None or b is None or a.perf is None or b.perf is None:
        without = [side for side, bench in (("A", a), ("B", b)) if bench is None or bench.perf is None]
        return replace(pair, why=f"no number on {' and '.join(without)}")
    if (a.units, a.direction) != (b.units, b.direction):
        return replace(pair, why=f"A is in {a.units}, B in {b.units}")
    if apart := differing(cases_of(a.metrics), cases_of(b.metrics)):
        return replace(pair, why=apart)
    before, after = launches(a), launches(b)
    doubts = {*a.doubts, *b.doubts}
    if any({*nodes.get((pair.a, at), ())} != {*nodes.get((pair.b, at), ())} for at in before.keys() & after.keys()):
        doubts.add(Doubt.NODES_DIFFER)
    pair = replace(pair, units=a.units, doubts=tuple(sorted(doubts)))
    pair = with_ratio(pair, before, after, lower_is_better=a.direction == "lower")
    is_judged = pair.ratio is None or a.direction != "none"
    return pair if is_judged else replace(pair, why="neither higher nor lower is better")


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
