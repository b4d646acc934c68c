"""Sweeps over servers that answer otherwise than the simulated one: what is counted, what is refused, what ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from odd_server import DONE, OK, OddServer, Piece, event, usage
from sweeps import SweepRecords, sweep

from benchmate.serving.figures import point_figures
from benchmate.serving.load import RequestResult

POINT = "concurrency=1"
CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
WAIT = 0.05


def swept(*pieces: Piece, tokens: int = 4, requests: int = 1, head: bytes = OK, **config: Any) -> SweepRecords:
    """A sweep of one point over a server that answers with these pieces."""
    with OddServer([head, *pieces]) as server:
        serve = {"concurrency": [1], "requests": requests, "output_tokens": tokens}
        return sweep(server.url, serve, **config)


def figures(records: SweepRecords) -> dict[str, float]:
    fields = [{**each} for each in records.requests(POINT)]
    for each in fields:
        del each["point"]
        each |= {"gaps_us": tuple(each["gaps_us"]), "tokens": tuple(each.get("tokens", ()))}
    return point_figures([RequestResult(**each) for each in fields])


@pytest.mark.parametrize("length", [b"", b"Content-Length: 1000\r\n"], ids=["until it closes", "of a length"])
def test_a_stream_that_is_not_in_chunks_is_read_as_it_comes(length: bytes) -> None:
    answer: list[Piece] = [
        event(),
        WAIT,
        event(),
        WAIT,
        event(),
        WAIT,
        event(ends="length"),
        event(None, **usage(4)),
        DONE,
    ]
    size = sum(len(piece) for piece in answer if isinstance(piece, bytes))
    records = swept(*answer, head=OK.replace(b"\r\n\r\n", b"\r\n" + length.replace(b"1000", b"%d" % size) + b"\r\n"))
    (request,) = records.requests(POINT)
    assert (request["output_tokens"], request["error"], len(request["gaps_us"])) == (4, "", 3)
    assert request["end"] - request["first"] > WAIT
    assert records.points[POINT]["notes"] == []


@pytest.mark.parametrize(
    "last",
    [
        [event(ends="length", **usage(4))],
        [event(), event("", "length", **usage(4))],
        [event(), event("", "length"), event(None, **usage(4))],
    ],
    ids=["with the last token", "with the reason", "alone"],
)
def test_usage_at_the_end_does_not_gather_all_tokens_there(last: list[bytes]) -> None:
    records = swept(event(), WAIT, event(), 4 * WAIT, event(), WAIT, *last, DONE)
    (request,) = records.requests(POINT)
    assert (request["output_tokens"], len(request["gaps_us"]), request.get("tokens")) == (4, 3, None)
    assert figures(records)["itl_p99_ms"] > 1.2 * figures(records)["itl_p50_ms"]


def test_tokens_that_the_server_counts_in_each_event_are_placed_by_that() -> None:
    pieces = [event("", **usage(0)), event("a b ", **usage(2)), WAIT, event("", **usage(2)), event("c ", **usage(3))]
    records = swept(*pieces, event("d", "length", **usage(4)), event(None, **usage(4)), DONE)
    (request,) = records.requests(POINT)
    assert (request["tokens"], request["output_tokens"], len(request["gaps_us"])) == ([2, 1, 1], 4, 2)
    assert records.points[POINT]["notes"] == []
    # Two tokens came after the first arrival, which brought two.
    assert figures(records)["tpot_p50_ms"] == pytest.approx(1e3 * (request["end"] - request["first"]) / 2)


def test_of_several_tokens_an_event_there_is_no_itl_and_it_is_said() -> None:
    records = swept(event("a b "), WAIT, event("c d ", "length"), event(None, **usage(4)), DONE)
    (request,) = records.requests(POINT)
    assert (request["output_tokens"], "tokens" in request) == (4, False)
    (note,) = records.points[POINT]["notes"]
    assert note.startswith("chunks: 4 tokens came in 2 pieces")
    own = figures(records)
    assert "itl_p50_ms" not in own
    assert own["tpot_p50_ms"] == pytest.approx(1e3 * (request["end"] - request["first"]) / 2)


def test_an_answer_in_one_event_has_no_time_between_tokens() -> None:
    records = swept(event("a b c d", "length"), event(None, **usage(4)), DONE)
    assert records.points[POINT]["notes"] == ["chunks: 4 tokens came at once: no time between tokens is known"]
    assert not {name for name in figures(records) if name.startswith(("tpot", "itl"))}


def test_tokens_that_no_usage_counts_are_counted_in_the_text_and_it_is_said() -> None:
    records = swept(event("a b "), WAIT, event("c d ", "length"), DONE)
    (request,) = records.requests(POINT)
    assert (request["output_tokens"], request["error"]) == (4, "")
    notes = [note.partition(":")[0] for note in records.points[POINT]["notes"]]
    assert notes == ["chunks", "usage"]


def test_events_without_text_between_the_tokens_are_none() -> None:
    pairs = [event(), event("")] * 4
    records = swept(*pairs, event("", "length"), event(None, **usage(4)), DONE)
    (request,) = records.requests(POINT)
    assert (request["output_tokens"], len(request["gaps_us"])) == (4, 3)
    assert records.points[POINT]["notes"] == []


def test_all_tokens_that_were_asked_for_are_an_answer_whatever_ends_it() -> None:
    assert swept(*[event()] * 4).requests(POINT)[0]["error"] == ""
    assert swept(*[event()] * 3).requests(POINT)[0]["error"] == "the stream ended before the answer was complete"


def test_an_answer_with_an_error_has_no_more_tokens_than_were_asked_for() -> None:
    (request,) = swept(*[event()] * 6, b'data: {"error": {"message": "full"}}\n\n').requests(POINT)
    assert (request["output_tokens"], request["error"]) == (4, "full")


def data(text: bytes) -> list[bytes]:
    return [OK, event(), b"data: " + text + b"\n\n"]


@pytest.mark.parametrize(
    ("pieces", "error"),
    [
        (data(b"{oops"), "an event that is not JSON: {oops"),
        (data(b"[1, 2]"), "an event that is none of a completion: [1, 2]"),
        (data(b'{"choices": ["x"]}'), 'an event that is none of a completion: {"choices": ["x"]}'),
        (
            data(b'{"choices": [{"delta": "x"}]}'),
            'an event that is none of a completion: {"choices": [{"delta": "x"}]}',
        ),
        (data(b'{"choices": [{"text": 5}]}'), 'an event that is none of a completion: {"choices": [{"text": 5}]}'),
        (data(b'{"usage": "many"}'), 'an event that is none of a completion: {"usage": "many"}'),
        (data(b"null"), "the stream ended before the answer was complete"),
        (
            data(b'{"choices": [null], "usage": {"completion_tokens": null}}'),
            "the stream ended before the answer was complete",
        ),
        ([OK, event(**usage(-3))], "usage.completion_tokens is no number of tokens: -3"),
        ([OK, event(**usage("4"))], "usage.completion_tokens is no number of tokens: 4"),
        (
            [OK, event(**usage(10**30))],
            "usage.completion_tokens is 1000000000000000000000000000000: at most 6 are possible",
        ),
        (
            [OK, event(), event(ends="length", **usage(500_000_000)), DONE],
            "usage.completion_tokens is 500000000: at most 6 are possible",
        ),
        ([OK, event(**usage(7))], "usage.completion_tokens is 7: at most 6 are possible"),
        ([b"HTTP/1.0 500 No\r\n\r\n", b"[" * 20_000], "HTTP 500: " + "[" * 490),
        ([b"hello\r\n\r\n"], "the answer is not HTTP: hello"),
        ([b"HTTP/1.1 abc \x1b[31m\r\n\r\n"], "the answer is not HTTP: HTTP/1.1 abc \ufffd[31m"),
        (
            [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"],
            "the answer is not HTTP: a chunk of 'zz' bytes",
        ),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"], "the answer is not HTTP: content-length x"),
        ([b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"], "HTTP 204: No Content"),
        ([b"HTTP/1.0 307 T\r\nLocation: /v2\r\nContent-Length: 0\r\n\r\n"], "HTTP 307: it redirects to /v2"),
        (
            [b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"],
            "the answer is no stream of events: application/json",
        ),
    ],
)
def test_what_is_no_answer_is_the_error_of_its_request_alone(pieces: list[bytes], error: str) -> None:
    with OddServer(pieces) as server:
        records = sweep(server.url, {"concurrency": [1, 2], "requests": 2})
    assert [each["error"] for each in records.requests(POINT)] == [error] * 2
    assert [(point["state"], point["why"]) for point in records.points.values()] == [("failed", error)] * 2
    assert records.ran.stderr == "error: no point was measured\n"


@pytest.mark.parametrize(
    ("pieces", "endless", "error"),
    [
        ([b"HTTP/1.0 500 No\r\n\r\n"], b"x" * 65536, "HTTP 500: " + "x" * 490),
        ([CHUNKED, b"ffffffffff\r\n"], b"x" * 65536, "an event of more than 1 MiB"),
        ([OK], b": nothing\n" * 6000, "an answer of more than 1 MiB"),
        ([OK], event() * 500, "1073 events in an answer of 6 tokens"),
        ([], b"HTTP/1.1 100 Continue\r\n\r\n" * 50, "no answer after 100 interim ones"),
        ([CHUNKED, b"0\r\n"], b"a: b\r\n" * 50, "more than 100 lines after the last chunk of the answer"),
    ],
    ids=["error", "chunk", "comments", "tokens", "interim", "trailers"],
)
def test_an_answer_without_end_is_the_error_of_its_request(pieces: list[Piece], endless: bytes, error: str) -> None:
    with OddServer(pieces, [endless]) as server:
        records = sweep(server.url, {"concurrency": [1], "requests": 2}, max_duration=60)
    assert [each["error"] for each in records.requests(POINT)] == [error[:500]] * 2
    assert records.ran.stderr == "error: no point was measured\n"


def test_a_server_that_never_ends_an_answer_ends_with_the_time_of_the_point() -> None:
    with OddServer([OK, event(), 60.0]) as server:
        records = sweep(server.url, {"concurrency": [1, 2], "requests": 4}, max_duration=4)
    over = "requests were answered within 3.6 s (90 % of max_duration)"
    assert [(point["state"], point["why"]) for point in records.points.values()] == [("failed", f"0 of 4 {over}")] * 2
    (request,) = records.requests(POINT)
    assert request["error"].startswith("no end of the answer after 3.")
    assert (request["first"] is not None, len(records.requests("concurrency=2"))) == (True, 2)
    assert records.ran.code == 1
    assert "Traceback" not in records.ran.stderr


def test_a_connection_that_the_server_has_closed_is_no_error_of_the_next_request() -> None:
    # Nothing says that it closes: a request that follows at once may be sent into the end of the connection.
    body = event() + event(ends="length") + event(None, **usage(2)) + DONE
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n" % len(body)
    with OddServer([head + body]) as server:
        records = sweep(server.url, {"concurrency": [4], "requests": 40, "output_tokens": 2})
    assert {each["error"] for each in records.requests("concurrency=4")} == {""}


def test_turns_that_follow_a_failed_one_are_counted_as_not_sent(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    turns = [{"input": "a\u2028b", "output_tokens": 2}, {"input": "c", "output_tokens": 2}]
    trace.write_text(" \n" + json.dumps({"session": "s", "turns": turns}, ensure_ascii=False), encoding="utf-8-sig")
    with OddServer([b"HTTP/1.0 500 No\r\n\r\nbusy"]) as server:
        records = sweep(server.url, {"concurrency": [1], "requests": 2, "trace": str(trace)})
    errors = [each["error"] for each in records.requests(POINT)]
    assert errors == ["HTTP 500: busy", "not sent: an earlier turn of its session failed"]


def test_what_the_server_holds_open_after_its_last_token_is_not_the_clients_doing() -> None:
    tokens = [event(), event(), event(), event("", "length"), event(None, **usage(3))]
    records = swept(*tokens, 0.2, DONE, tokens=3, requests=4)
    assert records.points[POINT]["notes"] == []


def test_a_point_has_whole_rounds_of_its_concurrency() -> None:
    with OddServer([OK, event(), event(ends="length"), event(None, **usage(2)), DONE]) as server:
        records = sweep(server.url, {"concurrency": [1, 3], "requests": 4, "output_tokens": 2})
    assert [point["requests"] for point in records.points.values()] == [4, 6]
