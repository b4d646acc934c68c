"""The laws that every launch must keep, whatever it measured: no moment and no item counts twice, and none is of a pause."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from milabench.analysis.series import Series
from milabench.analysis.throughput import Pause, merged
from milabench.analysis.windows import Part, TimeSpan, Window, part_of

TOLERANCE = 0.002
"""Of a window: what clocks and the borders between steps may take."""


def broken_laws(
    ranks: Sequence[Series], window: Window | None, pauses: Sequence[Pause], processes: Mapping[int, int]
) -> Iterable[str]:
    """Yield a sentence, with the two figures, for each law that a launch breaks.

    `processes` is in how many processes the steps of each rank were observed, as far as they said so.
    """
    for series in ranks:
        if (count := processes.get(series.rank, 1)) > 1:
            yield f"rank {series.rank}: steps of {count} processes; those of a rank come from 1"
        part = part_of(series, window)
        spans = part.spans()
        if spans is not None:
            own = merged(pause for pause in pauses if pause.rank in (None, series.rank))
            yield from _broken_by(part, spans, own)


def _broken_by(part: Part, spans: Sequence[TimeSpan], pauses: Sequence[TimeSpan]) -> Iterable[str]:
    name = f"rank {part.series.rank}"
    window_ns = sum(span.stop_ns - span.start_ns for span in spans)
    most_ns = TOLERANCE * window_ns
    steps_ns = part.host_ns()
    paused_ns = sum(
        max(0, min(span.stop_ns, pause.stop_ns) - max(span.start_ns, pause.start_ns))
        for span in spans
        for pause in pauses
    )
    paused_ns -= sum(map(part.overlap_ns, pauses))
    if steps_ns + paused_ns > window_ns + most_ns:
        yield f"{name}: steps and pauses of {(steps_ns + paused_ns) / 1e9:.1f} s in a window of {window_ns / 1e9:.1f} s"
    elif (twice_ns := part.overlapped_ns()) > most_ns:
        yield f"{name}: {twice_ns / 1e9:.1f} s of a window of {window_ns / 1e9:.1f} s are in two steps at once"
    within = sum(part.items_inside(pause) for pause in pauses)
    if within > TOLERANCE * part.items():
        yield f"{name}: {within:.0f} of {part.items():.0f} items are of steps in a declared pause"
