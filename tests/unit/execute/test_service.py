"""When a server is ready by what it prints, also where its pattern searches for too long."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest

from milabench.execute.agent.event_loop import EventLoop, NamedTimers
from milabench.execute.agent.service import HEARD_CHARACTERS, PIECE_CHARACTERS, Service

ENDLESS = 35 * b"a" + b"b\n"


class Heard:
    """A service, and what it has said."""

    def __init__(self, pattern: str) -> None:
        self.ready = 0
        self.failures: list[str] = []
        spec = {"timeout_s": 1.0, "pattern": pattern}
        self.service = Service(spec, NamedTimers(EventLoop()), self.note_ready, self.failures.append)
        self.service.prepare(lambda text: text)

    def note_ready(self) -> None:
        self.ready += 1

    def scan(self, *pieces: bytes, pipe: str = "stdout") -> None:
        for piece in pieces:
            self.service.scan(pipe, piece)


def test_a_pattern_matches_across_pieces_of_output_once() -> None:
    heard = Heard("^now listening$")
    heard.scan(b"x\nnow lis", b"tening\n", b"now listening\n")
    assert (heard.ready, heard.failures) == (1, [])


@pytest.mark.parametrize("before", [0, HEARD_CHARACTERS, PIECE_CHARACTERS - 5, 3 * PIECE_CHARACTERS - 5])
def test_it_matches_wherever_it_is_in_a_long_piece(before: int) -> None:
    heard = Heard("now listening")
    heard.scan(before * b"." + b"now listening" + 200_000 * b".")
    assert heard.ready == 1


def test_the_output_of_one_pipe_is_not_that_of_the_other() -> None:
    heard = Heard("now listening")
    heard.scan(b"now ")
    heard.scan(b"listening", pipe="stderr")
    assert heard.ready == 0


@pytest.fixture
def in_short(monkeypatch: pytest.MonkeyPatch) -> Callable[[float, float], None]:
    def limit(search_s: float, searches_s: float) -> None:
        monkeypatch.setattr("milabench.execute.agent.service.SEARCH_S", search_s)
        monkeypatch.setattr("milabench.execute.agent.service.SEARCHES_S", searches_s)

    return limit


def test_a_search_without_end_is_given_up_and_nothing_is_searched_after_it(in_short: Callable[..., Any]) -> None:
    in_short(0.1, 10.0)
    heard = Heard("(a+)+$")
    heard.scan(b"1\n2\n", ENDLESS, ENDLESS, b"aa\n")
    assert heard.ready == 0
    assert heard.failures == ["the pattern '(a+)+$' took more than 0.1 s on the output up to line 4 of stdout"]
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)


def test_searches_of_some_time_each_have_a_limit_together(in_short: Callable[..., Any]) -> None:
    in_short(10.0, 0.2)
    heard = Heard("(a+)+$")
    while not heard.failures:
        heard.scan(18 * b"a" + b"b\n")
    (failure,) = heard.failures
    assert failure.startswith("the pattern '(a+)+$' took more than 0.2 s in all on the output up to line ")
