"""The result of each process of a case, and statistics over all processes of a case. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from benchmate.cases.outcome import CaseOutcome
from benchmate.cases.payload import CasePayload
from benchmate.cases.registry import Case
from benchmate.supervisor import ProcessExit

AGGREGATES: Mapping[str, Callable[[Sequence[float]], float]] = {
    "mean": statistics.fmean,
    "median": statistics.median,
    "stddev": statistics.stdev,
    "cv": lambda values: statistics.stdev(values) / statistics.fmean(values) if any(values) else 0.0,
}
"""The statistics of Google Benchmark; deviations are those of a sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """One measured process of a case.

    `outcome`, `why`, `reasons`: protocol.md, 5. `wall_ns` and `cpu_ns` are nanoseconds of all `iterations` together, on the
    wall and of the whole process; `items` and `bytes` those of one iteration; `memory` bytes by name; `seconds` from the
    start of the process to its end.
    """

    case: Case
    repetition: int
    outcome: str
    why: str = ""
    detail: str = ""
    reasons: tuple[str, ...] = ()
    iterations: int = 0
    wall_ns: int | None = None
    cpu_ns: int | None = None
    items: float | None = None
    bytes: float | None = None
    counters: Mapping[str, float] = field(default_factory=dict)
    label: str = ""
    memory: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    tail: str = ""

    @property
    def is_measured(self) -> bool:
        """Whether there is a time."""
        return self.outcome == "passed" and self.wall_ns is not None

    @property
    def real_ns(self) -> float:
        """Nanoseconds of one iteration on the wall; nan when there is none."""
        return self.wall_ns / self.iterations if self.wall_ns is not None and self.iterations else float("nan")

    @property
    def process_ns(self) -> float:
        """Nanoseconds of one iteration on all processors that the process had; nan when there is none."""
        return self.cpu_ns / self.iterations if self.cpu_ns is not None and self.iterations else float("nan")

    @property
    def rates(self) -> dict[str, float]:
        """Items and bytes per second, those that the case reported."""
        if not self.is_measured or self.real_ns <= 0:
            return {}
        amounts = {"items_per_second": self.items, "bytes_per_second": self.bytes}
        return {name: amount * 1e9 / self.real_ns for name, amount in amounts.items() if amount is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """A statistic over the processes of a case that passed: of their times per iteration, rates and counters."""

    case: Case
    name: str
    count: int
    real_ns: float
    process_ns: float
    rates: Mapping[str, float]
    counters: Mapping[str, float]

    @property
    def is_ratio(self) -> bool:
        """Whether its figures are shares of the mean and not of the quantity's own unit."""
        return self.name == "cv"


def make_result(
    case: Case,
    repetition: int,
    payload: CasePayload,
    outcome: CaseOutcome,
    ended: ProcessExit,
    foreign: Sequence[int] = (),
) -> CaseResult:
    """Return the result, from what a process sent and how it ended; `foreign` are other processes seen on the devices."""
    counters, memory = payload.get("counters"), payload.get("memory")
    reasons, detail = outcome.reasons, outcome.detail
    if foreign:
        reasons = (*reasons, "contended")
        detail = detail or f"other processes on the device: {', '.join(map(str, foreign))}"
    return CaseResult(
        case=case,
        repetition=repetition,
        outcome=outcome.outcome,
        why=outcome.why,
        detail=detail,
        reasons=reasons,
        iterations=payload.get("iterations") or 0,
        wall_ns=payload.get("wall_ns"),
        cpu_ns=payload.get("cpu_ns"),
        items=_number(payload.get("items")),
        bytes=_number(payload.get("bytes")),
        # A counter that is no number, such as NaN, arrives as null and is left out.
        counters={name: value for name, value in counters.items() if _number(value) is not None} if counters else {},
        label=str(payload.get("label", "")),
        memory=memory or {},
        notes=tuple(payload.get("notes", ())),
        seconds=ended.seconds,
        tail=ended.tail,
    )


def aggregate_results(results: Iterable[CaseResult]) -> list[Aggregate]:
    """Return the statistics of every case that has at least two measured processes, in the order of registration."""
    aggregates = []
    for case, of_case in group_by_case(results):
        measured = [result for result in of_case if result.is_measured]
        if len(measured) < 2:
            continue
        for name, statistic in AGGREGATES.items():
            aggregates.append(
                Aggregate(
                    case=case,
                    name=name,
                    count=len(measured),
                    real_ns=statistic([result.real_ns for result in measured]),
                    process_ns=statistic([result.process_ns for result in measured]),
                    rates=_shared(statistic, [result.rates for result in measured]),
                    counters=_shared(statistic, [result.counters for result in measured]),
                )
            )
    return aggregates


def group_by_case(results: Iterable[CaseResult]) -> list[tuple[Case, list[CaseResult]]]:
    """Return the results of each case, by repetition; cases in the order of registration."""
    groups: dict[str, list[CaseResult]] = {}
    for result in results:
        groups.setdefault(result.case.name, []).append(result)
    ordered = sorted(groups.values(), key=lambda group: (group[0].case.family, group[0].case.instance))
    return [(group[0].case, sorted(group, key=lambda result: result.repetition)) for group in ordered]


def _shared(statistic: Callable[[Sequence[float]], float], tables: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the statistic of each entry that all tables have."""
    names = [name for name in tables[0] if all(name in table for table in tables)]
    return {name: statistic([table[name] for table in tables]) for name in names}


def _number(value: object) -> float | None:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
