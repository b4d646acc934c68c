"""A sweep against the simulated server: what is recorded is what the server did, by its own log."""

from __future__ import annotations

import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from agent import Agent
from child_process import started
from simulated_server import SimulatedProcess
from sweeps import SERVE, SweepRecords, sweep
from undisturbed import undisturbed

import benchmate
from benchmate.serving.server_watch import get
from benchmate.serving.sweep import plan_sweep


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def test_the_name_of_a_point_is_exact() -> None:
    loads = {"concurrency": [1, 1_000_000], "rate": [2, 2.5, 1.0000001, 1.0000002, 1_234_567.0, 0.001]}
    plan = plan_sweep({"serve": SERVE | loads}, "http://x", ())
    assert [point.name for point in plan.points] == [
        *("concurrency=1", "concurrency=1000000", "rate=2", "rate=2.5"),
        *("rate=1.0000001", "rate=1.0000002", "rate=1234567", "rate=0.001"),
    ]


@pytest.mark.slow
def test_the_records_are_what_the_server_did(tmp_path: Path) -> None:
    undisturbed(lambda attempt: times_are_the_servers(*known_sweep(tmp_path / str(attempt))))
    swept, truth = known_sweep(tmp_path / "records")
    assert swept.ran.code == 0, swept.ran.stderr
    assert len(truth) == 16
    about = {"client": "plain", "version": benchmate.__version__, "seed": 3, "slo": {"ttft_p90_ms": 500}}
    assert swept.about == about | {"endpoint": "completions", "model": "m", "url": swept.about["url"]}
    assert list(swept.points) == ["concurrency=2", "rate=20"]
    in_hand = [(each["case"], each["progress"]) for each in swept.records if "progress" in each]
    assert in_hand == [("concurrency=2", [1, 2]), ("rate=20", [2, 2])]
    for name in swept.points:
        requests = swept.requests(name)
        assert [each["index"] for each in requests] == list(range(8))
        assert {(each["input_tokens"], each["output_tokens"], each["error"]) for each in requests} == {(8, 6, "")}
        assert all(len(each["gaps_us"]) == 5 for each in requests)
    closed, opened = swept.points.values()
    assert (closed["concurrency"], closed["state"], closed["requests"], closed["why"]) == (2, "measured", 8, "")
    assert (opened["rate"], opened["arrivals"], opened["state"]) == (20, "poisson", "measured")
    assert closed["start"] < closed["stop"] <= opened["start"] < opened["stop"]
    assert all("due" not in each for each in swept.requests("concurrency=2"))
    dues = [each["due"] for each in swept.requests("rate=20")]
    assert (dues[-1] - dues[0]) / 7 == pytest.approx(1 / 20)


def known_sweep(folder: Path) -> tuple[SweepRecords, list[dict[str, Any]]]:
    """Return a sweep over two points of eight requests, and the server's log of them."""
    with SimulatedProcess(folder, "--ttft-ms 100 --itl-ms 10") as server:
        swept = sweep(server.url, {"concurrency": [2], "rate": [20], "slo": {"ttft_p90_ms": 500}, "seed": 3})
        return swept, server.requests(16)


def times_are_the_servers(swept: SweepRecords, truth: list[dict[str, Any]]) -> None:
    for number, name in enumerate(swept.points):
        requests, logged = swept.requests(name), truth[8 * number : 8 * number + 8]
        for key in ("first", "end"):
            own, server_own = ([each[key] for each in found] for found in (requests, logged))
            assert min(own) == pytest.approx(min(server_own), abs=0.01)
        gaps, server_gaps = ([gap for each in found for gap in each["gaps_us"]] for found in (requests, logged))
        assert statistics.median(gaps) == pytest.approx(statistics.median(server_gaps), abs=1000)
        assert min(each["at"] for each in requests) == pytest.approx(logged[0]["received"], abs=0.05)


def test_the_last_round_of_a_closed_loop_is_full_and_a_short_point_of_a_rate_is_noted(tmp_path: Path) -> None:
    with SimulatedProcess(tmp_path, "--ttft-ms 20 --itl-ms 20") as server:
        swept = sweep(server.url, {"concurrency": [3], "rate": [20], "requests": 8, "arrivals": "constant"})
    closed, opened = swept.points.values()
    assert closed["requests"] == 9
    assert opened["requests"] == 8
    assert [note.partition(": ")[0] for note in opened["notes"] if not note.startswith("client-bound")] == ["tail"]


def test_a_chat_is_streamed_and_counted_like_a_completion(tmp_path: Path) -> None:
    with SimulatedProcess(tmp_path, "--ttft-ms 1 --itl-ms 1") as server:
        swept = sweep(server.url, {"concurrency": [4], "endpoint": "chat", "request_options": {"ignore_eos": None}})
    assert [(each["input_tokens"], each["output_tokens"]) for each in swept.requests("concurrency=4")] == [(8, 6)] * 8


@pytest.mark.slow
def test_a_stall_is_seen_by_each_request_that_is_due_in_it_in_an_open_loop_alone(tmp_path: Path) -> None:
    undisturbed(lambda attempt: a_stall_is_seen(tmp_path / str(attempt)))


def a_stall_is_seen(folder: Path) -> None:
    stall = "--ttft-ms 20 --itl-ms 0 --stall-at 0.2 --stall-s 2"
    waits = {}
    for number, (name, load) in enumerate({"rate=20": {"rate": [20]}, "concurrency=4": {"concurrency": [4]}}.items()):
        with SimulatedProcess(folder / str(number), stall) as server:
            serve = {**load, "requests": 80, "arrivals": "constant", "output_tokens": 1}
            requests = sweep(server.url, serve).requests(name)
        waits[name] = sorted(each["first"] for each in requests if each["first"] > 0.2)
    assert len(waits["concurrency=4"]) == 4
    assert len(waits["rate=20"]) == pytest.approx((2 - 0.2) * 20, abs=4)
    # They were sent when they were due: what waited is spread evenly up to the length of the stall.
    assert statistics.median(waits["rate=20"]) == pytest.approx(1.1, abs=0.15)


def test_a_server_that_ends_fails_its_point_and_skips_the_rest(tmp_path: Path) -> None:
    with SimulatedProcess(tmp_path, "--ttft-ms 1 --itl-ms 1 --exit-after 12") as server:
        swept = sweep(server.url, {"concurrency": [1, 2, 4], "rate": [5]})
    states = {name: (point["state"], point["why"]) for name, point in swept.points.items()}
    assert states == {
        "concurrency=1": ("measured", ""),
        "concurrency=2": ("failed", "the server ended"),
        "concurrency=4": ("skipped", "the server ended at an earlier point"),
        "rate=5": ("skipped", "the server ended at an earlier point"),
    }
    assert swept.ran.code == 1
    assert swept.ran.stderr == "error: the server ended\n"
    assert [each["error"] for each in swept.requests("concurrency=2")][:2] == ["", ""]


@pytest.mark.slow
def test_a_server_that_is_started_again_is_waited_for(tmp_path: Path) -> None:
    port = free_port()
    served = [sys.executable, "-m", "benchmate.serving.simulated", "--port", str(port), "--exit-after", "12"]
    command = [sys.executable, "-m", "benchmate.serving.restarting", "--", *served, "--ttft-ms", "1", "--itl-ms", "1"]
    with started(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as restarting:
        assert restarting.stdout is not None
        restarting.stdout.readline()
        serve = {"concurrency": [1, 2, 4], "on_server_exit": "restart"}
        swept = sweep(f"http://127.0.0.1:{port}", serve, ready={"path": "/health", "timeout_s": 60})
        restarting.terminate()
        _, stderr = restarting.communicate(timeout=60)
    assert [point["state"] for point in swept.points.values()] == ["measured", "failed", "measured"]
    assert swept.ran.code == 0
    assert "exit code 3. It is started again" in stderr
    assert restarting.returncode == 128 + signal.SIGTERM
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_requests_beyond_the_context_fail_their_points_in_the_words_of_the_server(tmp_path: Path) -> None:
    for warmup in (0, 2):
        with SimulatedProcess(tmp_path / str(warmup), "--ttft-ms 1 --itl-ms 1 --context 12") as server:
            swept = sweep(server.url, {"concurrency": [1, 2], "warmup": warmup})
        for point in swept.points.values():
            assert point["state"] == "failed"
            assert "maximum context length is 12 tokens" in point["why"]
        assert swept.ran.code == 1
        assert swept.ran.stderr == "error: no point was measured\n"


def test_requests_that_fail_are_recorded_and_noted(tmp_path: Path) -> None:
    with SimulatedProcess(tmp_path, "--ttft-ms 1 --itl-ms 1 --error-every 4 --close-every 3") as server:
        swept = sweep(server.url, {"concurrency": [1]})
    refused, closed = "HTTP 500: error on request", "the server closed the connection before the end of the answer"
    errors = [each["error"] for each in swept.requests("concurrency=1")]
    assert errors == ["", "", closed, refused, "", closed, "", refused]
    # So few answers of a few milliseconds may also have a tail.
    notes = [note for note in swept.points["concurrency=1"]["notes"] if not note.startswith("tail: ")]
    assert notes == [f"errors: 4 of 8 requests: {closed}"]
    assert swept.ran.code == 0


def test_a_warm_up_is_sent_and_not_counted(tmp_path: Path) -> None:
    with SimulatedProcess(tmp_path, "--ttft-ms 1 --itl-ms 1") as server:
        swept = sweep(server.url, {"concurrency": [1, 4], "warmup": 2})
        assert len(server.requests(22)) == 2 + 8 + 4 + 8
    assert [point["warmup"] for point in swept.points.values()] == [2, 4]
    assert [len(swept.requests(name)) for name in swept.points] == [8, 8]


@pytest.mark.slow
def test_the_metrics_of_the_server_are_averaged_over_a_point(tmp_path: Path) -> None:
    with SimulatedProcess(tmp_path, "--ttft-ms 500 --itl-ms 400 --slots 2") as server:
        swept = sweep(server.url, {"concurrency": [3], "requests": 3})
    assert swept.readings("concurrency=3")["running"] == pytest.approx(1.5, abs=0.5)
    assert swept.readings("concurrency=3")["kv_cache"] == pytest.approx(0.75, abs=0.25)
    assert 0 < swept.readings("concurrency=3")["waiting"] < 1


@pytest.mark.parametrize("why", ["interrupted by SIGTERM", "the server ended"])
def test_a_signal_fails_the_point_in_hand_and_skips_the_rest(tmp_path: Path, why: str) -> None:
    with SimulatedProcess(tmp_path, "--ttft-ms 60000") as server, Agent() as agent:
        config = tmp_path / "config.json"
        config.write_text(json.dumps({"serve": SERVE | {"concurrency": [2, 4]}}))
        env = {**os.environ, "MILABENCH_SINK": f"unix:{agent.path}", "MILABENCH_BENCH_CONFIG": str(config)}
        command = [sys.executable, "-m", "benchmate.serving", "--url", server.url]
        with started(command, env=env, stderr=subprocess.PIPE) as process:
            while 'running{model_name="simulated"} 2' not in get(server.url, "/metrics")[1]:
                time.sleep(0.02)
            process.send_signal(signal.SIGSTOP)
            if why == "the server ended":
                server.process.kill()
                server.process.wait()
            process.terminate()
            process.send_signal(signal.SIGCONT)
            _, stderr = process.communicate(timeout=60)
        agent.close()
        points = [record["point"] for record in agent.records() if "point" in record]
    assert process.returncode == 128 + signal.SIGTERM
    assert stderr == f"error: {why}\n"
    skipped = f"{why} at an earlier point" if why == "the server ended" else why
    assert [(point["state"], point["why"]) for point in points] == [("failed", why), ("skipped", skipped)]


@pytest.mark.parametrize(
    ("serve", "line"),
    [
        ({}, "serve: no points. Give concurrency, rate or scenario"),
        ({"concurrency": [1], "client": "wrk"}, "unknown client 'wrk'. Known: vllm, aiperf, loadgen, plain"),
        ({"concurrency": [1], "tokenizer": "/nowhere"}, "/nowhere/tokenizer.json: no such file. "),
        ({"concurrency": [1], "trace": "/nowhere.jsonl"}, "/nowhere.jsonl: No such file or directory"),
    ],
)
def test_a_sweep_that_cannot_be_is_one_line(serve: dict[str, Any], line: str) -> None:
    swept = sweep("http://127.0.0.1:1", serve)
    assert swept.ran.code == 2
    assert swept.ran.stderr.startswith(f"error: {line}")
    assert swept.ran.stderr.count("\n") == 1
    assert swept.points == {}


@pytest.mark.slow
def test_turns_of_a_session_follow_one_another_and_hold_what_was_said(tmp_path: Path) -> None:
    turns = [{"input": "one two", "output_tokens": 3}, {"input": "three", "output_tokens": 2, "delay_ms": 300}]
    trace = tmp_path / "trace.jsonl"
    trace.write_text("".join(json.dumps({"session": name, "turns": turns}) + "\n" for name in "ab"))
    for endpoint in ("chat", "completions"):
        with SimulatedProcess(tmp_path / endpoint, "--ttft-ms 1 --itl-ms 1") as server:
            swept = sweep(server.url, {"concurrency": [1], "requests": 4, "trace": str(trace), "endpoint": endpoint})
            logged = server.requests(4)
        # The second turn has the first, its answer of three words (one word where nothing parts them), and its own word.
        assert [(each["input_tokens"], each["output_tokens"]) for each in logged][:2] == [
            (2, 3),
            (6 if endpoint == "chat" else 5, 2),
        ]
        first, second = swept.requests("concurrency=1")[:2]
        assert 0.3 <= second["at"] - (first["at"] + first["end"]) < 1
        assert len(swept.requests("concurrency=1")) == 4


@pytest.mark.slow
def test_a_server_that_is_not_started_again_in_time_is_given_up(tmp_path: Path) -> None:
    with SimulatedProcess(tmp_path, "--ttft-ms 1 --itl-ms 1 --exit-after 2") as server:
        serve = {"concurrency": [1, 2, 4], "on_server_exit": "restart"}
        swept = sweep(server.url, serve, ready={"timeout_s": 0.5})
    late = "the server did not answer again within 0.5 s"
    assert [(point["state"], point["why"]) for point in swept.points.values()] == [
        ("failed", "the server ended"),
        ("failed", late),
        ("skipped", late),
    ]
    assert (swept.ran.code, swept.ran.stderr) == (1, f"error: {late}\n")
