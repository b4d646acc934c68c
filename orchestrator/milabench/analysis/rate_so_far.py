"""The rate of a repeat while it runs, of sums over its observations: nothing is kept of the single ones."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate, groupby
from operator import itemgetter
from typing import Any

from milabench.analysis.measure import main_task
from milabench.analysis.throughput import merged
from milabench.analysis.windows import TimeSpan
from milabench.events.model import Data, ObservationBatch, StepEvent
from milabench.events.values import as_mapping, finite_number, positive, whole


@dataclass(slots=True)
class _Sums:
    """Items, and the times in which they were worked on, each from the end of the observation before it."""

    items: float = 0.0
    spans: list[TimeSpan] = field(default_factory=list)

    def add(self, span: TimeSpan, items: float) -> None:
        self.items += items
        if self.spans and self.spans[-1].stop_ns >= span.start_ns:
            span = TimeSpan(self.spans.pop().start_ns, span.stop_ns)
        self.spans.append(span)


@dataclass(slots=True)
class _Rank:
    end_ns: int | None = None
    warm_up: _Sums = field(default_factory=_Sums)
    window: _Sums = field(default_factory=_Sums)

    def add(self, begin_ns: int, end_ns: int, items: float, *, is_warmup: bool) -> None:
        if begin_ns < 0:  # no place on the clock: right behind what was before
            begin_ns, end_ns = self.end_ns or 0, (self.end_ns or 0) + end_ns
        start_ns = begin_ns if self.end_ns is None else min(begin_ns, self.end_ns)
        self.end_ns = max(end_ns, start_ns)
        (self.warm_up if is_warmup else self.window).add(TimeSpan(start_ns, self.end_ns), items)


class RateSoFar:
    """The items of a step's ranks over their longest wall, without pauses, as `launch_throughput` divides a window that is over.

    The rate counts from the begin of the window, before that from the first step. Takes the agent's sums over observations
    (protocol.md, section 11). `sums_of` makes such sums of records.
    """

    def __init__(self) -> None:
        self._ranks: dict[str, dict[int, _Rank]] = {}
        self._units: dict[str, str] = {}
        self._pauses: list[TimeSpan] = []
        self._paused_ns = [0]  # in the first so many
        self._progress: object = None
        self._case: object = None

    def add(self, sums: Mapping[str, Any]) -> None:
        """Take the sums of some observations, or a pause, into account."""
        task, rank = str(sums.get("task") or ""), sums.get("rank", 0)
        self._progress, self._case = sums.get("progress", self._progress), sums.get("case", self._case)
        if "pause" in sums:
            self._pauses = merged([*self._pauses, TimeSpan(*sums["pause"])])
            self._paused_ns = [0, *accumulate(pause.stop_ns - pause.start_ns for pause in self._pauses)]
        for begin_ns, end_ns, items, is_warmup in sums.get("spans", ()):
            known = self._ranks.setdefault(task, {}).setdefault(rank, _Rank())
            known.add(begin_ns, end_ns, items, is_warmup=bool(is_warmup))
            self._units[task] = str(sums.get("units") or "")

    def shown(self) -> dict[str, Any]:
        """Return the values for a display: `{"task", "rate", "units", "is_warmup", "progress", "case"}`, as far as known."""
        task = main_task(self._ranks)
        ranks = self._ranks.get(task, {}).values()
        counted = [rank.window for rank in ranks if rank.window.spans]
        rate = self._rate(counted or [rank.warm_up for rank in ranks])
        known: dict[str, Any] = {} if self._progress is None else {"progress": self._progress}
        known |= {} if self._case is None else {"case": self._case}
        if rate is None:
            return known
        return {**known, "task": task, "rate": rate, "units": self._units[task], "is_warmup": not counted}

    def _rate(self, ranks: Iterable[_Sums]) -> float | None:
        ranks = list(ranks)
        wall_ns = max((sum(map(self._wall_ns, each.spans)) for each in ranks), default=0)
        return math.fsum(each.items for each in ranks) / wall_ns * 1e9 if wall_ns > 0 else None

    def _wall_ns(self, span: TimeSpan) -> int:
        return span.stop_ns - span.start_ns - self._paused_before(span.stop_ns) + self._paused_before(span.start_ns)

    def _paused_before(self, moment_ns: int) -> int:
        begun = bisect_right(self._pauses, moment_ns, key=lambda pause: pause.start_ns)
        to_come = max(0, self._pauses[begun - 1].stop_ns - moment_ns) if begun else 0
        return self._paused_ns[begun] - to_come


def sums_of(event: StepEvent) -> dict[str, object]:
    """Return a record as the agent sums up observations for a display. Empty when it says nothing of a rate or progress."""
    match event:
        case ObservationBatch():
            spans = []
            rows = zip(event.t0_ns, event.host_ns, event.n, event.warmup, strict=True)
            for is_warmup, group in groupby(rows, key=itemgetter(3)):
                own = list(group)
                spans.append([own[0][0], own[-1][0] + own[-1][1], math.fsum(row[2] for row in own), is_warmup])
            return {"task": event.task, "rank": event.rank, "units": event.units, "spans": spans}
        case Data(data={"pause": pause}):
            start_ns, stop_ns = (whole(as_mapping(pause).get(name), -1) for name in ("start_ns", "stop_ns"))
            return {"pause": [start_ns, stop_ns]} if 0 <= start_ns < stop_ns else {}
        case Data(data=data):
            known = {key: data[key] for key in ("task", "units", "progress", "case") if data.get(key) is not None}
            n, elapsed = finite_number(data.get("n")), positive(data.get("elapsed"))
            if "rate" in data and n is not None and n >= 0 and elapsed is not None:
                t0_ns, host_ns = whole(data.get("t0_ns"), -1), whole(data.get("host_ns"), round(elapsed * 1e9))
                span = [t0_ns, max(t0_ns, 0) + host_ns, n, bool(data.get("warmup"))]
                known |= {"rank": whole(data.get("rank"), 0), "spans": [span]}
            return known if "spans" in known or "progress" in known else {}
        case _:
            return {}
