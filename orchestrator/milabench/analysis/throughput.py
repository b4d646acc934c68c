"""The rate of a repeat: the items of all its ranks over the seconds of its window, on the host's clock.

Time between steps and between epochs counts, because the user waited for it. Only declared pauses are left out. The rate
within steps is a detail. Where the two are far apart the number says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal, NamedTuple

from milabench.analysis.json_codec import NOT_WRITTEN, OPTIONAL, JsonKey
from milabench.analysis.sample_statistics import variation_of_blocks
from milabench.analysis.series import Series
from milabench.analysis.stalls import Stalls, stalls
from milabench.analysis.steady_state import AGREEMENT, settled_at
from milabench.analysis.uncertainty import WindowProfile, window_profile
from milabench.analysis.windows import Part, TimeSpan, Window, latency, later_half, overlap, part_of
from milabench.events.doubts import Doubt
from milabench.events.stored_json import AboveZero, Count, NotNegative, Number, Whole
from milabench.events.values import finite_number

Direction = Literal["higher", "lower", "none"]

# How a number was got. `compat`: milabench 1.3 recorded rates without their items and seconds; their harmonic mean is
# the ratio of totals when all batches are of one size, and no better estimate is possible. `metric`: no observation,
# but a metric that the program flagged as its main one.
Basis = Literal["ratio-of-totals", "compat", "metric", "warm-up"]

LEAST_OVERLAP = 0.95
"""Of the time in which any rank or instance measured, that in which all did."""
MOST_BETWEEN_STEPS = 0.05
"""By how much the rate within steps may be above perf before the time between them counts as uncertain."""
# A window holds what the profile asks for; where the records do not say what that was, what profile `default` does.
LEAST_STEPS, LEAST_S = 60, 30.0


class Pause(NamedTuple):
    """Time that a benchmark declared as not measured, such as a validation. Monotonic nanoseconds.

    `rank` is whose time it is, None for a lone process's.
    """

    name: str
    start_ns: int
    stop_ns: int
    rank: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """The work of a rank within the window: `observations` entries with `steps` steps.

    `seconds` are of the window without its pauses, `step_seconds` are within the steps.
    """

    rank: Whole
    items: NotNegative
    seconds: NotNegative
    observations: Count
    steps: Whole
    step_seconds: NotNegative = math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class LongestStall:
    """The longest stall of a window: the number of its step in the repeat, from 1 on, and its seconds beyond other steps."""

    step: Whole
    seconds: NotNegative


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """The number of a repeat, and its basis.

    `value` is items a second of the window. `steps_rate` is the same within the steps alone, `between_steps` the share
    of the window between them, `pauses` the share of each declared pause in the window with it. `spread_within` is the
    coefficient of variation of the rates of single observations. `latency` is in seconds a step: `min`, `max`, and the
    quantiles `p50`, `p90`, `p95`, `p99` (R7) as far as this number of steps bounds them. All are of the slowest rank.
    `totals` is empty unless the basis is the ratio of totals. `warmup_left` are the first
    observations of the slowest rank's window that still were warm-up, and are not in the number. `left_out` are their
    items, in no total, but in the energy of the window. `warm_up_steps` of the `all_steps` of the slowest rank came
    before the window. `period` is the number of steps from a regular long step to the next, where the window was cut to
    whole periods. `stall` is the longest stall of the slowest rank. `begin_ns` is when the first counted step began, on
    the monotonic clock, -1 where unknown. `profile` is of the slowest rank's window. `effects` are the sizes of other
    causes that may have moved the number: see `uncertainty_of`. `doubts` are reasons to suspect the number.
    """

    value: AboveZero
    units: str = ""
    direction: Direction = "higher"
    basis: Basis = "ratio-of-totals"
    observations: Count = 0
    steps_rate: NotNegative | None = None
    between_steps: Number | None = None
    pauses: Mapping[str, NotNegative] = field(default_factory=dict)
    warm_up_steps: Count = 0
    all_steps: Count = 0
    period: Number | None = None
    stall: Annotated[LongestStall | None, OPTIONAL] = None
    spread_within: NotNegative | None = None
    doubts: tuple[str, ...] = ()
    left_out: Annotated[NotNegative, JsonKey(is_omitted=lambda rate: not rate.left_out)] = 0.0
    latency: Mapping[str, NotNegative] = field(default_factory=dict)
    totals: tuple[Totals, ...] = ()
    warmup_left: Annotated[Whole | None, OPTIONAL] = None
    begin_ns: Annotated[int, NOT_WRITTEN] = field(default=-1, compare=False)
    profile: Annotated[WindowProfile | None, NOT_WRITTEN] = field(default=None, compare=False)
    effects: Annotated[Mapping[str, float], NOT_WRITTEN] = field(default_factory=dict, compare=False)

    @property
    def left_out_share(self) -> float:
        """Of the items of the window, those that are in no total."""
        counted = math.fsum(total.items for total in self.totals)
        return self.left_out / (counted + self.left_out) if self.left_out else 0.0


def launch_throughput(
    ranks: Sequence[Series],
    window: Window | None,
    pauses: Sequence[Pause] = (),
    measure: Mapping[str, object] | None = None,
) -> Throughput | None:
    """Return the throughput of a repeat from its ranks' observations. None without an item.

    `measure` is its configuration's request for the window: `window_steps` and `window_s`. A repeat that never left its warm-up
    has the rate of its later half, as a number that is not steady.
    """
    parts = [part for series in ranks if len(part := part_of(series, window))]
    if not parts:
        halves = [part for series in ranks if len(part := later_half(series))]
        return _with_doubts(_combined(halves, pauses, "warm-up"), Doubt.SHORT)
    is_complete = _is_complete(parts, window, measure or {})
    counted = _counted(parts, pauses, is_complete=is_complete)
    throughput = _combined(counted.parts, pauses, "ratio-of-totals")
    if throughput is None:
        return None
    left_out = math.fsum([*(part.items() for part in parts), *(-part.items() for part in counted.parts)])
    # Between epochs a program validates or starts its workers: of these gaps only a part of a period is uncertain.
    explained = -math.log1p(-counted.epoch_gaps) - counted.part_of_period
    faster = math.log(throughput.steps_rate / throughput.value) - explained if throughput.steps_rate else 0.0
    clocks = max(map(_clocks_apart, counted.parts))
    together = overlap([(spans[0].start_ns, spans[-1].stop_ns) if spans else None for spans in map(Part.spans, parts)])
    throughput = replace(
        throughput,
        warmup_left=counted.warmup_left,
        left_out=left_out,
        period=counted.period,
        profile=counted.profile,
        stall=counted.stall,
        effects={"gaps": faster if faster > MOST_BETWEEN_STEPS else 0.0, "clocks": clocks},
    )
    doubts = {
        Doubt.SHORT: not is_complete,
        Doubt.OVERLAP: together is not None and together < LEAST_OVERLAP,
        Doubt.CLOCKS_DISAGREE: clocks > AGREEMENT,
    }
    return _with_doubts(throughput, *(doubt for doubt, holds in doubts.items() if holds))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counted:
    """The counted part of each rank's window, and the findings on the slowest rank.

    `epoch_gaps` is the share of its time between epochs. `part_of_period` how much an end of an epoch more or less would
    change the rate, where the window holds too few to be cut to whole periods.
    """

    parts: Sequence[Part]
    warmup_left: int | None = None
    profile: WindowProfile | None = None
    period: float | None = None
    epoch_gaps: float = 0.0
    part_of_period: float = 0.0
    stall: LongestStall | None = None


def _counted(parts: Sequence[Part], pauses: Sequence[Pause], *, is_complete: bool) -> _Counted:
    """Leave the rest of the warm-up, and parts of periods of a rhythm, out of a complete window."""
    slowest = max(parts, key=_span_s)
    # Seconds an item, so that a smaller last batch is not a faster one.
    durations = slowest.durations()
    left = None if durations is None else settled_at(durations, slowest.step_order if slowest.items_each else None)
    if left and not slowest.is_alike(left):
        left = 0
    if left and is_complete:
        parts, slowest = [part.after(left) for part in parts], slowest.after(left)
    return replace(_in_whole_periods(parts, slowest, pauses, is_complete=is_complete), warmup_left=left)


def _in_whole_periods(parts: Sequence[Part], slowest: Part, pauses: Sequence[Pause], *, is_complete: bool) -> _Counted:
    """Leave parts of periods of a rhythm out of a complete window."""
    cycles = slowest.cycles(merged(pauses))
    standing = Stalls() if cycles is None else stalls(cycles.ns, cycles.items, epochs=cycles.epochs)
    profile = None if cycles is None else window_profile(cycles.ns, cycles.items, standing)
    rhythm = standing.rhythm
    stall = None
    if cycles is not None and standing.events:
        longest = max(standing.events, key=lambda event: event.excess)
        stall = LongestStall(step=slowest.step_at(cycles.begins_ns[longest.start]), seconds=longest.excess / 1e9)
    whole = rhythm.whole_periods() if rhythm is not None and is_complete else None
    if whole is not None and cycles is not None:
        span = TimeSpan(*(cycles.begins_ns[number] for number in whole))
        parts, slowest = [part for each in parts if len(part := each.within(span))], slowest.within(span)
    return _Counted(
        parts=parts,
        profile=profile,
        period=rhythm.period if rhythm and whole else None,
        stall=stall,
        epoch_gaps=_gaps_share(slowest, pauses),
        part_of_period=-math.log1p(-rhythm.share) if rhythm is not None and rhythm.is_short else 0.0,
    )


def _gaps_share(part: Part, pauses: Sequence[Pause]) -> float:
    """Return the share of a part's time that lies between epochs, without pauses."""
    gaps = part.epoch_gaps()
    if not gaps:
        return 0.0
    both = merged([*gaps, *pauses])  # what is in one of the two, less the pauses
    gaps_ns = sum(span.stop_ns - span.start_ns for span in both) - sum(s.stop_ns - s.start_ns for s in merged(pauses))
    return min(0.9, gaps_ns / 1e9 / _wall(part, pauses).seconds)


def _with_doubts(throughput: Throughput | None, *doubts: Doubt) -> Throughput | None:
    return None if throughput is None else replace(throughput, doubts=(*throughput.doubts, *doubts))


def _combined(parts: Sequence[Part], pauses: Sequence[Pause], basis: Basis) -> Throughput | None:
    """Return the throughput of ranks that worked on the same job: the items of all over the seconds of the slowest."""
    walls = [_wall(part, pauses) for part in parts]
    totals = [
        Totals(
            rank=part.series.rank,
            items=part.items(),
            seconds=wall.seconds,
            observations=len(part),
            steps=part.steps(),
            step_seconds=part.seconds() - wall.paused_within_s,
        )
        for part, wall in zip(parts, walls, strict=True)
    ]
    items = math.fsum(total.items for total in totals)
    if items <= 0 or max(total.seconds for total in totals) <= 0:  # all of it may be a pause
        return None
    index = max(range(len(totals)), key=lambda rank: totals[rank].seconds)
    slowest, part, wall = totals[index], parts[index], walls[index]
    step_s = max(total.step_seconds for total in totals)
    # Of one whose steps are nothing but pauses, only the time between them is left.
    own_s = slowest.step_seconds if slowest.step_seconds > 0 else slowest.seconds
    return Throughput(
        value=items / slowest.seconds,
        units=part.series.units,
        basis=basis,
        observations=sum(total.observations for total in totals),
        totals=tuple(totals),
        steps_rate=items / step_s if wall.is_placed and step_s > 0 else None,
        between_steps=wall.between_s / slowest.seconds if wall.is_placed else None,
        pauses={name: seconds / (slowest.seconds + wall.paused_s) for name, seconds in wall.by_pause.items()},
        spread_within=variation_of_blocks(part.rates(), slowest.items / own_s),
        latency=latency(part),
        warm_up_steps=part.steps_before(),
        all_steps=part.all_steps(),
        begin_ns=part.begin_ns(),
    )


@dataclass(frozen=True, slots=True)
class _Wall:
    """The seconds of a part on the host's clock: without pauses, between its steps, of all pauses, of those within steps."""

    seconds: float
    between_s: float = 0.0
    paused_s: float = 0.0
    paused_within_s: float = 0.0
    by_pause: Mapping[str, float] = field(default_factory=dict)
    is_placed: bool = True


def _wall(part: Part, pauses: Sequence[Pause]) -> _Wall:
    spans = part.spans()
    if spans is None:  # no place on the host's clock: nothing but the durations is known
        return _Wall(part.seconds(), is_placed=False)
    span_ns = sum(span.stop_ns - span.start_ns for span in spans)
    by_pause: dict[str, float] = {}
    for pause in pauses:
        overlap_ns = sum(common_ns(span, pause) for span in spans)
        if overlap_ns:
            by_pause[pause.name] = by_pause.get(pause.name, 0.0) + overlap_ns / 1e9
    apart = merged(pauses)
    paused_ns = sum(common_ns(span, paused) for span in spans for paused in apart)
    within_ns = sum(map(part.overlap_ns, apart))
    between_ns = span_ns - part.host_ns() - (paused_ns - within_ns)
    return _Wall((span_ns - paused_ns) / 1e9, max(0, between_ns) / 1e9, paused_ns / 1e9, within_ns / 1e9, by_pause)


def common_ns(span: TimeSpan, pause: Pause | TimeSpan) -> int:
    """Return the nanoseconds that two spans have in common."""
    return max(0, min(span.stop_ns, pause.stop_ns) - max(span.start_ns, pause.start_ns))


def merged(pauses: Iterable[Pause | TimeSpan]) -> list[TimeSpan]:
    """Return the times of pauses in order, none of which overlap: a pause inside another counts once."""
    apart: list[TimeSpan] = []
    for pause in sorted(pauses, key=lambda pause: pause.start_ns):
        if apart and pause.start_ns <= apart[-1].stop_ns:
            apart[-1] = TimeSpan(apart[-1].start_ns, max(apart[-1].stop_ns, pause.stop_ns))
        else:
            apart.append(TimeSpan(pause.start_ns, pause.stop_ns))
    return apart


def _is_complete(parts: Sequence[Part], window: Window | None, measure: Mapping[str, object]) -> bool:
    """Return whether the window is known to be complete, on each rank. A window of profile quick is a first look only."""
    if window is None or window.why != "complete" or measure.get("profile") == "quick":
        return False
    steps = finite_number(measure.get("window_steps", LEAST_STEPS))
    seconds = finite_number(measure.get("window_s", LEAST_S))
    if steps is None or seconds is None:
        return False
    lasted_s = (window.stop_ns - window.start_ns) / 1e9
    return min(part.steps() for part in parts) >= steps and lasted_s >= seconds


def _span_s(part: Part) -> float:
    spans = part.spans()
    return part.seconds() if spans is None else sum(span.stop_ns - span.start_ns for span in spans) / 1e9


def _clocks_apart(part: Part) -> float:
    """Return by which share the device's clock and the host's differ over the same time.

    A device still works on an epoch when the host has left it, so on its clock the gap between two may be part of a step.
    """
    seconds, spans = part.seconds(), part.spans()
    if spans is None:
        return 0.0
    wall_s, busy_s = sum(span.stop_ns - span.start_ns for span in spans) / 1e9, part.host_ns() / 1e9
    outside_s = max(busy_s - seconds, seconds - wall_s, 0.0)
    return outside_s / max(seconds, busy_s if seconds < busy_s else wall_s)
