"""Readings of servers' own metrics, in the form in which each of them has them."""

from __future__ import annotations

import pytest

from benchmate.serving.server_watch import parse_metrics, says_refused

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
        ("<html>no metrics</html>\nvllm:num_requests_running NaN\n", {}),
    ],
)
def test_readings_of_a_server(text: str, readings: dict[str, float]) -> None:
    assert parse_metrics(text) == pytest.approx(readings)


def test_an_error_of_any_client_says_that_nothing_listened() -> None:
    assert says_refused("Connection refused")
    assert says_refused("aiohttp.ClientConnectorError: Cannot connect to host 127.0.0.1:1 ssl:default")
    assert not says_refused("HTTP 500: error on request")
