"""A timing audit as text: the reading of each method, the limit of the call, and differences above the noise."""

from __future__ import annotations

from collections.abc import Iterable

from milabench.analysis.intervals import Interval
from milabench.report.text_table import text_table
from milabench.timing_audit.analysis import BatchResult, CellResult, FactorEffect, TimingAudit

_COLUMNS = (
    "#batch | #warmup | sync | #call ms | #[95 %] | #event ms | #[95 %]"
    " | #mean ms | #first ms | #settles | #unread | #n"
)
_SPARE = ("settles", "first ms", "unread", "[95 %]", "mean ms")
LEGEND = (
    "call: median over processes of the median of their calls (sync=end: the window by its calls, without the first call)",
    "mean: the average that a script prints over all its calls, including the first, so n decides how much the first call counts",
    "unread: share of the calls whose end event the device had not reached when the host could have read it. A script that",
    "  reads at once fails there (not ready), and only there: record all, wait once at the end, then read",
)


def render(audit: TimingAudit, width: int | None = None) -> str:
    """Return the audit as text, its table fitted to a terminal's width."""
    lines = [f"timing audit of {audit.model or 'a model'} on {audit.device or 'no device'}", ""]
    if audit.cells:
        rows = [_row(cell) for cell in audit.cells]
        lines += [*text_table(_COLUMNS, rows, _SPARE, width), ""]
    if audit.absent:
        lines += [f"no event column: {audit.absent}", ""]
    for batch in audit.batches:
        lines += _batch_lines(batch)
    lines += _doubts(audit)
    lines += ["", *LEGEND] if audit.cells else []
    return "\n".join(lines).rstrip() + "\n"


def _row(cell: CellResult) -> list[str]:
    unread = "" if cell.unfinished is None else f"{cell.unfinished:.0%}"
    return [
        *(str(cell.key.batch), str(cell.key.warmup), cell.key.sync),
        *(_ms(cell.wall), _span(cell.wall_interval), _ms(cell.event), _span(cell.event_interval)),
        *(_ms(cell.mean), _ms(cell.first_call), str(cell.settled_at), unread, str(len(cell.processes))),
    ]


def _batch_lines(batch: BatchResult) -> Iterable[str]:
    yield f"batch {batch.batch}: {_bound_text(batch)}"
    floor = "unknown below three processes" if batch.floor is None else f"{batch.floor:.1%}, from a cell against itself"
    yield f"  noise floor: {floor}"
    for effect in batch.effects:
        yield f"  {effect.name}: {_effect_text(effect)}"
    yield ""


def _bound_text(batch: BatchResult) -> str:
    if batch.enqueue is None or batch.device is None:
        return "its limit is not known (needs a device, and sync=each among the cells)"
    return (
        f"{batch.bound}: the host needs {_ms(batch.enqueue)} ms to ask for a call, the device {_ms(batch.device)} ms from "
        "its first kernel to its last"
    )


def _effect_text(effect: FactorEffect) -> str:
    change = f"{effect.ratio - 1:+.1%}"
    if effect.interval is not None:
        change += f" [{effect.interval[0] - 1:+.1%}, {effect.interval[1] - 1:+.1%}]"
    if effect.standing == "one process":
        return f"{change}, below the noise: a single process does not predict the next"
    return f"{change}, {effect.standing}"


def _doubts(audit: TimingAudit) -> Iterable[str]:
    for cell in audit.cells:
        too_long = sum(process.too_long for process in cell.processes)
        if too_long:
            yield f"suspect: {cell.key}: {too_long} calls whose event lasted longer than the wall around it"
        if not all(process.window_agrees for process in cell.processes):
            yield f"suspect: {cell.key}: its events add up to more than the window around them"
    for error in audit.errors:
        yield f"not measured: {error}"


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:.4g}"


def _span(interval: Interval | None) -> str:
    return "" if interval is None else f"{interval[0] * 1e3:.4g}..{interval[1] * 1e3:.4g}"
