from __future__ import annotations

from milabench.events.fanout import Fanout


def test_a_sink_that_fails_is_dropped_said_once_and_the_others_go_on() -> None:
    seen: list[int] = []
    said: list[str] = []
    calls: list[int] = []

    def broken(thing: int) -> None:
        calls.append(thing)
        raise OSError("disk full")

    emit = Fanout({"display": broken, "records": seen.append}, said.append)
    for number in range(3):
        emit(number)
    assert (seen, calls) == ([0, 1, 2], [0])
    assert said == ["display: dropped, the run goes on: OSError: disk full"]


def test_a_warning_that_cannot_be_said_does_not_end_the_run() -> None:
    def broken(thing: object) -> None:
        raise OSError("gone")

    Fanout({"display": broken}, broken)(1)
