from __future__ import annotations

from milabench.events.model import End, Event, Message, Start
from milabench.following.recorded_events import merge_events, on_our_clock


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


def test_what_a_node_stamped_by_another_clock_is_placed_on_that_of_the_journal() -> None:
    for ahead in (3600.0, -3600.0):
        events = [
            Message(step="a", t=None, text="of us"),
            Start(step="a", t=100.2 + ahead, data={}),
            Message(step="a", t=101.0 + ahead, text="1"),
        ]
        assert [event.t and round(event.t, 6) for event in on_our_clock(events, 100.2)] == [None, 100.2, 101.0]


def test_the_end_of_a_step_whose_agent_was_lost_is_ours_already() -> None:
    end = End(step="a", t=105.0, return_code=None, outcome="failed", why="lost-node", detail="")
    events = [Start(step="a", t=3700.0, data={}), end]
    assert [event.t for event in on_our_clock(events, 100.0)] == [100.0, 105.0]


def test_what_was_stamped_by_our_clock_stays_as_it_is() -> None:
    events: list[Event] = [Start(step="a", t=100.0, data={}), Message(step="a", t=99.0, text="it jumped back")]
    for began in (100.9, None):
        assert list(on_our_clock(events, began)) == events
