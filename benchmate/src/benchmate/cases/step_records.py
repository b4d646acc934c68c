"""The records of a program of cases that is a step of a milabench run: the ordinary ones of protocol.md, 4."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from benchmate.cases.formats import status_line
from benchmate.cases.results import CaseResult

_PARTS = ("setup", "run")


def has_sink(env: Mapping[str, str]) -> bool:
    """Whether this program is a step whose records somebody reads."""
    return bool(env.get("MILABENCH_SINK") or env.get("DATA_FD"))


def record_case(results: Sequence[CaseResult]) -> None:
    """Record the results of all processes of one case: its median time as a main metric, rates, counters, memory, failures."""
    from benchmate.session import current

    session = current()
    case = results[0].case
    for result in results:
        if result.outcome == "failed":
            session.fail(result.why, f"case {case.name}: {status_line(result)}")
        elif result.outcome == "skipped":
            session.message(f"case {case.name}: skipped: {result.detail}")
        elif "contended" in result.reasons:
            message = f"case {case.name}: {result.detail}"
            session.record("verdict", {"check": "contended", "verdict": "warn", "numbers": {}, "message": message})
        elif result.reasons:
            session.message(f"case {case.name}: {status_line(result)}")
    measured = [result for result in results if result.is_measured]
    if not measured:
        return
    times = [result.real_ns / 1e9 for result in measured]
    median = statistics.median(times)
    session.metric("wall_time", median, "s", "lower", main=True, case=case.name, n=len(times), values=times)
    for name, units in (("items_per_second", "items/s"), ("bytes_per_second", "B/s")):
        rates = [result.rates[name] for result in measured if name in result.rates]
        if rates:
            session.metric(name, statistics.median(rates), units, "higher", case=case.name)
    for name in measured[0].counters:
        counts = [result.counters[name] for result in measured if name in result.counters]
        session.metric(name, statistics.median(counts), "", "none", case=case.name)
    for name in ("memory_allocated_peak", "memory_reserved_peak", "host_memory_peak"):
        for part in _PARTS:
            peaks = [result.memory[key] for result in measured if (key := f"{name}_{part}") in result.memory]
            if peaks:
                session.metric(name, max(peaks), "B", "lower", case=case.name, part=part)
