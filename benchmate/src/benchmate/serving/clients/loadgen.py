"""MLCommons' loadgen as the client: its scenarios Offline, Server and SingleStream, over our own streaming requests.

It runs in a process of its own, which can be ended while loadgen's own code waits: `python -m benchmate.serving.clients.loadgen
FOLDER` reads its job there and writes its results next to loadgen's logs.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import math
import pickle
import re
import sys
import threading
from array import array
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmate.serving.clients import Client, ClientFailed, installed_version, run_client
from benchmate.serving.clients.plain import StreamingClient
from benchmate.serving.load import (
    FIRST_REQUEST,
    LoadPoint,
    PlannedRequest,
    PointResult,
    RequestResult,
    Target,
    Workload,
)
from benchmate.serving.precise_loop import run_precisely

SCENARIOS: Mapping[str, str] = {"offline": "Offline", "single_stream": "SingleStream"}
THROUGHPUTS = ("Completed tokens per second", "Tokens per second", "TPS w/o loadgen overhead")
"""The scenarios' names for output tokens per second."""
LATENCIES: Mapping[str, str] = {
    "TTFT": "first token latency",
    "TPOT": "time to output token",
    "whole request": "latency",
}
_NO_LIMIT_NS = 10**15
_CLOSE = 0.01


def _measure(target: Target, point: LoadPoint, workload: Workload, folder: Path) -> PointResult:
    """Run a scenario of loadgen over the workload. `target.arguments` are NAME=VALUE of its settings. Raises ClientFailed."""
    scenario = scenario_of(point)
    if workload.has_turns:
        raise ClientFailed("loadgen has no sessions of several turns")
    job = (scenario, settings(point, target.arguments), target, point.deadline, workload.requests)
    (folder / "job").write_bytes(pickle.dumps(job))
    output = folder / "output.txt"
    ended = run_client([sys.executable, "-m", "benchmate.serving.clients.loadgen", str(folder)], output)
    if ended.code:
        print(ended.tail, file=sys.stderr)
        raise ClientFailed(f"loadgen: {ended.how}: {(ended.tail.strip().splitlines() or ['no output'])[-1]}")
    try:
        results = pickle.loads((folder / "results").read_bytes())
        summary = (folder / "mlperf_log_summary.txt").read_text(encoding="utf-8")
        trace = (folder / "mlperf_log_trace.json").read_text(encoding="utf-8") if scenario == "Server" else ""
    except (OSError, EOFError, ValueError, pickle.UnpicklingError) as error:
        raise ClientFailed(f"loadgen's results cannot be read: {error}") from None
    requests = with_due_times(results, trace)
    notes, figures = list(invalid_notes(summary)), {}
    # loadgen knows no request that failed: with one, its figures are not ours.
    if not any(request.error for request in requests):
        notes += differences(summary, requests)
        figures = dict(zip(("output_tps",), _numbers(summary, THROUGHPUTS), strict=False))
    if scenario != "Server":
        requests = [dataclasses.replace(request, due=None) for request in requests]
    return PointResult(requests=tuple(requests), client=figures, notes=tuple(notes))


CLIENT = Client(version=partial(installed_version, "mlcommons-loadgen"), measure=_measure)


def scenario_of(point: LoadPoint) -> str:
    """Return the scenario of a point. Raises ClientFailed where loadgen has none like it."""
    if point.rate is not None:
        if point.arrivals != "poisson":
            raise ClientFailed("loadgen's arrivals follow a Poisson process. Set serve.arrivals to poisson")
        return "Server"
    if point.concurrency == 1:
        return "SingleStream"
    if point.scenario not in SCENARIOS:
        raise ClientFailed(
            f"loadgen has no {point.name}: give it a rate, concurrency 1 or a scenario ({', '.join(SCENARIOS)})"
        )
    return SCENARIOS[point.scenario]


def settings(point: LoadPoint, arguments: Sequence[str]) -> dict[str, object]:
    """Return loadgen's settings by name, with `arguments` last. Raises ClientFailed.

    No limit of its own: the report decides on the SLO. No minimum duration: the workload has its number of requests.
    """
    chosen: dict[str, object] = {
        "use_token_latencies": True,
        "min_duration_ms": 0,
        "server_target_qps": point.rate or 1.0,
        "server_target_latency_ns": _NO_LIMIT_NS,
        "ttft_latency": _NO_LIMIT_NS,
        "tpot_latency": _NO_LIMIT_NS,
        **dict.fromkeys(("qsl_rng_seed", "sample_index_rng_seed", "schedule_rng_seed"), point.seed),
    }
    for argument in arguments:
        name, _, text = argument.partition("=")
        try:
            chosen[name] = json.loads(text)
        except ValueError:
            raise ClientFailed(
                f"client.argv of loadgen: expected NAME=NUMBER of its settings, got {argument!r}"
            ) from None
    return chosen


def with_due_times(requests: Sequence[RequestResult], trace: str) -> list[RequestResult]:
    """Return the requests, due not when loadgen issued them but when its schedule had them, by a trace of Server."""
    late_ns = {
        int(sequence): int(late)
        for sequence, late in re.findall(
            r'"name":"Sample",[^\n]*"ph":"b",[^\n]*"sample_seq":(\d+),[^\n]*"issue_start_ns":(\d+)', trace
        )
    }
    return [
        dataclasses.replace(request, due=request.due - late_ns.get(request.index, 0) / 1e9)
        for request in requests
        if request.due is not None
    ]


def invalid_notes(summary: str) -> Iterator[str]:
    """Yield why loadgen calls the result invalid by MLPerf's rules, if it does."""
    if "Result is : VALID" not in summary:
        unmet = re.findall(r"^\s*(\S[^:\n]*?)\s*:\s*NO\s*$", summary, re.IGNORECASE | re.MULTILINE)
        reasons = ", ".join(f"{text.lower()}: no" for text in unmet) or "no reason given"
        yield f"loadgen: the result is INVALID by MLPerf's rules ({reasons})"


def differences(summary: str, requests: Sequence[RequestResult]) -> Iterator[str]:
    """Yield where loadgen's own latencies are more than 1 % from the requests' latencies, by its kind of quantile."""
    for label, name in LATENCIES.items():
        ours = sorted(_latencies(label, requests))
        for percent in (50, 90):
            theirs = next(_numbers(summary, [f"{percent}.00 percentile {name} (ns)"]), math.nan) / 1e6
            mine = ours[len(ours) * percent // 100] if ours else math.nan
            if abs(theirs / mine - 1) > _CLOSE:
                yield f"client differs: {label} p{percent} is {theirs:.2f} ms by loadgen, {mine:.2f} ms by the requests' records"


def _latencies(label: str, requests: Sequence[RequestResult]) -> Iterator[float]:
    """Yield latencies by loadgen's definition, in ms: from when a request was due, or issued where there is no schedule."""
    for request in requests:
        if request.first is None or request.end is None:
            continue
        late = 0.0 if request.due is None else request.at - request.due
        if label == "TTFT":
            yield (late + request.first) * 1e3
        elif label != "TPOT":
            yield (late + request.end) * 1e3
        elif request.output_tokens > 1:
            yield (request.end - request.first) / (request.output_tokens - 1) * 1e3


def _numbers(summary: str, names: Sequence[str]) -> Iterator[float]:
    for name in names:
        for text in re.findall(rf"^{re.escape(name)}\s*:\s*([\d.]+)\s*$", summary, re.MULTILINE)[:1]:
            yield float(text)


class SystemUnderTest:
    """Sends loadgen's queries, in a separate event loop, and reports first tokens and ends to it.

    The k-th query is the k-th request of the workload, whichever sample loadgen draws: all clients send the same.
    """

    def __init__(self, loadgen: Any, target: Target, requests: Sequence[PlannedRequest], deadline: float) -> None:
        self._loadgen, self._target, self._requests, self._deadline = loadgen, target, requests, deadline
        self._ids: list[int] = []
        self._waiting_for_first: set[int] = set()
        self._text = array("B", b"token")
        self.results: list[RequestResult] = []
        self._is_ready = threading.Event()
        self._thread = threading.Thread(target=lambda: run_precisely(self._serve()))
        self._thread.start()
        self._is_ready.wait()

    def issue(self, samples: Sequence[Any]) -> None:
        """Take queries from loadgen, on its thread."""
        for sample in samples:
            self._loop.call_soon_threadsafe(self._start, sample.id, self._loop.time())

    def close(self) -> None:
        """End the loop. Every request has been answered by then."""
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()

    async def _serve(self) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        self._client = StreamingClient(self._target, self._first, self._deadline)
        self._tasks: set[asyncio.Task[None]] = set()
        # The first request pays for imports and a connection; whether it fails is for those that count to say.
        await self._client.run_session((FIRST_REQUEST,), -1)
        self._is_ready.set()
        await self._ended.wait()
        await self._client.aclose()

    def _start(self, sample: int, issued: float) -> None:
        index = len(self._ids)
        self._ids.append(sample)
        self._waiting_for_first.add(index)
        task = asyncio.ensure_future(self._send(index, issued))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, index: int, issued: float) -> None:
        request = self._requests[index % len(self._requests)]
        (result,) = await self._client.run_session((request,), index, due=issued)
        self.results.append(result)
        self._first(index)
        # loadgen divides by the tokens after the first.
        self._loadgen.QuerySamplesComplete([self._response(index, max(2, result.output_tokens))])

    def _first(self, index: int) -> None:
        if index in self._waiting_for_first:
            self._waiting_for_first.remove(index)
            self._loadgen.FirstTokenComplete([self._response(index, 1)])

    def _response(self, index: int, tokens: int) -> Any:
        address, size = self._text.buffer_info()
        return self._loadgen.QuerySampleResponse(self._ids[index], address, size, tokens)


def run(folder: Path) -> None:
    """Run loadgen on the job in a folder. Raises ClientFailed."""
    import mlperf_loadgen

    scenario, chosen, target, deadline, requests = pickle.loads((folder / "job").read_bytes())
    wanted = mlperf_loadgen.TestSettings()
    wanted.scenario = getattr(mlperf_loadgen.TestScenario, scenario)
    wanted.mode = mlperf_loadgen.TestMode.PerformanceOnly
    wanted.min_query_count = len(requests)
    for name, value in chosen.items():
        if not hasattr(wanted, name):
            raise ClientFailed(f"client.argv: loadgen has no setting {name!r}")
        try:
            setattr(wanted, name, value)
        except TypeError:
            raise ClientFailed(f"client.argv: {name}={value!r} is of the wrong type") from None
    logs = mlperf_loadgen.LogSettings()
    logs.log_output.outdir = str(folder)
    logs.log_output.copy_summary_to_stdout = False
    logs.enable_trace = scenario == "Server"  # it says when each query was due
    system = SystemUnderTest(mlperf_loadgen, target, requests, deadline)
    sut = mlperf_loadgen.ConstructSUT(system.issue, lambda: None)
    library = mlperf_loadgen.ConstructQSL(len(requests), len(requests), lambda _: None, lambda _: None)
    mlperf_loadgen.StartTestWithLogSettings(sut, library, wanted, logs, "")
    mlperf_loadgen.DestroyQSL(library)
    mlperf_loadgen.DestroySUT(sut)
    system.close()
    results = sorted(system.results, key=lambda result: result.index)
    (folder / "results").write_bytes(pickle.dumps(results))


if __name__ == "__main__":
    try:
        run(Path(sys.argv[1]))
    except ClientFailed as error:
        sys.exit(str(error))
