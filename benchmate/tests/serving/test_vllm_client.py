"""What vLLM's client reports becomes records of requests; its result is given here as it writes it."""

from __future__ import annotations

from typing import Any

import pytest

from benchmate.serving.clients import ClientFailed
from benchmate.serving.clients.vllm import CLIENT, opens_with_frame, own_figures, request_results
from benchmate.serving.load import LoadPoint, PlannedRequest, RequestResult, Target, Workload

RESULT: dict[str, Any] = {
    "start_times": [10.0, 10.26, 10.5, 10.8],
    "ttfts": [0.2, 0.3, 0.1, 0.0],
    "itls": [[0.05, 0.06], [0.1, 0.001], [0.05], []],
    "output_lens": [3, 3, 0, 0],
    "input_lens": [7, 8, 9, 9],
    "errors": [
        "",
        "",
        "Traceback (most recent call last):\n  File x\naiohttp.ClientPayloadError: Not enough data\n\n",
        "",
    ],
    "p90_ttft_ms": 290.0,
    "median_ttft_ms": 250.0,
    "p99_itl_ms": 0.0,
    "output_throughput": 7.5,
}


def test_requests_are_those_of_the_result() -> None:
    answered, _, broken, empty = request_results(RESULT, 1000.0)
    assert answered == RequestResult(
        index=0, at=1010.0, first=0.2, end=0.31, gaps_us=(50_000, 60_000), output_tokens=3, input_tokens=7
    )
    assert broken == RequestResult(
        index=2,
        at=1010.5,
        first=0.1,
        end=0.1 + 0.05,
        gaps_us=(50_000,),
        output_tokens=2,
        input_tokens=9,
        error="aiohttp.ClientPayloadError: Not enough data",
    )
    assert empty == RequestResult(index=3, at=1010.8, input_tokens=9, error="the answer has no tokens")


def test_an_event_that_opens_a_message_is_no_token() -> None:
    framed = RESULT | {"itls": [[0.05, 0.06, 0.07], [0.1], [0.05], []]}
    assert not opens_with_frame(RESULT)
    assert opens_with_frame(framed)
    first, second, *_ = request_results(framed, 0.0, has_frames=True)
    assert (first.first, first.gaps_us, first.end) == (0.25, (60_000, 70_000), pytest.approx(0.38))
    # This one's three tokens came in one arrival: the frame goes there, too.
    assert (second.first, second.gaps_us, second.output_tokens) == (pytest.approx(0.4), (), 3)
    assert own_figures(framed, has_frames=True) == {"output_tps": 7.5}


def test_requests_are_due_from_the_earliest_beginning_on() -> None:
    dues = [request.due for request in request_results(RESULT, 0.0, [0.25, 0.5, 0.75, 1.0])]
    assert dues == pytest.approx([10.0, 10.25, 10.5, 10.75])


def test_a_figure_of_nothing_is_none() -> None:
    assert own_figures(RESULT) == {"ttft_p50_ms": 250.0, "ttft_p90_ms": 290.0, "output_tps": 7.5}


@pytest.mark.parametrize(
    ("turns", "changed", "message"),
    [
        (2, {}, "cannot replay sessions of several turns"),
        (1, {"scenario": "offline"}, "no scenario 'offline'"),
        (1, {}, "needs a tokenizer"),
    ],
)
def test_what_it_cannot_do_is_one_line(turns: int, changed: dict[str, Any], message: str, tmp_path: Any) -> None:
    session = (PlannedRequest(text="a", input_tokens=1, output_tokens=1),) * turns
    with pytest.raises(ClientFailed, match=message):
        CLIENT.measure(
            Target(url="", model=""), LoadPoint(name="p", **changed), Workload(sessions=(session,)), tmp_path
        )
