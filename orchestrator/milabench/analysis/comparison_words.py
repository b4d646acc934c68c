"""The words about a comparison: the sentence to quote, excluded benchmarks and why, warnings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from milabench.analysis.comparison_model import Comparison, ComparisonRow, CurveComparison, Index, System, SystemResult
from milabench.analysis.intervals import LEAST_LAUNCHES
from milabench.analysis.summary_model import Summary, some_names
from milabench.analysis.two_samples import Verdict
from milabench.shown import counted, grouped


def excluded_benches(
    rows: Iterable[ComparisonRow], curves: Sequence[CurveComparison] = ()
) -> Iterable[tuple[str, str]]:
    """Yield the benchmarks that are in no index, each with why, and that their curves are compared all the same."""
    drawn = {one.bench for one in curves if one.ratios}
    for row in rows:
        reasons = [f"{side.system} {side.why_not}" for side in row.sides if side.why_not]
        counting_sides = [side for side in row.sides if side.counts]
        if len({(side.units, side.direction) for side in counting_sides}) > 1:
            reasons.append("its units differ: " + ", ".join(f"{side.system} {side.units}" for side in counting_sides))
        if reasons:
            also = " (its curves are compared point by point)" if row.bench in drawn else ""
            yield row.bench, "; ".join(reasons) + also


def warnings_on(
    systems: Sequence[System], rows: Sequence[ComparisonRow], curves: Sequence[CurveComparison] = ()
) -> Iterable[str]:
    """Yield the warnings that a reader needs before the first number."""
    own = {
        system.name: system_warnings(system, [side for row in rows for side in row.sides if side.system == system.name])
        for system in systems
    }
    yield from joined_warnings(own)
    yield from _unlike("profiles", systems, lambda summary: summary.profile)
    yield from _unlike("versions of milabench", systems, lambda summary: summary.version)
    yield from _other_clocks(systems)
    nodes = [_node_names(system) for system in systems]
    if all(nodes) and len({frozenset(names) for names in nodes}) > 1:
        named = (_on_nodes(system.name, names) for system, names in zip(systems, nodes, strict=True))
        yield f"measured on different nodes: {', '.join(named)}"
    lacking = [row.bench for row in rows if any(side.outcome == "absent" for side in row.sides)]
    if lacking:
        yield f"the suites differ: {len(lacking)} of {len(rows)} benchmarks are not in every run"
    single = [system.name for system in systems if not system.later]
    contrasts = [contrast for row in rows for contrast in row.contrasts if contrast is not None]
    contrasts += [ratio.contrast for one in curves for ratio in one.ratios]
    if single and any(contrast.ci95 is not None for contrast in contrasts):
        yield one_session_note(single)


def one_session_note(names: Sequence[str]) -> str:
    """Return the warning about systems that were measured in only one session."""
    return (
        f"{', '.join(names)}: one session{' each' * (len(names) > 1)}. The intervals do not include the drift between sessions."
        " Compare several runs a side (A1,A2,A3 B1,B2,B3), or alternate the two (`milabench run --ab`)"
    )


def _on_nodes(system: str, nodes: Sequence[str]) -> str:
    """Return `old on n1`. Only the node where the system has its name."""
    return system if [*nodes] == [system] else f"{system} on {some_names(nodes)}"


def joined_warnings(by_system: Mapping[str, Iterable[str]]) -> Iterable[str]:
    """Yield each warning once, with the systems that it is about."""
    pairs = ((text, system) for system, texts in by_system.items() for text in dict.fromkeys(texts))
    for text, systems in grouped(pairs).items():
        yield f"{', '.join(systems)}: {text}"


def _other_clocks(systems: Sequence[System]) -> Iterable[str]:
    """Yield, once for all benchmarks, how the numbers of some systems differ in kind, whose records milabench 1.3 made."""
    old = [system.name for system in systems if any(run.summary.is_of_milabench13 for run in system.sessions)]
    new = [system.name for system in systems if system.name not in old]
    if old and new:
        yield (
            f"measured differently: milabench 1.3 ({some_names(old)}) measured the rate within steps, with its own clocks, in an"
            f" unknown window, and {some_names(new)} all the time of a window after warm-up. A ratio of the two is only an"
            " indication"
        )


def _node_names(system: System) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for session in system.sessions for name in session.summary.node_names))


def _unlike(what: str, systems: Sequence[System], of_run: Callable[[Summary], str]) -> Iterable[str]:
    values = [
        ", ".join(sorted({of_run(run.summary) or "not recorded" for run in system.sessions})) for system in systems
    ]
    if len(set(values)) > 1:
        named = (f"{system.name} {value}" for system, value in zip(systems, values, strict=True))
        yield f"{what} differ: {', '.join(named)}"


def system_warnings(system: System, sides: Iterable[SystemResult]) -> Iterable[str]:
    """Yield the warnings about a system and its results, without its name."""
    runs = [session.summary for session in system.sessions]
    if not all(summary.is_ended for summary in runs):
        yield "the run is incomplete or still active: its numbers are preliminary"
    if not any(summary.benchmarks for summary in runs):
        yield "has no benchmark at all"
    if any(summary.profile == "quick" for summary in runs):
        yield "measured with the quick profile: every number is an indication only"
    counting = [side for side in sides if side.counts]
    if counting and max(len(side.values) for side in counting) < LEAST_LAUNCHES:
        yield f"fewer than {LEAST_LAUNCHES} repeats of every benchmark: the spread is not known"
    devices = max((side.devices for side in counting), default=0)
    if devices in (1, 2):
        measured = "one device" if devices == 1 else "two devices"
        yield f"measured on {measured} only: other devices of this model may differ by more than these numbers show"


def sentence_on(comparison: Comparison) -> str:
    """Return the sentence to quote: with the interval, undecided benchmarks, and missing evidence."""
    claims = [": ".join(filter(None, claim)) for claim in claims_on(comparison)]
    return " ".join(f"{claim}." for claim in (*claims, *_curve_claims(comparison)))


def claim_lines(comparison: Comparison) -> tuple[str, ...]:
    """Return what `sentence_on` says in lines: each claim, then what it rests on."""
    claims = [line for claim in claims_on(comparison) for line in claim if line]
    return (*claims, *_curve_claims(comparison))


def claims_on(comparison: Comparison) -> list[tuple[str, str]]:
    """Return the claim of each index with its interval, and the verdicts and caveats that it rests on."""
    first = comparison.systems[0].name
    return [_claim(index, first, comparison) for index in comparison.indices]


def _curve_claims(comparison: Comparison) -> Iterable[str]:
    """Yield how many of the ratios of each curve came to which verdict, on each system."""
    for curves in comparison.curves:
        for system in dict.fromkeys(ratio.system for ratio in curves.ratios):
            verdicts = [ratio.contrast.verdict for ratio in curves.ratios if ratio.system == system]
            yield f"curve of {curves.bench} on {system}, {len(verdicts)} ratios: {_tally(verdicts)}"


def _tally(verdicts: Sequence[Verdict]) -> str:
    words = (
        ("FASTER", "faster"),
        ("SLOWER", "slower"),
        ("EQUIVALENT", "equivalent"),
        ("DIFFERENT-BUT-SMALL", "different but by little"),
        ("INCONCLUSIVE", "inconclusive"),
    )
    return ", ".join(f"{verdicts.count(verdict)} {word}" for verdict, word in words if verdict in verdicts)


def why_no_interval(index: Index) -> str:
    """Return why an index has no interval, or no value at all."""
    if index.value is None:
        return "no benchmark in common has a number that counts"
    return f"fewer than {LEAST_LAUNCHES} repeats of a benchmark"


def _claim(index: Index, first: str, comparison: Comparison) -> tuple[str, str]:
    column = comparison.column(index)
    number, wanted = index.complete
    if index.value is None:
        has_curves = any(ratio.system == index.system for curves in comparison.curves for ratio in curves.ratios)
        common = "curves in common and no single number, so that there is no index"
        nothing = "no benchmark in common that counts, so their speed cannot be compared"
        return f"{index.system} and {first} have {common if has_curves else nothing}", ""
    over = f"over {number} of {wanted} benchmarks" if number < wanted else f"over {counted(number, 'benchmark')}"
    over += f" by the weights of {index.weights_of}" if index.weights_of else ""
    is_suspect = any((c := row.contrasts[column]) and c.is_suspect for row in comparison.rows)
    mark = "some numbers are suspect" if is_suspect else ""
    if index.ci95 is None:
        return (
            f"{index.system} was {index.value:.3g} times as fast as {first} {over}, but with fewer than"
            f" {LEAST_LAUNCHES} repeats of a benchmark on a side its uncertainty is not known",
            mark,
        )
    low, high = index.ci95
    interval, within = f"95 % interval {low:.3f} to {high:.3f}", f"{100 * index.margin:.3g}%"
    sessions = [len(system.sessions) for system in (comparison.systems[0], comparison.systems[column + 1])]
    if max(sessions) > 1:
        interval += f" over {sessions[0]} and {sessions[1]} sessions"
    claim = {
        "FASTER": f"{index.system} is {index.value:.3f} times as fast as {first}",
        "SLOWER": f"{index.system} is slower than {first}, at {index.value:.3f} of its speed",
        "EQUIVALENT": f"{index.system} and {first} are equally fast within {within}, ratio {index.value:.3f}",
        "DIFFERENT-BUT-SMALL": f"{index.system} and {first} differ by less than {within}, ratio {index.value:.3f}",
        "INCONCLUSIVE": f"inconclusive: {index.system} may be faster or slower than {first}, ratio {index.value:.3f}",
    }[index.verdict]
    counts = [row.contrasts[column] for row in comparison.rows]
    verdicts = [contrast.verdict for contrast in counts if contrast is not None]
    tally = _tally(verdicts)
    failed = [
        row.bench for row in comparison.rows if row.sides[column + 1].outcome in ("failed", "cancelled", "missing")
    ]
    broken = f"{', '.join(failed)} failed on {index.system}" if failed else ""
    return f"{claim} {over} ({interval})", "; ".join(filter(None, (tally, mark, broken)))
