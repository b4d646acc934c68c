"""Figures and notes of a point, against numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmate.serving.figures import mean_in_flight, point_figures, point_notes
from benchmate.serving.load import LoadPoint, PlannedRequest, RequestResult, Workload

GOOD = RequestResult(
    index=0, at=100.0, first=0.2, end=0.5, gaps_us=(100_000, 200_000), output_tokens=3, input_tokens=10
)
CLOSED = LoadPoint(name="c", concurrency=1)
OPEN = LoadPoint(name="r", rate=10.0)


def planned(number: int, tokens: int = 3) -> list[PlannedRequest]:
    return [PlannedRequest(text="", input_tokens=10, output_tokens=tokens)] * number


def notes(point: LoadPoint, requests: list[RequestResult], **client: float) -> list[str]:
    workload = Workload(sessions=tuple((request,) for request in planned(len(requests))))
    return point_notes(point, workload, requests, client)


def test_the_figures_of_a_point() -> None:
    second = replace(GOOD, index=1, at=100.5, first=0.4, end=0.5, gaps_us=(50_000, 50_000))
    failed = replace(GOOD, index=2, at=50.0, error="no")
    figures = point_figures([GOOD, second, failed])
    assert figures["ttft_p50_ms"] == pytest.approx(300)
    assert figures["ttft_p90_ms"] == pytest.approx(380)
    assert figures["tpot_p50_ms"] == pytest.approx(100)  # of 150 and 50
    assert figures["itl_p50_ms"] == pytest.approx(75)  # of 50, 50, 100, 200
    assert figures["e2e_p99_ms"] == pytest.approx(500)
    assert (figures["output_tps"], figures["total_tps"], figures["request_rate"]) == pytest.approx((6, 26, 2))
    assert point_figures([failed]) == {}


def test_a_gap_after_which_several_tokens_came_is_as_many_gaps() -> None:
    several = replace(GOOD, gaps_us=(100_000, 200_000, 60_000), tokens=(1, 2, 0, 1), output_tokens=4)
    assert point_figures([several])["itl_p50_ms"] == pytest.approx(50)  # of 50, 50, 260
    assert point_figures([several])["itl_p99_ms"] == pytest.approx(50 + 0.98 * 210)


def test_a_client_that_keeps_the_load_has_no_note() -> None:
    closed = [replace(GOOD, index=index, at=100 + 0.505 * index) for index in range(9)]
    opened = [replace(GOOD, index=index, at=100.001 + index / 10, due=100 + index / 10) for index in range(9)]
    assert mean_in_flight(closed) == pytest.approx(0.99, abs=0.001)
    assert notes(CLOSED, closed) == []
    assert notes(OPEN, opened) == []


def test_what_a_user_waits_between_turns_is_no_fault_of_the_client() -> None:
    slow = [replace(GOOD, index=index, at=100 + 0.6 * index) for index in range(9)]
    assert point_notes(CLOSED, Workload(sessions=(tuple(planned(9)),)), slow, {}) == []


def test_a_client_that_does_not_keep_the_load_is_the_bound() -> None:
    slow = [replace(GOOD, index=index, at=100 + 0.6 * index) for index in range(9)]
    assert notes(CLOSED, slow) == ["client-bound: 0.833 requests were in flight, of 1"]
    late = [replace(GOOD, index=index, at=100.006 + index / 10, due=100 + index / 10) for index in range(9)]
    assert notes(OPEN, late) == ["client-bound: requests were sent 6 ms late (median)"]
    # More than half are in time, but each of the last ones is later.
    behind = [
        replace(GOOD, index=index, at=100 + index / 10 + 0.04 * max(0, index - 5), due=100 + index / 10)
        for index in range(9)
    ]
    assert notes(OPEN, behind) == ["client-bound: 8.696 requests/s were sent, of 10"]


def test_a_server_that_holds_its_answers_open_is_not_a_slow_client() -> None:
    held = [replace(GOOD, index=index, at=100 + index, done=0.995) for index in range(9)]
    assert notes(CLOSED, held) == []
    assert notes(CLOSED, [replace(each, done=None) for each in held]) == [
        "client-bound: 0.5 requests were in flight, of 1"
    ]


def test_of_random_arrivals_that_nobody_knows_only_a_rate_far_below_is_noted() -> None:
    near = [replace(GOOD, index=index, at=100 + index / 8) for index in range(17)]
    far = [replace(GOOD, index=index, at=100 + index / 5) for index in range(17)]
    assert notes(OPEN, near) == []
    assert notes(OPEN, far)[0].startswith("client-bound: 5 requests/s were sent")


def test_what_is_wrong_with_requests_is_noted() -> None:
    requests = [
        GOOD,
        replace(GOOD, index=1, at=100.5, error="refused"),
        replace(GOOD, index=2, at=101, gaps_us=(300_000,), output_tokens=2),
    ]
    assert notes(CLOSED, requests) == [
        "errors: 1 of 3 requests: refused",
        "output: 1 of 3 answers have another length than asked: 2 tokens for 3",
    ]


def test_figures_of_the_client_that_are_not_those_of_its_requests_are_noted() -> None:
    assert notes(CLOSED, [GOOD], ttft_p50_ms=201.9, output_tps=99) == []
    assert notes(CLOSED, [GOOD], ttft_p50_ms=203.0) == ["client differs: ttft_p50_ms 203, from its requests 200"]
