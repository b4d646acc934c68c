"""Replays a run's events in the order in which they were received, for any sink."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import repeat
from operator import itemgetter

from milabench.analysis.host_load import CLOCKS_DIFFER_S
from milabench.events.attempts import Attempt, attempts
from milabench.events.model import End, Event, Start
from milabench.events.rundir import Run

LOST = ("lost-node", "time-limit", "preempted", "node-failed", "job-cancelled", "job-failed", "job-lost")
"""Of these ends the agent cannot tell."""


def replay(run: Run) -> Iterator[tuple[int, Event]]:
    """Return all events of all attempts at all steps of a run with the attempt's number, merged by when the agent received them.

    Holds an event, and an open file, per step. Within a step the order is as on disk, also where a clock jumped
    back. Records without a time (milabench 1.3) keep their place after the previous record. Those of a node whose clock
    was not ours are placed on ours.
    """
    tried = attempts(run.journal)
    return merge_events(_tried(run, step, tried.get(step) or [Attempt(step=step, number=1)]) for step in run.files)


def _tried(run: Run, step: str, tried: Iterable[Attempt]) -> Iterator[tuple[int, Event]]:
    for attempt in tried:
        yield from zip(repeat(attempt.number), on_our_clock(run.events(step, attempt.number), attempt.began))


def on_our_clock(events: Iterable[Event], began: float | None) -> Iterator[Event]:
    """Yield the events of an attempt with their times on the clock by which it `began`, the journal's.

    The agent stamps records by its node's clock, from `start` on, which comes when the journal says that the step began. The
    end of a step whose agent was lost is stamped by us.
    """
    ahead_s = 0.0
    for event in events:
        if isinstance(event, Start) and event.t is not None and began is not None:
            ahead_s = event.t - began
            if abs(ahead_s) < CLOCKS_DIFFER_S:
                ahead_s = 0.0
        elif isinstance(event, End) and event.return_code is None and event.why in LOST:
            ahead_s = 0.0
        yield replace(event, t=event.t - ahead_s) if ahead_s and event.t is not None else event


def merge_events(streams: Iterable[Iterable[tuple[int, Event]]]) -> Iterator[tuple[int, Event]]:
    """Yield several steps' events as a single stream. See `replay`."""
    for _, tried in heapq.merge(*map(_timed, streams), key=itemgetter(0)):
        yield tried


def _timed(stream: Iterable[tuple[int, Event]]) -> Iterator[tuple[float, tuple[int, Event]]]:
    latest = 0.0
    for attempt, event in stream:
        if event.t is not None:
            latest = max(latest, event.t)
        yield latest, (attempt, event)
