"""The result of each process of a case, from its message and how it ended, and statistics over all processes of a case. Pure."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from benchmate.cases.registry import Case
from benchmate.memory import OUT_OF_MEMORY
from benchmate.result_channel import CHANNEL_CLOSED
from benchmate.supervisor import ProcessExit

AGGREGATES: Mapping[str, Callable[[Sequence[float]], float]] = {
    "mean": statistics.fmean,
    "median": statistics.median,
    "stddev": statistics.stdev,
    # All zero, as a counter may be: no deviation, and no division by the mean.
    "cv": lambda values: statistics.stdev(values) / statistics.fmean(values) if any(values) else 0.0,
}
"""The statistics of Google Benchmark. Deviations are of a sample."""


CasePayload = dict[str, Any]
"""The message of a case's process to the runner, as a line of JSON: `outcome`, and fields of CaseResult where they are known."""
_OF_RUNNER = ("case", "repetition", "reasons", "seconds", "tail")
"""Fields of CaseResult that only the runner knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """A measured process of a case.

    `outcome`, `why`, `reasons`: protocol.md, 5. `wall_ns` and `cpu_ns` are nanoseconds of all `iterations` together, on the
    wall and of the whole process. `items` and `bytes` are of an iteration, `memory` has bytes by name, `seconds` is
    the time from the start of the process to its end.
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
    notes: Sequence[str] = ()
    seconds: float = 0.0
    tail: str = ""

    @property
    def is_measured(self) -> bool:
        """Whether there is a time."""
        return self.outcome == "passed" and self.wall_ns is not None

    @property
    def real_ns(self) -> float:
        """Nanoseconds of an iteration on the wall. nan when there is none."""
        return self.wall_ns / self.iterations if self.wall_ns is not None and self.iterations else float("nan")

    @property
    def process_ns(self) -> float:
        """Nanoseconds of an iteration on all processors that the process had. nan when there is none."""
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


def parse_payload(line: bytes) -> CasePayload | None:
    """Return the message of a process. None when it is no payload of a case."""
    try:
        payload = json.loads(line)
    except ValueError:
        return None
    if not isinstance(payload, dict) or payload.get("outcome") not in ("passed", "failed", "skipped"):
        return None
    known = {field.name for field in fields(CaseResult)} - set(_OF_RUNNER)
    return {name: value for name, value in payload.items() if name in known}


def make_result(
    case: Case,
    repetition: int,
    payload: CasePayload | None,
    ended: ProcessExit,
    timeout_s: float,
    foreign: Sequence[int] = (),
) -> CaseResult:
    """Return the result, from a process's message (None: nothing) and how it ended.

    `foreign` are other processes seen on the devices.
    """
    reasons: tuple[str, ...] = ()
    given: CasePayload = {**(payload or {"outcome": "failed"})}
    if payload is None:
        given["why"], given["detail"] = _explain_exit(ended, timeout_s)
    elif payload["outcome"] == "passed" and (ended.code != 0 or ended.is_late):
        # It was measured, then did not end as it should: gloo and some drivers abort at exit.
        given["detail"] = "did not end after its result" if ended.is_late else ended.how
        reasons = ("abort-at-exit",)
    if foreign:
        reasons = (*reasons, "contended")
        given["detail"] = given.get("detail") or f"other processes on the device: {', '.join(map(str, foreign))}"
    # A figure of the case's own that is no number, such as NaN, arrives as null and is left out.
    given |= {name: _number(given.get(name)) for name in ("items", "bytes")}
    counters = given.get("counters") or {}
    given["counters"] = {name: value for name, value in counters.items() if _number(value) is not None}
    given["label"] = str(given.get("label", ""))
    return CaseResult(
        case=case, repetition=repetition, reasons=reasons, seconds=ended.seconds, tail=ended.tail, **given
    )


def _explain_exit(ended: ProcessExit, timeout_s: float) -> tuple[str, str]:
    """Return why a process without a result failed, as the word of protocol.md, 5, and in detail."""
    last_line = next((line for line in reversed(ended.tail.splitlines()) if line.strip()), "").strip()
    if ended.is_late:
        return "timeout", f"still running after {timeout_s:g} s. -t sets the limit"
    if ended.was_oom:
        return "out-of-memory", "the kernel killed it for memory"
    if ended.code is None:
        return "environment", "the server that it was to be forked from has ended"
    if ended.code < 0:
        return "signal", ended.how
    if ended.code == CHANNEL_CLOSED and not last_line:
        return "no-data", "the case closed the pipe of its result"
    if ended.code == 0:
        return "no-data", "exited with code 0, but without a result"
    why = "out-of-memory" if OUT_OF_MEMORY.search(last_line) else "exit"
    return why, f"{ended.how}{': ' if last_line else ''}{last_line}"


def aggregate_results(results: Iterable[CaseResult]) -> list[Aggregate]:
    """Return the statistics of every case that has at least two measured processes, in the order of registration."""
    groups = [(case, [result for result in of_case if result.is_measured]) for case, of_case in group_by_case(results)]
    return [
        Aggregate(
            case=case,
            name=name,
            count=len(measured),
            real_ns=statistic([result.real_ns for result in measured]),
            process_ns=statistic([result.process_ns for result in measured]),
            rates=_shared(statistic, [result.rates for result in measured]),
            counters=_shared(statistic, [result.counters for result in measured]),
        )
        for case, measured in groups
        if len(measured) > 1
        for name, statistic in AGGREGATES.items()
    ]


def group_by_case(results: Iterable[CaseResult]) -> list[tuple[Case, list[CaseResult]]]:
    """Return the results of each case, by repetition. Cases in the order of registration."""
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
