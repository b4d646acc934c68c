"""Was anything measured."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from milabench.events.model import Config, Data, ObservationBatch, StepEvent, Verdict
from milabench.events.numbers import positive

# Fewer observations have no halves to compare.
_ENOUGH = 10
# How far the two halves of the window may be apart.
DRIFT = 0.05


_MAIN = ("train", "inference")
# So many sums of neighbours are kept of a long series; the halves are then told apart to within one of them.
_MOST_SUMS = 4096


class _Totals:
    """Items and seconds in order, as sums of `_size` neighbours each: however many there are, little is kept."""

    def __init__(self) -> None:
        self._items = array("d")
        self._seconds = array("d")
        self._size = 1
        self._open_items: list[float] = []
        self._open_seconds: list[float] = []
        self.count = 0

    def add(self, items: Sequence[float], seconds: Sequence[float], scale: float = 1.0) -> None:
        """Append as many items as seconds; the latter times `scale`."""
        self.count += len(items)
        size = self._size
        items, seconds = [*self._open_items, *items], [*self._open_seconds, *(scale * one for one in seconds)]
        whole = len(items) - len(items) % size
        for at in range(0, whole, size):
            self._items.append(math.fsum(items[at : at + size]))
            self._seconds.append(math.fsum(seconds[at : at + size]))
        self._open_items, self._open_seconds = items[whole:], seconds[whole:]
        while len(self._items) > _MOST_SUMS:
            if len(self._items) % 2:
                self._open_items.insert(0, self._items.pop())
                self._open_seconds.insert(0, self._seconds.pop())
            self._items = array("d", map(float.__add__, self._items[::2], self._items[1::2]))
            self._seconds = array("d", map(float.__add__, self._seconds[::2], self._seconds[1::2]))
            self._size *= 2

    def drift(self) -> float | None:
        """How far the rate of the later half, by number, is from that of the first, relative to it."""
        half = len(self._items) // 2
        if self.count < _ENOUGH or not half:
            return None
        first = math.fsum(self._items[:half]) / math.fsum(self._seconds[:half])
        items = math.fsum([*self._items[half:], *self._open_items])
        seconds = math.fsum([*self._seconds[half:], *self._open_seconds])
        return items / seconds / first - 1


class RateCheck:
    """Fails without one usable observation or metric, warns about unusable ones, and about a rate that is not steady.

    Steady: the second half of what was observed after warm-up is within `settings["drift"]` (default 0.05) of the first half.
    """

    def __init__(self, step: str, settings: Mapping[str, Any] | None = None) -> None:
        self._step = step
        self._most_drift = float((settings or {}).get("drift", DRIFT))
        self._totals = _Totals()
        self._count = 0
        self._unusable = 0
        self._metrics = 0
        self._is_of_log = False

    def see(self, event: StepEvent) -> None:
        """Count observations or a metric."""
        if isinstance(event, ObservationBatch):
            self._count += len(event.ns)
            self._keep_all(event)
        elif isinstance(event, Config):
            # Whether its lines hold the numbers that were asked for decides how the step ended, not this check.
            self._is_of_log = bool(event.data.get("metrics"))
        elif not isinstance(event, Data):
            return
        elif "rate" in event.data:
            if positive(event.data["rate"]) is not None:
                self._count += 1
                self._keep(event.data)
            else:
                self._unusable += 1
        elif "metric" in event.data:
            self._metrics += 1

    def _keep(self, data: Mapping[str, Any]) -> None:
        n, elapsed = positive(data.get("n")), positive(data.get("elapsed"))
        is_main = data.get("task", "train") in _MAIN and not data.get("warmup")
        if is_main and n is not None and elapsed is not None:
            self._totals.add([n], [elapsed])

    def _keep_all(self, seen: ObservationBatch) -> None:
        if seen.task not in _MAIN:
            return
        items, ns = seen.n, seen.ns
        if any(seen.warmup) or min(items) <= 0:
            kept = [place for place, is_warmup in enumerate(seen.warmup) if not is_warmup and items[place] > 0]
            items, ns = [items[place] for place in kept], [ns[place] for place in kept]
        self._totals.add(items, ns, 1e-9)

    def verdict(self) -> Verdict:
        """Fail, warn or pass, with how many observations there were."""
        numbers: dict[str, Any] = {"count": self._count, "unusable": self._unusable, "metrics": self._metrics}
        if not self._count and not self._metrics and not self._is_of_log:
            of_none = f": {self._unusable} observations have no usable rate" if self._unusable else ""
            message = f"nothing was measured{of_none}"
            return Verdict(step=self._step, check="rate", verdict="fail", numbers=numbers, message=message)
        if self._unusable:
            message = f"{self._unusable} of {self._count + self._unusable} observations have no usable rate"
            return Verdict(step=self._step, check="rate", verdict="warn", numbers=numbers, message=message)
        drift = self._totals.drift()
        if drift is not None:
            numbers["drift"] = drift
            if abs(drift) > self._most_drift:
                message = f"not steady: the second half of the window is {drift:+.1%} from the first"
                return Verdict(step=self._step, check="rate", verdict="warn", numbers=numbers, message=message)
        return Verdict(step=self._step, check="rate", verdict="pass", numbers=numbers)
