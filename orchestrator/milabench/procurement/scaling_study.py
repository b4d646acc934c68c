"""Runs at several counts of nodes or devices -> for each benchmark the laws through its rates, and their projections.

Measured and projected values are of two types and in two fields: no mean, score or table has both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from milabench.analysis.comparison_model import System, SystemResult
from milabench.analysis.intervals import Interval
from milabench.analysis.sides import sides_of
from milabench.analysis.summary_model import Summary
from milabench.analysis.system_diff import difference_line
from milabench.errors import NothingSelected, UsageError
from milabench.events.values import as_mapping, whole
from milabench.procurement.projection import (
    FURTHEST,
    ChosenFit,
    CountPoint,
    HeldOut,
    Projected,
    back_test,
    choose_law,
    project,
)

Counted = Literal["nodes", "devices"]
_BY_DEFAULT = (2, 4, FURTHEST)  # times the largest measured count
_MOST_REASONS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredBound:
    """The count up to which a person guarantees the law beyond the usual limit, and who or why."""

    count: float
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingQuestion:
    """The counts `to` that are projected to, by default 2, 4 and 8 times the largest measured, up to a `bound`.

    `of` is by default nodes where a benchmark was measured on several numbers of them, else devices. `across`: also
    where arguments differ between the counts.
    """

    of: Counted | None = None
    to: tuple[int, ...] = ()
    bound: DeclaredBound | None = None
    across: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCount(CountPoint):
    """The result of a benchmark at a count: `side` over all `runs` with this count, each a session.

    The `values` are the repeats of a single run, or a value for each of several runs. The scaled quantity is the value, or with
    `is_inverse` its inverse.
    """

    count: int
    runs: tuple[str, ...]
    side: SystemResult
    is_inverse: bool = False

    @property
    def interval(self) -> Interval | None:
        """The 95 % interval of the value. None below three repeats."""
        if self.side.ci95 is None or not self.is_inverse:
            return self.side.ci95
        return 1 / self.side.ci95[1], 1 / self.side.ci95[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchScaling:
    """A benchmark at its measured counts of nodes or devices (`of`), in their order, and their projections.

    `direction` is of the recorded metric, `units` are of the scaled quantity: for a time that falls, of its inverse.
    `left_out` are counts that do not take part, with why. `held_out` is how the law chosen without the largest count does on it.
    None where `why_no_back_test` says why.
    """

    bench: str
    of: Counted
    units: str
    direction: str
    measured: tuple[MeasuredCount, ...]
    left_out: tuple[tuple[int, str], ...]
    chosen: ChosenFit
    projected: tuple[Projected, ...]
    held_out: HeldOut | None
    why_no_back_test: str = ""

    @property
    def largest(self) -> int:
        """The largest measured count."""
        return self.measured[-1].count

    @property
    def unsettled(self) -> tuple[str, ...]:
        """The laws that so few counts can neither choose nor rule out. No interval is over them."""
        return tuple(each.law for each in self.chosen.candidates if each.fit is None or each.fit.freedom < 1)

    def efficiency(self, measured: MeasuredCount) -> float | None:
        """Return the value for each node or device, relative to the smallest count. None where no direction is known."""
        first = self.measured[0]
        is_throughput = self.direction == "higher" or first.is_inverse
        return measured.value / first.value * first.count / measured.count if is_throughput else None

    def band(self, counts: Sequence[float]) -> list[Projected]:
        """Return the chosen law's values at these counts, none of which is beyond the projections."""
        furthest = max([float(self.largest), *(each.count for each in self.projected)])
        return [project(self.chosen, count, declared_bound=furthest) for count in counts]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingStudy:
    """All benchmarks that were measured at two counts or more. `not_projected` are the others, with why.

    `differs` names in a line the differences between the runs.
    """

    benchmarks: tuple[BenchScaling, ...]
    not_projected: tuple[tuple[str, str], ...]
    bound: DeclaredBound | None
    differs: str = ""


def scaling_study(runs: Sequence[System], question: ScalingQuestion, benchmarks: Sequence[str] = ()) -> ScalingStudy:
    """Return the projection of these benchmarks, by default all, in runs of one kind of machine.

    Raises NothingSelected where nothing can be projected, UsageError for an unknown benchmark, runs of unlike machines, and
    counts beyond the bound.
    """
    known = list(dict.fromkeys(bench.bench for run in runs for bench in run.summary.benchmarks))
    for name in benchmarks:
        if name not in known:
            raise UsageError(f"no benchmark '{name}' in these runs. They have {', '.join(sorted(known)) or 'none'}")
    _require_one_kind(runs)
    studied: list[BenchScaling] = []
    reasons: list[tuple[str, str]] = []
    for name in dict.fromkeys(benchmarks) or sorted(known):
        outcome = _bench_scaling(name, runs, question)
        if isinstance(outcome, str):
            reasons.append((name, outcome))
        else:
            studied.append(outcome)
    if not studied:
        named = "; ".join(f"{name}: {why}" for name, why in reasons[:_MOST_REASONS])
        more = f", and {len(reasons) - _MOST_REASONS} more" if len(reasons) > _MOST_REASONS else ""
        raise NothingSelected(f"nothing can be projected: {named}{more}" if reasons else "the runs have no benchmark")
    differs = difference_line(runs, [each.bench for each in studied]) if len(runs) > 1 else ""
    return ScalingStudy(benchmarks=tuple(studied), not_projected=tuple(reasons), bound=question.bound, differs=differs)


def _bench_scaling(name: str, runs: Sequence[System], question: ScalingQuestion) -> BenchScaling | str:
    """Return the study of a benchmark, or why there is none."""
    with_it, bound = [run for run in runs if name in run.by_name], question.bound
    counted: Counted = question.of or (
        "nodes" if len({_count(run, name, "nodes") for run in with_it} - {0}) > 1 else "devices"
    )
    by_count: dict[int, list[System]] = {}
    for run in with_it:
        by_count.setdefault(_count(run, name, counted), []).append(run)
    measured, left_out = _measured(name, by_count, counted, across=question.across)
    if why_not := _why_no_law(measured, left_out, counted):
        return why_not
    if counted == "nodes" and (unlike := _unlike_nodes(name, [run for m in measured for run in by_count[m.count]])):
        return unlike
    first = measured[0].side
    if first.direction == "lower":
        measured = tuple(
            replace(each, is_inverse=True, values=tuple(1 / value for value in each.values)) for each in measured
        )
    try:
        chosen = choose_law(measured)
    except UsageError as error:
        return str(error)
    projected = _projected(name, chosen, question.to or _default_targets(measured[-1].count, bound), bound)
    held_out, why_not = _back_tested(measured)
    return BenchScaling(
        bench=name,
        of=counted,
        units=f"1/({first.units})" if measured[0].is_inverse else first.units,
        direction=first.direction,
        measured=measured,
        left_out=left_out,
        chosen=chosen,
        projected=projected,
        held_out=held_out,
        why_no_back_test=why_not,
    )


def _why_no_law(measured: Sequence[MeasuredCount], left_out: Sequence[tuple[int, str]], of: Counted) -> str:
    """Return why no law goes through these counts. Empty where a law may."""
    also = "".join(f", not at {_counted(count, of)}: {why}" for count, why in left_out)
    if not measured:
        return f"it has no number{also}"
    if len(measured) < 2:
        one = _counted(measured[0].count, of)
        return f"a single measured count ({one}) shows no scaling. Measure at a second count{also}"
    if measured[0].side.direction == "lower" and measured[-1].value >= measured[0].value:
        return f"it is a time that grows with {of}: the laws are of throughput, and of times that fall"
    return ""


def _unlike_nodes(name: str, runs: Sequence[System]) -> str:
    """Return why nodes are no count of these runs, whose nodes have unlike numbers of devices. Empty where they are."""
    shares = {_count(run, name, "devices") / _count(run, name, "nodes") for run in runs}
    if len(shares) < 2 or not all(run.by_name[name].ngpu for run in runs):
        return ""
    return f"devices per node differ ({', '.join(f'{share:g}' for share in sorted(shares))}). Project it --of devices"


def _projected(
    name: str, chosen: ChosenFit, counts: Sequence[float], bound: DeclaredBound | None
) -> tuple[Projected, ...]:
    furthest, largest = None if bound is None else bound.count, chosen.fit.largest
    if furthest is not None and furthest <= largest:
        raise UsageError(
            f"{name}: the declared bound of {furthest:g} is not beyond the largest measured count ({largest:g})"
        )
    try:
        return tuple(project(chosen, count, declared_bound=furthest) for count in counts)
    except UsageError as error:
        raise UsageError(f"{name}: {error}{'' if bound else ' (--bound)'}") from None


def _default_targets(largest: int, bound: DeclaredBound | None) -> list[float]:
    if bound is None:
        return [times * largest for times in _BY_DEFAULT]
    return [*(times * largest for times in _BY_DEFAULT if times * largest < bound.count), bound.count]


def _measured(
    name: str, by_count: Mapping[int, Sequence[System]], of: Counted, *, across: bool
) -> tuple[tuple[MeasuredCount, ...], tuple[tuple[int, str], ...]]:
    """Return the counts with a number that counts and the same work, and the others with why."""
    left_out: list[tuple[int, str]] = []
    systems: list[tuple[int, System]] = []
    for count, runs in sorted(by_count.items()):
        label = _counted(count, of)
        system = replace(runs[0], name=label, later=tuple(replace(run, name=label, later=()) for run in runs[1:]))
        (alone,) = sides_of(name, [system], "system", across=across)
        why_not = alone.why_not if not alone.counts else "" if alone.value else "it has no number"
        if why_not or not count:
            left_out.append((count, why_not or f"no {of} were recorded"))
        else:
            systems.append((count, system))
    # Only now, with a first one that counts, is the work of all the others compared with it.
    sides = sides_of(name, [system for _, system in systems], "system", across=across) if systems else []
    measured = []
    for (count, system), side in zip(systems, sides, strict=True):
        if not side.counts or (side.units, side.direction) != (sides[0].units, sides[0].direction):
            left_out.append((count, side.why_not or f"is in {side.units}, and the smallest count in {sides[0].units}"))
            continue
        names = tuple(session.summary.run for session in system.sessions)
        measured.append(MeasuredCount(count=count, values=tuple(side.replicates), runs=names, side=side))
    return tuple(measured), tuple(sorted(left_out))


def _counted(count: int, of: Counted) -> str:
    return f"{count} {of if count != 1 else of.removesuffix('s')}"


def _count(run: System, name: str, of: Counted) -> int:
    """Return on how many nodes or devices a benchmark ran. Of a processor, devices are its instances."""
    bench = run.by_name[name]
    # Runs of milabench 1.3 have the records of the first machine alone, and say of how many it was one.
    configs = [as_mapping(step.get("config")) for step in run.steps.get(name, [])]
    nodes = max([bench.nodes, *(whole(config.get("num_machines"), 0) for config in configs)])
    if of == "nodes":
        return nodes
    devices = bench.ngpu or bench.instances
    return devices * nodes // bench.nodes if bench.nodes else devices


def _require_one_kind(runs: Sequence[System]) -> None:
    """Raise UsageError where the devices, or the processors of machines without any, differ between runs."""
    kinds: dict[str, str] = {}
    for run in runs:
        if kind := _kind(run.summary):
            kinds.setdefault(kind, run.name)
    if len(kinds) > 1:
        named = " and ".join(f"{kind} ({name})" for kind, name in kinds.items())
        raise UsageError(f"the runs are of different machines, {named}: a law of scaling needs a single kind")


def _kind(summary: Summary) -> str:
    devices = {
        str(device.get("name")) for device in summary.devices if device.get("arch") != "cpu" and device.get("name")
    }
    processors = {str(model) for node in summary.nodes if (model := as_mapping(node.get("cpu")).get("model"))}
    return ", ".join(sorted(devices or processors))


def _back_tested(points: Sequence[CountPoint]) -> tuple[HeldOut | None, str]:
    """Return the projection of the smaller counts to the largest, or why it cannot be tried."""
    if len(points) < 3:
        return None, "two measured counts: without the larger count, its scaling is unknown"
    try:
        (held_out,) = back_test(points, 1)
    except UsageError as error:
        return None, str(error)
    return held_out, ""
