"""What came of each process of each case, and of all processes of a case together. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmate.cases.registry import Case

AGGREGATES: Mapping[str, Callable[[Sequence[float]], float]] = {
    "mean": statistics.fmean,
    "median": statistics.median,
    "stddev": statistics.stdev,
    "cv": lambda values: statistics.stdev(values) / statistics.fmean(values) if any(values) else 0.0,
}
"""Those of Google Benchmark; the deviations are those of a sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """One process of a case.

    `outcome`, `why`, `reasons`: docs/protocol.md, 5. `wall_ns` and `cpu_ns` are nanoseconds of all `iterations` together, on the
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
        """Items and bytes per second, those that the case has told."""
        said = {"items_per_second": self.items, "bytes_per_second": self.bytes}
        has_passed = self.is_measured and self.real_ns > 0
        return {name: one * 1e9 / self.real_ns for name, one in said.items() if one is not None and has_passed}


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


def make_result(case: Case, repetition: int, said: Mapping[str, Any], **ended: Any) -> CaseResult:
    """The result from what the process said of itself and what its supervisor saw; what it should not have said is left out."""
    counters = said.get("counters")
    memory = said.get("memory")
    return CaseResult(
        case=case,
        repetition=repetition,
        iterations=said.get("iterations") or 0,
        wall_ns=said.get("wall_ns"),
        cpu_ns=said.get("cpu_ns"),
        items=_number(said.get("items")),
        bytes=_number(said.get("bytes")),
        counters={str(key): value for key, value in counters.items() if _number(value) is not None}
        if isinstance(counters, dict)
        else {},
        label=str(said.get("label", "")),
        memory=memory if isinstance(memory, dict) else {},
        notes=tuple(said.get("notes", ())),
        **ended,
    )


def aggregate_results(results: Iterable[CaseResult]) -> list[Aggregate]:
    """The statistics of every case that has at least two measured processes, in the order of registration."""
    found = []
    for case, members in group_by_case(results):
        measured = [one for one in members if one.is_measured]
        if len(measured) < 2:
            continue
        for name, statistic in AGGREGATES.items():
            found.append(
                Aggregate(
                    case=case,
                    name=name,
                    count=len(measured),
                    real_ns=statistic([one.real_ns for one in measured]),
                    process_ns=statistic([one.process_ns for one in measured]),
                    rates=_shared(statistic, [one.rates for one in measured]),
                    counters=_shared(statistic, [one.counters for one in measured]),
                )
            )
    return found


def group_by_case(results: Iterable[CaseResult]) -> list[tuple[Case, list[CaseResult]]]:
    """The results of each case, by repetition; cases in the order of registration."""
    groups: dict[str, list[CaseResult]] = {}
    for one in results:
        groups.setdefault(one.case.name, []).append(one)
    ordered = sorted(groups.values(), key=lambda members: (members[0].case.family, members[0].case.instance))
    return [(members[0].case, sorted(members, key=lambda one: one.repetition)) for members in ordered]


def _shared(statistic: Callable[[Sequence[float]], float], tables: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The statistic of each entry that all tables have."""
    names = [name for name in tables[0] if all(name in table for table in tables)]
    return {name: statistic([table[name] for table in tables]) for name in names}


def _number(value: Any) -> float | None:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
