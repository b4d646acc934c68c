"""When a server is ready: by what it prints, also where its pattern searches for too long, and by what it answers to HTTP."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

from milabench.execute.agent.event_loop import EventLoop, NamedTimers
from milabench.execute.agent.service import HEARD_CHARACTERS, KNOCK_S, PIECE_CHARACTERS, Service

ENDLESS = 35 * b"a" + b"b\n"


class Heard:
    """A service, and what it has said."""

    def __init__(self, pattern: str) -> None:
        self.ready = 0
        self.failures: list[str] = []
        spec = {"timeout_s": 1.0, "pattern": pattern}
        loop = EventLoop()
        self.service = Service(spec, NamedTimers(loop), self.note_ready, self.failures.append)
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


class Answers:
    """A server that answers each connection with the next of its replies, in pieces; a service that asks it for /health."""

    def __init__(self, *replies: tuple[bytes, ...]) -> None:
        self._replies = replies
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.questions: list[bytes] = []
        self.is_ready = False
        self.loop = EventLoop()
        spec = {"timeout_s": 1.0, "port": str(self.port), "path": "/health", "hosts": ["127.0.0.1"]}
        self.service = Service(spec, NamedTimers(self.loop), self.note_ready, lambda _: None)
        self.service.prepare(lambda text: text)
        self._listener.listen()
        self._thread = threading.Thread(target=self._answer)
        self._thread.start()

    def note_ready(self) -> None:
        self.is_ready = True

    def _answer(self) -> None:
        for pieces in self._replies:
            connection, _ = self._listener.accept()
            with connection, contextlib.suppress(OSError):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.questions.append(connection.recv(1000))
                for piece in pieces:
                    connection.sendall(piece)
                    threading.Event().wait(0.02)

    def turn_until(self, is_enough: Callable[[], bool]) -> None:
        while not is_enough():
            self.loop.turn()

    def close(self) -> None:
        self.service.close()
        self._thread.join()
        self._listener.close()


@pytest.mark.parametrize(
    "before",
    [
        (),
        ((b"HTTP/1.1 503 Service Unavailable\r\n\r\nloading",),),
        ((b"",), (b"no HTTP\n",), (b"HTTP/1.1 404 Not Found\r\n\r\n",)),
    ],
    ids=["at once", "loading", "odd"],
)
def test_a_server_with_a_path_is_ready_when_it_answers_200(before: tuple[tuple[bytes, ...], ...]) -> None:
    server = Answers(*before, (b"HTTP/1.", b"1 200", b" OK\r\nContent-Length: 0\r\n\r\n"))
    server.service.wait()
    server.turn_until(lambda: server.is_ready)
    server.close()
    assert len(server.questions) == len(before) + 1
    assert server.questions[0].startswith(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1:")


def test_a_server_that_does_not_answer_200_is_not_ready_and_what_it_answers_is_said() -> None:
    server = Answers((b"HTTP/1.1 503 Service Unavailable\r\n\r\n",))
    server.service.wait()
    server.turn_until(lambda: "/health" in server.service.missing())
    server.close()
    assert server.service.missing() == f"port {server.port} answers /health with status 503, not 200"
    assert not server.is_ready


def test_a_server_that_ends_in_the_midst_of_an_answer_is_asked_no_more() -> None:
    server = Answers((b"HTTP/1.",))
    server.service.wait()
    server.service.close()
    rung: list[bool] = []
    server.loop.after(2 * KNOCK_S, lambda: rung.append(True))
    server.turn_until(lambda: bool(rung))
    server.close()
    assert (server.is_ready, len(server.questions)) == (False, 1)
