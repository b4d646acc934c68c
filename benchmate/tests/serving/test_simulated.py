"""The server with known times keeps them: seen by a client that shares no code with it."""

from __future__ import annotations

import http.client
import json
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from simulated_server import SimulatedProcess
from undisturbed import undisturbed

TTFT_MS, ITL_MS = 200, 20
PROMPT = {"model": "m", "prompt": "one two three", "max_tokens": 6, "stream": True}


class Seen:
    """One streamed answer as a plain client saw it: seconds of each event since sending, and the events."""

    def __init__(self, port: int, body: dict[str, Any], path: str = "/v1/completions") -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.connect()
        sent = time.monotonic()
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        self.status = response.status
        self.times: list[float] = []
        self.events: list[Any] = []
        self.body = b""
        for line in response:
            self.body += line
            if line.startswith(b"data: {"):
                event = json.loads(line[6:])
                self.events.append(event)
                if event["choices"]:
                    self.times.append(time.monotonic() - sent)
        self.is_whole = self.body.rstrip().endswith(b"data: [DONE]")
        response.close()
        connection.close()


def at_once(port: int, number: int, body: dict[str, Any]) -> list[Seen]:
    """The answers to so many requests that are sent together."""
    seen: list[Seen] = []
    threads = [threading.Thread(target=lambda: seen.append(Seen(port, body))) for _ in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return seen


@pytest.mark.slow
def test_its_times_are_those_that_were_set(tmp_path: Path) -> None:
    times = f"--ttft-ms {TTFT_MS} --itl-ms {ITL_MS}"
    undisturbed(lambda attempt: times_are_those_that_were_set(tmp_path / str(attempt), times))


def times_are_those_that_were_set(folder: Path, times: str) -> None:
    with SimulatedProcess(folder, times) as server:
        seen = [Seen(server.port, PROMPT | {"max_tokens": 26}) for _ in range(5)]
        logged = server.requests(5)
    gaps = [after - before for each in seen for before, after in zip(each.times, each.times[1:], strict=False)]
    # The best of five: what a busy machine adds is not the server's doing.
    assert min(each.times[0] for each in seen) == pytest.approx(TTFT_MS / 1e3, rel=0.01)
    assert statistics.median(gaps) == pytest.approx(ITL_MS / 1e3, rel=0.01)
    # Without drift: the last token is where 25 exact gaps end.
    assert min(each.times[-1] for each in seen) == pytest.approx(0.7, rel=0.01)
    assert [(line["input_tokens"], line["output_tokens"], line["error"]) for line in logged] == [(3, 26, "")] * 5
    assert min(line["first"] for line in logged) == pytest.approx(TTFT_MS / 1e3, rel=0.01)
    assert min(line["end"] for line in logged) == pytest.approx(0.7, rel=0.01)
    assert all(len(line["gaps_us"]) == 25 for line in logged)


@pytest.mark.parametrize(
    ("path", "prompt"),
    [
        ("/v1/completions", {"prompt": [5, 6, 7]}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "one two three"}]}),
    ],
)
def test_a_stream_has_an_event_for_each_token_and_the_usage_last(
    tmp_path: Path, path: str, prompt: dict[str, Any]
) -> None:
    with SimulatedProcess(tmp_path, "--ttft-ms 1 --itl-ms 1") as server:
        seen = Seen(server.port, {"model": "m", "max_tokens": 4, "stream": True} | prompt, path)
        whole = Seen(server.port, {"model": "m", "max_tokens": 4} | prompt, path)
    finish = [event["choices"][0]["finish_reason"] for event in seen.events[:-1]]
    assert finish == [None, None, None, "length"]
    assert seen.events[-1]["usage"] == {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    assert seen.is_whole
    assert json.loads(whole.body)["usage"] == seen.events[-1]["usage"]


@pytest.mark.slow
def test_requests_beyond_the_slots_wait(tmp_path: Path) -> None:
    with SimulatedProcess(tmp_path, "--ttft-ms 600 --itl-ms 0 --slots 2") as server:
        at_once(server.port, 5, PROMPT | {"max_tokens": 1})
        waited = sorted(line["waited"] for line in server.requests(5))
    assert waited[1] < 0.1 < 0.3 < waited[2] <= waited[3] < 0.8 < waited[4]


@pytest.mark.slow
def test_nothing_is_sent_in_a_stall(tmp_path: Path) -> None:
    with SimulatedProcess(tmp_path, "--ttft-ms 100 --itl-ms 100 --stall-at 0.25 --stall-s 0.5") as server:
        seen = Seen(server.port, PROMPT | {"max_tokens": 4})
    gaps = [after - before for before, after in zip(seen.times, seen.times[1:], strict=False)]
    assert max(gaps[0], gaps[2]) < 0.4 < 0.5 < gaps[1]


def test_what_fails_fails_as_asked(tmp_path: Path) -> None:
    with SimulatedProcess(tmp_path, "--ttft-ms 1 --itl-ms 1 --error-every 2 --close-every 3 --context 12") as server:
        seen = [Seen(server.port, PROMPT) for _ in range(3)]
        long = Seen(server.port, PROMPT | {"max_tokens": 10})
        bad = [
            Seen(server.port, PROMPT | {"max_tokens": 0}),
            Seen(server.port, PROMPT | {"prompt": {}}),
            Seen(server.port, {"messages": "x"}, "/v1/chat/completions"),
            Seen(server.port, {}, "/nothing"),
        ]
        logged = [line["error"] for line in server.requests(7)]
    assert [each.status for each in seen] == [200, 500, 200]
    assert [each.is_whole for each in seen] == [True, False, False]
    assert len(seen[2].times) == 3
    assert long.status == 400
    assert b"maximum context length is 12 tokens" in long.body
    assert [each.status for each in bad] == [400, 400, 400, 404]
    assert logged[:3] == ["", "error on request", "closed early"]


def test_its_metrics_are_those_of_a_server(tmp_path: Path) -> None:
    with SimulatedProcess(tmp_path, "--ttft-ms 2000 --slots 1") as server:
        connections = [http.client.HTTPConnection("127.0.0.1", server.port) for _ in range(2)]
        for connection in connections:
            connection.request("POST", "/v1/completions", json.dumps(PROMPT))
        text = ""
        while 'waiting{model_name="simulated"} 1' not in text:
            asking = http.client.HTTPConnection("127.0.0.1", server.port)
            asking.request("GET", "/metrics")
            text = asking.getresponse().read().decode()
            asking.close()
        for connection in connections:
            connection.close()
    assert 'vllm:num_requests_running{model_name="simulated"} 1' in text
    assert 'vllm:kv_cache_usage_perc{model_name="simulated"} 1.0' in text


def test_a_port_in_use_is_one_line(tmp_path: Path) -> None:
    with SimulatedProcess(tmp_path) as server:
        command = [sys.executable, "-m", "benchmate.serving.simulated", "--port", str(server.port)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert f"127.0.0.1:{server.port}" in done.stderr
