"""A second, independent count of a repeat: the batches and samples of torch's loaders, and the steps of its optimizers.

It is independent of the voirfile, and so shows whether the voirfile observes the program's real work.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any, NamedTuple

from benchmate.loop_observer import Observer
from benchmate.patching import Patch, apply_when_imported, optimizer_step_hook
from benchmate.ring import PARTS, WARM_UP, WINDOW_START, WINDOW_STOP
from benchmate.session import Session

METRIC, ITEMS_METRIC = "audit", "audit_items"
AGREE, EDGES = 0.01, 2
"""Allowed difference of two counts of a window: this share, and this number of steps, for both its borders."""


class Count(NamedTuple):
    """The work in a window: steps, and the items in them (None: not known)."""

    what: str
    steps: int
    items: float | None


class Audit:
    """Counts a program's work with torch, independently of the observers of its session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._batches: list[tuple[int, int | None]] = []
        """When each batch was fetched with gradients on, outside of pauses, and its samples."""
        self._steps: list[int] = []
        loaders = "torch.utils.data.dataloader._BaseDataLoaderIter"
        apply_when_imported(Patch(f"{loaders}._next_index", self._seeing_indices))
        apply_when_imported(Patch(f"{loaders}.__next__", self._seeing_batches))
        apply_when_imported(optimizer_step_hook(lambda *_: self._steps.append(perf_counter_ns())))

    def _seeing_indices(self, next_index: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def replacement(iterator: Any) -> Any:
            indices = next_index(iterator)
            size = len(indices) if isinstance(indices, (list, tuple)) else None
            vars(iterator).setdefault("_audited_sizes", deque()).append(size)
            return indices

        return replacement

    def _seeing_batches(self, fetch: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def replacement(iterator: Any) -> Any:
            batch = fetch(iterator)
            sizes = vars(iterator).get("_audited_sizes")
            size = sizes.popleft() if sizes else None
            if sys.modules["torch"].is_grad_enabled() and not self._session.paused_ns:
                self._batches.append((perf_counter_ns(), size))
            return batch

        return replacement

    def report(self) -> None:
        """Print, and record as a metric, each observer's count in its window, and the independent count."""
        for observer in self._session.observers.values():
            start_ns, stop_ns = (observer.ring.words[word] for word in (WINDOW_START, WINDOW_STOP))
            if observer.task == "validation" or not 0 < start_ns < stop_ns:
                continue
            ours = observed_count(observer, start_ns, stop_ns)
            sizes = [size for at_ns, size in self._batches if start_ns < at_ns <= stop_ns]
            samples = None if None in sizes else float(sum(size for size in sizes if size is not None))
            steps = sum(start_ns < at_ns <= stop_ns for at_ns in self._steps)
            theirs = [Count("loaders", len(sizes), samples), Count("optimizers", steps, None)]
            lines = [f"{count.what}: {count.steps} steps, {_items(count.items)}" for count in (ours, *theirs)]
            ratios = [ratio for count in theirs if (ratio := ratio_of(ours, count)) is not None]
            best = min(ratios, key=lambda ratio: abs(ratio - 1), default=None)
            word = "nothing to compare with" if best is None else "they agree" if best == 1 else f"{best:.3f} of them"
            each = items_ratio(ours, theirs[0])
            word += "" if each in (None, 1) else f", {each:.3f} items for each of the loaders"
            print(
                f"audit of {observer.task}, {(stop_ns - start_ns) / 1e9:.2f} s: {'; '.join(lines)}: {word}",
                file=sys.stderr,
            )
            if best is not None:
                self._session.metric(METRIC, best, direction="none", part=observer.task)
            if each is not None:
                self._session.metric(ITEMS_METRIC, each, direction="none", part=observer.task)


def observed_count(observer: Observer, start_ns: int, stop_ns: int) -> Count:
    """Return an observer's count in its window."""
    ring = observer.ring
    entries = map(ring.entry, range(max(0, ring.head - ring.capacity), ring.head))
    inside = [
        entry
        for entry in entries
        if not entry.flags & (PARTS | WARM_UP) and start_ns < entry.t0_ns + entry.host_ns <= stop_ns
    ]
    return Count("observed", sum(entry.steps for entry in inside), float(sum(entry.items for entry in inside)))


def ratio_of(ours: Count, theirs: Count) -> float | None:
    """Return our steps over theirs, 1 where both agree. None where they have none."""
    if not theirs.steps:
        return None
    allowed = EDGES + AGREE * theirs.steps
    return 1.0 if abs(ours.steps - theirs.steps) <= allowed else ours.steps / theirs.steps


def items_ratio(ours: Count, theirs: Count) -> float | None:
    """Return our items over theirs, 1 where both agree. None where either is not known."""
    if not theirs.steps or not theirs.items or ours.items is None:
        return None
    allowed = theirs.items * (EDGES / theirs.steps + AGREE)
    return 1.0 if abs(ours.items - theirs.items) <= allowed else ours.items / theirs.items


def _items(items: float | None) -> str:
    return "items unknown" if items is None else f"{items:g} items"
