"""The laws that every repeat must keep, whatever it measured: no moment and no item counts twice, and none is of a pause."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from milabench.analysis.series import Series
from milabench.analysis.throughput import Pause, common_ns, merged
from milabench.analysis.windows import Part, TimeSpan, Window, part_of

TOLERANCE = 0.002
"""Allowance of a window for clocks and the borders between steps."""


def broken_laws(
    ranks: Sequence[Series], window: Window | None, pauses: Sequence[Pause], ends_ns: Mapping[int, Sequence[int]]
) -> Iterable[str]:
    """Yield a sentence, with the two figures, for each law that a repeat breaks.

    `ends_ns` is when the window of a rank ended, in each of the processes that said so (monotonic).
    """
    for series in ranks:
        ends = ends_ns.get(series.rank, ())
        if len(ends) > 1:
            yield f"rank {series.rank}: steps of {len(ends)} processes, but a rank's steps come from 1"
        part = part_of(series, window)
        spans = part.spans()
        if spans is not None:
            own = merged(pause for pause in pauses if pause.rank in (None, series.rank))
            yield from _broken_by(part, spans, own)
            yield from _left_over(series.rank, spans, ends)


def _left_over(rank: int, spans: Sequence[TimeSpan], ends_ns: Sequence[int]) -> Iterable[str]:
    """Yield a sentence where steps, pauses and gaps do not add up to the whole window, which ends with a step."""
    seconds = (spans[-1].stop_ns - spans[0].start_ns) / 1e9
    left_s = (ends_ns[0] - spans[-1].stop_ns) / 1e9 if len(ends_ns) == 1 else 0.0
    if left_s > TOLERANCE * (seconds + left_s):
        yield f"rank {rank}: steps, pauses and the time between them are {seconds:.1f} s of a window of {seconds + left_s:.1f} s"


def _broken_by(part: Part, spans: Sequence[TimeSpan], pauses: Sequence[TimeSpan]) -> Iterable[str]:
    name = f"rank {part.series.rank}"
    window_ns = sum(span.stop_ns - span.start_ns for span in spans)
    most_ns = TOLERANCE * window_ns
    steps_ns = part.host_ns()
    paused_ns = sum(common_ns(span, pause) for span in spans for pause in pauses)
    paused_ns -= sum(map(part.overlap_ns, pauses))
    if steps_ns + paused_ns > window_ns + most_ns:
        yield f"{name}: steps and pauses of {(steps_ns + paused_ns) / 1e9:.1f} s in a window of {window_ns / 1e9:.1f} s"
    elif (twice_ns := part.overlapped_ns()) > most_ns:
        yield f"{name}: {twice_ns / 1e9:.1f} s of a window of {window_ns / 1e9:.1f} s are in two steps at once"
    within = sum(part.items_inside(pause) for pause in pauses)
    if within > TOLERANCE * part.items():
        yield f"{name}: {within:.0f} of {part.items():.0f} items are of steps in a declared pause"
