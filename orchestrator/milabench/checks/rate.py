"""Was anything measured."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from milabench.checks.check import Check, StepContext
from milabench.events.doubts import Doubt
from milabench.events.model import Config, Data, ObservationBatch, StepEvent, Verdict
from milabench.events.values import positive

# Fewer observations have no halves to compare.
_LEAST_OBSERVATIONS = 10

_MAIN_TASKS = ("train", "inference")
# So many sums of neighbours are kept of a long series; where its middle lies is then known to within one of them.
_MAX_SUMS = 4096


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
        items, seconds = [*self._open_items, *items], [*self._open_seconds, *(scale * value for value in seconds)]
        whole = len(items) - len(items) % size
        for start in range(0, whole, size):
            self._items.append(math.fsum(items[start : start + size]))
            self._seconds.append(math.fsum(seconds[start : start + size]))
        self._open_items, self._open_seconds = items[whole:], seconds[whole:]
        # Neighbours are added up and the size doubles: memory stays bounded whatever the length of the run.
        while len(self._items) > _MAX_SUMS:
            if len(self._items) % 2:
                self._open_items.insert(0, self._items.pop())
                self._open_seconds.insert(0, self._seconds.pop())
            self._items = array("d", map(float.__add__, self._items[::2], self._items[1::2]))
            self._seconds = array("d", map(float.__add__, self._seconds[::2], self._seconds[1::2]))
            self._size *= 2

    def drift(self) -> float | None:
        """Return how far the rate of the later half, by number, is from that of the first, relative to it."""
        half = len(self._items) // 2
        if self.count < _LEAST_OBSERVATIONS or not half:
            return None
        first = math.fsum(self._items[:half]) / math.fsum(self._seconds[:half])
        items = math.fsum([*self._items[half:], *self._open_items])
        seconds = math.fsum([*self._seconds[half:], *self._open_seconds])
        return items / seconds / first - 1


class RateCheck(Check):
    """Fails without one usable observation or metric, warns about unusable ones, and about more drift than the suite allows.

    Setting: `drift`, by how much the second half of what was observed after warm-up may differ from the first. Without it only
    the analysis judges whether the window is steady.
    """

    name = "rate"
    doc = (
        "usable observations (`nonfinite`); where `validation.rate.drift` is given, the second half after warm-up "
        "against the first"
    )
    severities = ("fail", "warn")
    _count = 0
    _unusable = 0
    _metrics = 0
    _is_command = False

    def __init__(self, context: StepContext, settings: Mapping[str, Any] | None = None) -> None:
        super().__init__(context, settings)
        self._totals = _Totals() if "drift" in self.settings else None

    def observe(self, event: StepEvent) -> None:
        """Count observations or a metric."""
        match event:
            case ObservationBatch():
                self._count += len(event.ns)
                if self._totals is not None:
                    _add_batch(self._totals, event)
            case Config(data=config):
                # Its number is its time, or in its lines: whether they hold what was asked for decides how the step ended.
                self._is_command = config.get("timed") is True or bool(config.get("metrics"))
            case Data(data=data) if "rate" in data:
                if positive(data["rate"]) is not None:
                    self._count += 1
                    if self._totals is not None:
                        _add(self._totals, data)
                else:
                    self._unusable += 1
            case Data(data=data) if "metric" in data:
                self._metrics += 1
            case _:
                pass

    def verdict(self) -> Verdict:
        """Fail, warn or pass, with how many observations there were."""
        numbers: dict[str, Any] = {"count": self._count, "unusable": self._unusable, "metrics": self._metrics}
        if not self._count and not self._metrics and not self._is_command:
            unusable = f": {self._unusable} observations have no usable rate" if self._unusable else ""
            return self.failure(f"nothing was measured{unusable}", numbers)
        if self._unusable:
            total = self._count + self._unusable
            return self.warning(f"{self._unusable} of {total} observations have no usable rate", numbers)
        drift = None if self._totals is None else self._totals.drift()
        if drift is not None:
            numbers["drift"] = drift
            if abs(drift) > float(self.settings["drift"]):
                return self.warning(
                    f"not steady: the second half after warm-up is {drift:+.1%} from the first", numbers
                )
        return self.passed(numbers)

    def doubt_for(self, verdict: Verdict) -> str | None:
        """Return `nonfinite` for observations that are no numbers, as the analysis does."""
        return Doubt.NONFINITE if self._unusable else super().doubt_for(verdict)


def _add(totals: _Totals, data: Mapping[str, Any]) -> None:
    n, elapsed = positive(data.get("n")), positive(data.get("elapsed"))
    is_main = data.get("task", "train") in _MAIN_TASKS and not data.get("warmup")
    if is_main and n is not None and elapsed is not None:
        totals.add([n], [elapsed])


def _add_batch(totals: _Totals, batch: ObservationBatch) -> None:
    if batch.task not in _MAIN_TASKS:
        return
    items, ns = batch.n, batch.ns
    if any(batch.warmup) or min(items) <= 0:
        kept = [index for index, is_warmup in enumerate(batch.warmup) if not is_warmup and items[index] > 0]
        items, ns = [items[index] for index in kept], [ns[index] for index in kept]
    totals.add(items, ns, 1e-9)
