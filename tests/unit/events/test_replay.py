from __future__ import annotations

from milabench.events.model import Event, Message
from milabench.events.replay import merge_events


def said(step: str, *times: float | None) -> list[tuple[int, Event]]:
    return [(1, Message(step=step, t=t, text=str(number))) for number, t in enumerate(times)]


def test_events_of_several_steps_come_in_the_order_of_their_times() -> None:
    a, b = said("a", 1.0, 4.0), said("b", 2.0, 3.0)
    assert list(merge_events([a, b])) == [a[0], b[0], b[1], a[1]]


def test_a_clock_that_jumps_back_does_not_reorder_a_step() -> None:
    a, b = said("a", 5.0, 1.0, 6.0), said("b", 2.0)
    assert list(merge_events([a, b])) == [b[0], *a]


def test_records_without_a_time_stay_in_their_place() -> None:
    a, b = said("a", None, None, None), said("b", None)
    assert list(merge_events([a, b])) == [*a, *b]
