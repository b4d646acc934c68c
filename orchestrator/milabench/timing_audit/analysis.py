"""The findings of a timing audit: the reading of each way to time a call, the effects of the ways, and the noise.

The processes of a block share its time, so every effect is a ratio inside a block. Blocks are the replicates
(docs/explanation/methodology.md, 1.0; docs/explanation/timing-audit.md).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from milabench.analysis.intervals import Interval, log_t_interval, median_interval
from milabench.analysis.sample_statistics import geometric_mean, mean, median
from milabench.analysis.steady_state import settled_at

LEAST_FLOOR = 0.01  # differences below one percent are never called differences
EVENT_SLACK_NS = 21_000  # two half microseconds of an event's resolution, and 20 us
LAUNCH_BOUND, DEVICE_BOUND = 0.9, 0.75

Bound = Literal["launch-bound", "device-bound", "mixed", "unknown"]
Standing = Literal["told apart", "below the noise floor", "not told apart", "one process"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CellKey:
    """A way to time a call: items in it, calls before the first, and when the host waits: none, each or end."""

    batch: int
    warmup: int
    sync: str

    def __str__(self) -> str:
        return f"batch={self.batch} warmup={self.warmup} sync={self.sync}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedProcess:
    """The measurement of a fresh process in a cell. All times in seconds.

    `wall` and `event` are the readings of a call on either clock (median; the window by its calls where the host waits at
    the end), `mean` the mean of the wall readings, which simple scripts print. `settled_at` counts
    the calls before the steady state. `unfinished` is the share of calls whose events could not have been read at once,
    `too_long` the calls whose event lasted longer than the wall around it.
    """

    block: int
    wall: float
    event: float | None
    mean: float
    first_call: float
    enqueue: float | None
    calls: int
    settled_at: int
    unfinished: float | None
    too_long: int
    window_agrees: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CellResult:
    """A cell over its processes: medians over processes with the exact interval where there are six or more."""

    key: CellKey
    processes: tuple[TimedProcess, ...]
    wall: float
    wall_interval: Interval | None
    event: float | None
    event_interval: Interval | None
    mean: float
    first_call: float
    settled_at: int
    unfinished: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FactorEffect:
    """The effect of a factor (or two: an interaction) on the reading: `ratio` over the blocks, with its 95 % interval."""

    batch: int
    name: str
    ratio: float
    interval: Interval | None
    standing: Standing


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResult:
    """A batch size: the limit of the call, and the floor below which differences are noise."""

    batch: int
    enqueue: float | None
    device: float | None
    bound: Bound
    floor: float | None
    effects: tuple[FactorEffect, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingAudit:
    """All that an audit found. `absent` says why there is no event column, `errors` which processes measured nothing."""

    model: str
    device: str
    absent: str
    cells: tuple[CellResult, ...]
    batches: tuple[BatchResult, ...]
    errors: tuple[str, ...]


def timing_audit(records: Iterable[Mapping[str, Any]]) -> TimingAudit | None:
    """Fold the `audit` records of a run (one for each process). None when there is none."""
    measured: dict[CellKey, list[TimedProcess]] = {}
    again: dict[CellKey, list[TimedProcess]] = {}
    errors: list[str] = []
    model = device = absent = ""
    for record in records:
        measured_values, cell = record["audit"], record["cell"]
        key = CellKey(batch=cell["batch"], warmup=cell["warmup"], sync=cell["sync"])
        model = str(record.get("model", ""))
        if "error" in measured_values:
            errors.append(f"{key}: {measured_values['error']}")
            continue
        device, absent = str(measured_values["device"]), str(measured_values["absent"])
        (again if cell["again"] else measured).setdefault(key, []).append(
            _process(record["block"], key, measured_values)
        )
    if not measured and not errors:
        return None
    keys = sorted(measured, key=lambda key: (key.batch, key.warmup, ("none", "each", "end").index(key.sync)))
    return TimingAudit(
        model=model,
        device=device,
        absent=absent,
        cells=tuple(_cell(key, measured[key]) for key in keys),
        batches=tuple(
            _batch(batch, {key: measured[key] for key in keys if key.batch == batch}, again)
            for batch in sorted({key.batch for key in keys})
        ),
        errors=tuple(errors),
    )


def _process(block: int, key: CellKey, audit: Mapping[str, Any]) -> TimedProcess:
    wall_ns, event_ns, enqueue_ns = audit["wall_ns"], audit["event_ns"], audit["enqueue_ns"]
    calls = len(wall_ns)
    per_call = median(wall_ns)
    if key.sync == "end" and calls > 1:
        # The wait at the end belongs to all calls; what only the first one pays does not.
        per_call = (audit["window_ns"] - wall_ns[0]) / (calls - 1)
    return TimedProcess(
        block=block,
        wall=per_call / 1e9,
        event=median(event_ns) / 1e9 if event_ns else None,
        mean=mean(wall_ns) / 1e9,
        first_call=(audit["warmup_ns"] or wall_ns)[0] / 1e9,
        enqueue=median(enqueue_ns) / 1e9 if key.sync == "each" and event_ns else None,
        calls=calls,
        settled_at=settled_at(wall_ns),
        unfinished=audit["unfinished"] / calls if event_ns else None,
        # A call whose end is waited for cannot last longer on the device than the wall around it: such an event is wrong.
        too_long=sum(event > wall + EVENT_SLACK_NS for event, wall in zip(event_ns, wall_ns, strict=False))
        if key.sync == "each"
        else 0,
        window_agrees=sum(event_ns) <= audit["window_ns"],
    )


def _cell(key: CellKey, processes: Sequence[TimedProcess]) -> CellResult:
    walls = [process.wall for process in processes]
    events = [process.event for process in processes if process.event is not None]
    unfinished = [process.unfinished for process in processes if process.unfinished is not None]
    return CellResult(
        key=key,
        processes=tuple(processes),
        wall=median(walls),
        wall_interval=median_interval(walls),
        event=_median(events),
        event_interval=median_interval(events),
        mean=median([process.mean for process in processes]),
        first_call=median([process.first_call for process in processes]),
        settled_at=round(median([process.settled_at for process in processes])),
        unfinished=mean(unfinished) if unfinished else None,
    )


def _batch(
    batch: int, cells: Mapping[CellKey, Sequence[TimedProcess]], again: Mapping[CellKey, Sequence[TimedProcess]]
) -> BatchResult:
    enqueue = _median(process.enqueue for processes in cells.values() for process in processes)
    device = _median(process.event for key, each in cells.items() if key.sync == "each" for process in each)
    floor = _floor(cells, again)
    return BatchResult(
        batch=batch,
        enqueue=enqueue,
        device=device,
        bound=_bound(enqueue, device),
        floor=floor,
        effects=tuple(_effects(batch, cells, LEAST_FLOOR if floor is None else floor)),
    )


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _bound(enqueue: float | None, device: float | None) -> Bound:
    """Return whether the host takes as long to queue a call as the device to execute it: then the device waits for the host."""
    if enqueue is None or device is None:
        return "unknown"
    share = enqueue / device
    return "launch-bound" if share >= LAUNCH_BOUND else "device-bound" if share <= DEVICE_BOUND else "mixed"


def _floor(
    cells: Mapping[CellKey, Sequence[TimedProcess]], again: Mapping[CellKey, Sequence[TimedProcess]]
) -> float | None:
    """Return the upper 95 % bound of |ln ratio| between a cell and itself, at least 1 %. None below three blocks."""
    # A cell measured again in the same blocks differs from itself by noise only: that is the floor.
    repeated = (_ratios(cells[key], processes) for key, processes in again.items() if key in cells)
    interval = next(filter(None, map(log_t_interval, repeated)), None)
    return None if interval is None else max(LEAST_FLOOR, *(abs(math.log(end)) for end in interval))


def _ratios(first_runs: Sequence[TimedProcess], second_runs: Sequence[TimedProcess]) -> list[float]:
    """Return, block by block, the reading of `other` on the host's clock over the reading of `one`."""
    first = {process.block: process.wall for process in first_runs}
    return [process.wall / first[process.block] for process in second_runs if first.get(process.block)]


def _effects(batch: int, cells: Mapping[CellKey, Sequence[TimedProcess]], floor: float) -> list[FactorEffect]:
    """Return main effects of warm-up, waiting and clock against their first level, then the interactions of each two."""
    table = {
        (key.warmup, key.sync, clock): values
        for key, processes in cells.items()
        for clock in ("wall", "event")
        if (values := {process.block: value for process in processes if (value := getattr(process, clock))})
    }
    levels = [list(dict.fromkeys(key[factor] for key in table)) for factor in range(3)]
    changes = [
        (factor, names[0], level) for factor, names in enumerate(levels) for level in names[1:] if len(names) > 1
    ]
    contrasts = [(_change_text(change), _contrast(table, change)) for change in changes]
    contrasts += [
        (f"{_change_text(first)} x {_change_text(second)}", _interaction(table, first, second))
        for first, second in itertools.combinations(changes, 2)
        if first[0] != second[0]
    ]
    return [_effect(batch, name, ratios, floor) for name, ratios in contrasts if ratios]


Change = tuple[int, Any, Any]
Table = Mapping[tuple[Any, ...], Mapping[int, float]]


def _change_text(change: Change) -> str:
    factor, first, level = change
    return f"{('warmup', 'sync', 'clock')[factor]} {first} -> {level}"


def _contrast(table: Table, change: Change, fixed: tuple[int, object] | None = None) -> list[float]:
    """Return, block by block, the ratio that a change makes, averaged over the levels of the other factors."""
    factor, first, level = change
    by_block: dict[int, list[float]] = {}
    for key, values in table.items():
        if key[factor] != first or (fixed is not None and key[fixed[0]] != fixed[1]):
            continue
        changed = table.get((*key[:factor], level, *key[factor + 1 :]), {})
        for block in values.keys() & changed.keys():
            by_block.setdefault(block, []).append(changed[block] / values[block])
    return [geometric_mean(by_block[block]) for block in sorted(by_block)]


def _interaction(table: Table, change: Change, condition: Change) -> list[float]:
    """Return, block by block, how much more `one` changes at the other's level than at its first."""
    factor, first, level = condition
    at_first, at_level = _contrast(table, change, (factor, first)), _contrast(table, change, (factor, level))
    if len(at_first) != len(at_level):
        return []
    return [b / a for a, b in zip(at_first, at_level, strict=True)]


def _effect(batch: int, name: str, ratios: Sequence[float], floor: float) -> FactorEffect:
    interval = log_t_interval(ratios)
    ratio = geometric_mean(ratios)
    standing: Standing
    if interval is None:
        standing = "one process" if len(ratios) == 1 else "not told apart"
    elif math.log(interval[0]) > floor or math.log(interval[1]) < -floor:
        standing = "told apart"
    else:  # an interval within the floor has its ratio in it
        standing = "below the noise floor" if abs(math.log(ratio)) <= floor else "not told apart"
    return FactorEffect(batch=batch, name=name, ratio=ratio, interval=interval, standing=standing)
