"""The result of a system in a benchmark: the values of its sessions, and whether they count."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain

from milabench.analysis.ab_run import launches
from milabench.analysis.case_sets import cases_of, differing
from milabench.analysis.comparison_model import Per, System, SystemResult, log_level
from milabench.analysis.energy_per_item import energies, joules_per_item
from milabench.analysis.intervals import Interval
from milabench.analysis.sample_statistics import geometric_mean, log_stdev, mean
from milabench.analysis.summary_model import BenchSummary, Validity
from milabench.analysis.system_diff import differing_work, sharing_records, unknown_work
from milabench.analysis.throughput import Direction
from milabench.analysis.two_samples import Estimate, LogMean
from milabench.analysis.uncertainty import Allowance
from milabench.shown import grouped

ACROSS_HINT = " (--across compares it all the same)"
_WORST_FIRST = ("failed", "cancelled", "missing", "skipped", "passed")
_WORST_VALIDITY: tuple[Validity | None, ...] = ("invalid", "suspect", None, "imprecise", "valid")


def sides_of(name: str, systems: Sequence[System], per: Per, *, across: bool) -> list[SystemResult]:
    """Return the result of each system in a benchmark. A result that cannot be compared with the first does not count.

    That is a mean over other cases, or, unless `across`, other work. Of a sweep over a server, that is requests and loads.
    """
    of_systems = [[session.by_name.get(name) for session in system.sessions] for system in systems]
    sides = [_side(system.name, benches, per) for system, benches in zip(systems, of_systems, strict=True)]
    first, cases = sides[0], [_cases(benches) for benches in of_systems]
    is_the_same = [True] * len(systems) if across else sharing_records(systems, name)
    for index, system in enumerate(systems):
        if not (first.counts and sides[index].counts):
            continue
        why_not = ""
        if apart := differing(cases[0], cases[index]):
            why_not = f"is of other cases than {first.system}: {apart}"
        elif not across and system.later and (unlike := differing_work(system.sessions, name)):
            why_not = f"does other work in other sessions: {unlike}"
        elif index and not across and (unknown := unknown_work([systems[0], system], name)):
            why_not = f"may do other work than {first.system}: {unknown}{ACROSS_HINT}"
        elif index and not is_the_same[index] and (unlike := _other_work(systems[0], system, name)):
            why_not = f"does other work than {first.system}: {unlike}{ACROSS_HINT}"
        if why_not:
            sides[index] = replace(sides[index], counts=False, why_not=why_not)
    return sides


def _other_work(first: System, other: System, name: str) -> str:
    """Return the differences in the work of two systems. Of a sweep over a server on both, in its requests and loads."""
    both = [session.by_name.get(name) for system in (first, other) for session in system.sessions]
    is_served = all(bench is not None and bench.serving is not None for bench in both)
    return differing_work([first, other], name, is_served=is_served)


def noise_of(system: System, name: str) -> float:
    """Return the smallest relative difference above the noise that an A/A run showed. 0 for any other run."""
    runs = [session.summary.ab for session in system.sessions if session.summary.ab is not None]
    return max(
        (pair.noise or 0.0 for ab in runs for pair in ab.pairs if name in (pair.bench, pair.a, pair.b)), default=0.0
    )


def _cases(benches: Sequence[BenchSummary | None]) -> frozenset[str]:
    return frozenset().union(*(cases_of(bench.metrics) for bench in benches if bench is not None))


def _side(system: str, in_sessions: Sequence[BenchSummary | None], per: Per) -> SystemResult:
    """Return the result of the sessions that have a benchmark. It counts only if it does in each of them."""
    benches = [bench for bench in in_sessions if bench is not None]
    if not benches:
        return SystemResult(system=system, outcome="absent", why_not="is not in this run")
    return _measured_side(system, benches, [() if bench is None else _values(bench, per) for bench in in_sessions])


def _measured_side(
    system: str, benches: Sequence[BenchSummary], by_session: Sequence[tuple[float, ...]]
) -> SystemResult:
    first, sessions = benches[0], [values for values in by_session if values]
    why_not = next(filter(None, map(_why_not, benches)), "")
    if len({(bench.units, bench.direction) for bench in benches}) > 1:
        why_not = why_not or "has other units in other sessions: " + ", ".join(bench.units for bench in benches)
    if not sessions:
        why_not = why_not or "no repeat has a number for each of its instances"
    values, direction = tuple(chain(*sessions)), first.direction
    means = values if len(sessions) == 1 else tuple(map(geometric_mean, sessions))
    value = geometric_mean(means) if means else None
    log_mean = log_level(by_session, direction, _mean_allowance(benches), max(bench.confidence for bench in benches))
    return SystemResult(
        system=system,
        outcome=min((bench.outcome for bench in benches), key=_WORST_FIRST.index),
        units=first.units,
        direction=direction,
        value=value,
        ci95=None if value is None or log_mean is None else _interval(value, log_mean, direction),
        values=values,
        sessions=tuple(map(len, sessions)),
        weight=first.weight,
        spread=log_stdev(values),
        instances=first.instances,
        devices=first.ngpu or first.instances,
        nodes=first.nodes,
        by_device=_by_device(benches),
        joules_per_item=_joules(benches),
        validity=min((bench.validity for bench in benches), key=_WORST_VALIDITY.index),
        doubts=tuple(dict.fromkeys(doubt for bench in benches for doubt in bench.doubts)),
        doubt_words=tuple(dict.fromkeys(words for bench in benches for words in bench.doubt_words.values())),
        memory_peak_mib=_known(max, benches, "memory_peak_mib"),
        energy_j=_known(math.fsum, benches, "energy_j"),
        first_step_s=_known(mean, benches, "first_step_s"),
        log_mean=log_mean,
        counts=not why_not,
        why_not=why_not,
    )


def _interval(value: float, level: LogMean, direction: Direction) -> Interval:
    """Return the interval of a side's value. A lower-is-better metric's has the same variance."""
    allowance = level.allowance if direction != "lower" else Allowance(*reversed(level.allowance))
    return Estimate.of_variances(math.log(value), [(level.variance, level.freedom)], allowance).ratio_interval()


def _mean_allowance(benches: Sequence[BenchSummary]) -> Allowance:
    allowances = [bench.allowance for bench in benches]
    return Allowance(mean([each.below for each in allowances]), mean([each.above for each in allowances]))


def _known(combined: Callable[[list[float]], float], benches: Sequence[BenchSummary], name: str) -> float | None:
    """Return the combination of the sessions' known values. None without any."""
    known = [value for bench in benches if (value := getattr(bench, name)) is not None]
    return combined(known) if known else None


def _values(bench: BenchSummary, per: Per) -> tuple[float, ...]:
    # `launches` says what the instances of a launch reached together; one of n is 1/n of it, or takes n times as long.
    n = 1 if per == "system" else bench.instances
    times = 1 / max(1, n) if bench.direction == "higher" else n
    return () if bench.perf is None else tuple(value * times for value in launches(bench).values())


def _by_device(benches: Sequence[BenchSummary]) -> tuple[float, ...]:
    """Return the rate of each accelerator. Nothing where a job spans several, or slots share a processor."""
    if any(bench.perf is None or bench.ngpu == 0 for bench in benches):
        return ()
    processes = (process for bench in benches for process in bench.processes)
    of_devices = (process for process in processes if process.slot.partition("/")[2].startswith("D"))
    by_slot = grouped((process.slot, process.throughput.value) for process in of_devices)
    is_one_each = all(bench.ngpu == len(by_slot) for bench in benches)
    return tuple(geometric_mean(values) for values in by_slot.values()) if is_one_each else ()


def _why_not(bench: BenchSummary) -> str:
    if bench.outcome != "passed":
        first = next((failure.reason for failure in bench.failures), "")
        first = first or next((skip.detail for skip in bench.skipped), "")
        return f"{bench.outcome}: {first}" if first and first != bench.outcome else bench.outcome
    if bench.perf is None:
        return (
            "has no single number: its units differ"
            if bench.validity == "invalid"
            else "was not measured: no observation"
        )
    if bench.validity == "invalid":
        return f"invalid: {', '.join(bench.doubts)}"
    return "neither higher nor lower is better" if bench.direction == "none" else ""


def _joules(benches: Sequence[BenchSummary]) -> float | None:
    joules: list[float | None] = []
    for bench in benches:
        step_energies = energies(bench)
        joules += [joules_per_item(process, step_energies) for process in bench.processes]
    known = [value for value in joules if value is not None]
    return mean(known) if known and len(known) == len(joules) else None
