"""Replays a run's events in the order in which they were received, for any sink."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from itertools import repeat
from operator import itemgetter

from milabench.events.attempts import attempts
from milabench.events.model import Event
from milabench.events.rundir import Run


def replay(run: Run) -> Iterator[tuple[int, Event]]:
    """Return all events of all attempts at all steps of a run with the attempt's number, merged by when the agent received them.

    Holds one event, and one open file, per step. Within a step the order is the one on disk, also where a clock jumped
    back; records without a time (milabench 1.3) keep their place beside the record before them.
    """
    attempts_of = attempts(run.journal)
    numbers_of = {step: [attempt.number for attempt in attempts_of.get(step, ())] or [1] for step in run.files}
    return merge_events(_tried(run, step, numbers) for step, numbers in numbers_of.items())


def _tried(run: Run, step: str, numbers: Iterable[int]) -> Iterator[tuple[int, Event]]:
    for number in numbers:
        yield from zip(repeat(number), run.events(step, number))


def merge_events(streams: Iterable[Iterable[tuple[int, Event]]]) -> Iterator[tuple[int, Event]]:
    """Yield several steps' events as one stream; see `replay`."""
    timed = (_timed(number, stream) for number, stream in enumerate(streams))
    for *_, tried in heapq.merge(*timed, key=itemgetter(0, 1)):
        yield tried


def _timed(number: int, stream: Iterable[tuple[int, Event]]) -> Iterator[tuple[float, int, tuple[int, Event]]]:
    latest = 0.0
    for attempt, event in stream:
        if event.t is not None:
            latest = max(latest, event.t)
        yield latest, number, (attempt, event)
