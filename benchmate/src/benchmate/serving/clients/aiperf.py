"""NVIDIA's aiperf as the client: a run of its own command for a point, read back from its records of each request."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmate.serving.clients import Client, ClientFailed, installed_version, run_client
from benchmate.serving.clients.plain import arrival_times
from benchmate.serving.load import (
    CLIENT_PERCENTILES,
    FIRST_REQUEST,
    LoadPoint,
    PlannedRequest,
    PointResult,
    RequestResult,
    Target,
    Workload,
)

FIGURES: Mapping[str, str] = {
    "ttft": "time_to_first_token",
    "tpot": "inter_token_latency",
    "itl": "inter_chunk_latency",
    "e2e": "request_latency",
}
"""METRICS' names without quantile -> aiperf's. Its inter-token latency is a single number for each request, which is TPOT."""
WARMUP_REQUESTS = 8
WARMUP_S = 3.0
WORDS_TOKENIZER: Mapping[str, Mapping[str, object]] = {
    "tokenizer.json": {
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "model": {"type": "WordLevel", "vocab": {"?": 0}, "unk_token": "?"},
    },
    "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "?"},
}
"""A tokenizer of words for a server without a tokenizer: aiperf does not start without a folder that it can load."""
_BOX = "│╭╮╰╯─ "


def _measure(target: Target, point: LoadPoint, workload: Workload, folder: Path) -> PointResult:
    """Run aiperf over the workload. Raises ClientFailed."""
    if point.scenario:
        raise ClientFailed(f"aiperf has no scenario {point.scenario!r}. Give it a concurrency or a rate")
    if workload.has_turns and target.endpoint != "chat":
        raise ClientFailed(
            "aiperf sends sessions of several turns to the endpoint chat only. Set serve.endpoint to chat"
        )
    folder = folder.resolve()
    inputs = folder / "inputs.jsonl"
    inputs.write_text("".join(json.dumps(line) + "\n" for line in input_lines(point, workload)), encoding="utf-8")
    tokenizer = Path(target.tokenizer).resolve()
    if target.tokenizer == "words":
        tokenizer = folder / "tokenizer"
        tokenizer.mkdir()
        for name, content in WORDS_TOKENIZER.items():
            (tokenizer / name).write_text(json.dumps(content), encoding="utf-8")
    output = folder / "output.txt"
    # Offline, transformers takes an absolute folder for the name of a repository. What aiperf leaves in its temporary
    # folder goes with it; that has a short path, since sockets are made in it.
    env = {name: value for name, value in os.environ.items() if name not in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")}
    with tempfile.TemporaryDirectory(prefix="aiperf-") as scratch:
        ended = run_client(arguments(target, point, workload, inputs, tokenizer), output, env | {"TMPDIR": scratch})
    if ended.code:
        print(ended.tail, file=sys.stderr)
        raise ClientFailed(f"aiperf: {ended.how}: {last_words(output)}")
    try:
        lines = (folder / "profile_export.jsonl").read_text(encoding="utf-8").splitlines()
        summary = json.loads((folder / "profile_export_aiperf.json").read_text(encoding="utf-8"))
        records = [json.loads(line) for line in lines]
    except (OSError, ValueError) as error:
        raise ClientFailed(f"aiperf's results cannot be read: {error}") from None
    return point_result(records, summary, point, workload)


CLIENT = Client(version=partial(installed_version, "aiperf"), measure=_measure)


def arguments(target: Target, point: LoadPoint, workload: Workload, inputs: Path, tokenizer: Path) -> list[str]:
    """Return aiperf's command line.

    Without the server's own count of tokens aiperf tokenizes the answer again, and where that is not one token per token of the
    server its inter-token latency and its throughput are wrong by that factor. An open loop replays the arrivals that `plain`
    has, so that it is known when each request was due. Aiperf's own rate does not say.
    """
    load: list[object]
    if point.concurrency is None:
        load = ["--fixed-schedule"]
    else:
        warm = point.concurrency
        load = [
            *("--concurrency", warm, "--warmup-request-count", warm),
            *("--conversation-num", len(workload.sessions)),
        ]
    return [
        *(sys.executable, "-m", "aiperf", "profile", "--model", target.model, "--url", target.url),
        *("--endpoint-type", target.endpoint, "--streaming", "--use-server-token-count", "--tokenizer", str(tokenizer)),
        *("--input-file", str(inputs), "--custom-dataset-type", "multi_turn"),
        *("--dataset-sampling-strategy", "sequential"),
        *map(str, load),
        *("--extra-inputs", json.dumps(dict(target.options))),
        *("--random-seed", str(point.seed), "--artifact-dir", str(inputs.parent), "--export-level", "records"),
        *("--ui", "none", "--no-gpu-telemetry", "--no-server-metrics"),
        *target.arguments,
    ]


def input_lines(point: LoadPoint, workload: Workload) -> Iterator[dict[str, object]]:
    """Return the lines of aiperf's input file: the sessions, named by their index.

    Before them come requests of one word and one token, by which its processes import their needs and connect: the warm-up
    phase of a closed loop takes them, in an open loop they go `WARMUP_S` before the first that counts.
    """
    for index in range(point.concurrency or WARMUP_REQUESTS):
        yield _input_line(f"warm-up {index}", (FIRST_REQUEST,), None if point.rate is None else 0.0)
    arrivals = [None] * len(workload.sessions) if point.rate is None else arrival_times(point, len(workload.sessions))
    for index, (session, arrival) in enumerate(zip(workload.sessions, arrivals, strict=True)):
        yield _input_line(str(index), session, None if arrival is None else WARMUP_S + arrival)


def _input_line(name: str, session: Sequence[PlannedRequest], at_s: float | None) -> dict[str, object]:
    # aiperf takes the first turn's timestamp, but looks for one beside the turns before it believes that there are any.
    timestamp: dict[str, object] = {} if at_s is None else {"timestamp": at_s * 1e3}
    turns: list[dict[str, object]] = [
        {"text": request.text, "output_length": request.output_tokens}
        | ({"delay": request.delay_s * 1e3} if number else timestamp)
        for number, request in enumerate(session)
    ]
    return {"session_id": name, "turns": turns, **timestamp}


def point_result(
    records: Sequence[Mapping[str, Any]], summary: Mapping[str, Any], point: LoadPoint, workload: Workload
) -> PointResult:
    """Return the result of a point from aiperf's records of each request and its summary."""
    begins = list(itertools.accumulate((len(session) for session in workload.sessions), initial=0))
    requests = sorted(
        (_request(record, begins) for record in records if record["metadata"]["conversation_id"].isdecimal()),
        key=lambda request: request.index,
    )
    if point.rate is not None:
        requests = _with_due_times(requests, begins, point, workload)
    # In an open loop its summary counts the requests by which it warmed up, which have no second token.
    names = ("tpot", "itl") if point.rate is not None else tuple(FIGURES)
    figures = {
        f"{ours}_p{percent}_ms": float(summary[FIGURES[ours]][f"p{percent}"])
        for ours in names
        for percent in CLIENT_PERCENTILES
        if summary.get(FIGURES[ours])
    }
    return PointResult(requests=tuple(requests), client=figures)


def _request(record: Mapping[str, Any], begins: Sequence[int]) -> RequestResult:
    where, values = record["metadata"], {name: each["value"] for name, each in record["metrics"].items()}
    gaps_us = tuple(round(gap * 1e3) for gap in values.get("inter_chunk_latency", ()))
    first = values.get("time_to_first_token")
    arrivals = len(gaps_us) + 1 if first is not None else 0
    tokens = int(values.get("usage_completion_tokens", arrivals))
    return RequestResult(
        index=begins[int(where["conversation_id"])] + int(where["turn_index"]),
        at=where["request_start_ns"] / 1e9,
        first=None if first is None else first / 1e3,
        end=None if first is None else first / 1e3 + sum(gaps_us) / 1e6,
        gaps_us=gaps_us,
        output_tokens=tokens,
        input_tokens=int(values.get("usage_prompt_tokens", values.get("input_sequence_length", 0))),
        error=error_line(record.get("error")),
    )


def _with_due_times(
    requests: Sequence[RequestResult], begins: Sequence[int], point: LoadPoint, workload: Workload
) -> list[RequestResult]:
    """Return the requests with when each was due: the first of a session by its arrival, a later request after its delay.

    Aiperf does not record when the schedule began. No request can have been early, and the earliest counts as on time.
    """
    planned = workload.requests
    arrival = dict(zip(begins, arrival_times(point, len(workload.sessions)), strict=False))
    begin = min((one.at - arrival[one.index] for one in requests if one.index in arrival), default=0.0)
    before: dict[int, RequestResult] = {request.index + 1: request for request in requests}
    timed = []
    for request in requests:
        due: float | None = None
        if request.index in arrival:
            due = begin + arrival[request.index]
        elif (previous := before.get(request.index)) is not None and previous.end is not None:
            due = previous.at + previous.end + planned[request.index].delay_s
        timed.append(dataclasses.replace(request, due=due))
    return timed


def error_line(error: Mapping[str, Any] | None) -> str:
    """Return an error of aiperf's in a line: the server's own message where it sent any."""
    if not error:
        return ""
    text = str(error.get("message") or error.get("type") or "error")
    try:
        body = json.loads(text)
        text = str(body["error"]["message"])
    except (ValueError, TypeError, KeyError):
        pass
    code = f"HTTP {error['code']}: " if error.get("code") else ""
    return " ".join((code + text).split())


def last_words(output: Path) -> str:
    """Return why aiperf says it failed: its first reason, its last line where it has none."""
    lines = [line.strip(_BOX) for line in output.read_text(encoding="utf-8", errors="replace").splitlines()]
    lines = [line for line in lines if line]
    for number, line in enumerate(lines):
        if line.startswith("Reason:"):
            reason = " ".join(lines[number : number + 3]).removeprefix("Reason:")
            return " ".join(re.split(r" • | Cause:", reason)[0].split())
    return lines[-1] if lines else "no output"
