"""Readings of servers' own metrics, in the form in which each of them has them."""

from __future__ import annotations

import http.client
import time

import pytest
from odd_server import OddServer

from benchmate.serving import server_watch
from benchmate.serving.server_watch import ServerWatch, get, parse_metrics, says_refused, wait_until_ready

VLLM = """# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a b"} 3.0
vllm:num_requests_running{engine="1",model_name="a b"} 2.0
vllm:num_requests_waiting{engine="0"} 1.0
vllm:kv_cache_usage_perc{engine="0"} 2.5e-01
vllm:kv_cache_usage_perc{engine="1"} 0.75
vllm:request_success_total{finished_reason="stop"} 9
"""
SGLANG = (
    'sglang:num_running_reqs{name="x"} 4.0\nsglang:num_queue_reqs{name="x"} 0.0\nsglang:token_usage{name="x"} 0.1\n'
)
TGI = "tgi_batch_current_size 7\ntgi_queue_size 2\n"
LLAMA = "llamacpp:requests_processing 1\nllamacpp:requests_deferred 0\nllamacpp:kv_cache_usage_ratio 0.5\n"


@pytest.mark.parametrize(
    ("text", "readings"),
    [
        (VLLM, {"running": 5, "waiting": 1, "kv_cache": 0.5}),
        (SGLANG, {"running": 4, "waiting": 0, "kv_cache": 0.1}),
        (TGI, {"running": 7, "waiting": 2}),
        (LLAMA, {"running": 1, "waiting": 0, "kv_cache": 0.5}),
        ("vllm:num_requests_running " + "9" * 400, {}),
        ("<html>no metrics</html>\nvllm:num_requests_running NaN\n", {}),
    ],
)
def test_readings_of_a_server(text: str, readings: dict[str, float]) -> None:
    assert parse_metrics(text) == pytest.approx(readings)


def test_an_error_of_any_client_says_that_nothing_listened() -> None:
    assert says_refused("Connection refused")
    assert says_refused("aiohttp.ClientConnectorError: Cannot connect to host 127.0.0.1:1 ssl:default")
    assert not says_refused("HTTP 500: error on request")


def test_metrics_without_end_are_not_read(capfd: pytest.CaptureFixture[str]) -> None:
    with OddServer([b"HTTP/1.0 200 OK\r\n\r\n"], [b"vllm:num_requests_running 1\n" * 3000], is_read=True) as server:
        with pytest.raises(ValueError, match="/metrics: an answer of more than 4 MiB"):
            get(server.url, "/metrics")
        with ServerWatch(server.url) as watch:
            while "more than 4 MiB" not in capfd.readouterr().err:
                time.sleep(0.01)
    assert (watch.readings, watch.is_gone) == ([], False)


@pytest.mark.parametrize("head", [b"HTTP/1.0 200 OK\r\n", b"HTTP/1.0 200 OK\r\n\r\n"], ids=["head", "body"])
def test_an_answer_that_drips_is_given_up_in_time(head: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_watch, "ANSWER_S", 0.2)
    with OddServer([head], [b"a", 0.02], is_read=True) as server:
        with pytest.raises((OSError, http.client.HTTPException)):
            get(server.url, "/metrics")
        assert not wait_until_ready(server.url, "/health", 0.1)


def test_an_answer_that_only_announces_itself_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_watch, "ANSWER_S", 0.2)
    with (
        OddServer([], [b"HTTP/1.1 100 Continue\r\n\r\n" * 1000], is_read=True) as server,
        # Python 3.14 counts them.
        pytest.raises(
            (TimeoutError, http.client.HTTPException),
            match=r"no whole answer within 0\.2 s|more than 100 interim responses",
        ),
    ):
        get(server.url, "/metrics")
