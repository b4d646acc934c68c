"""What a server of known times wrote down of each request, and the figures of that by code that is not the analysis."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

QUANTILES = {50: 5, 90: 29}  # and how many requests each needs


@dataclass(frozen=True)
class Served:
    """A request as the server saw it: unix seconds of its arrival, seconds after it for the rest."""

    received: float
    first: float
    end: float
    gaps_s: tuple[float, ...]
    output_tokens: int
    error: str


def served_in(path: Path, start: float, stop: float) -> list[Served]:
    """Return what came in this time, but for the requests of one word by which clients warm up."""
    requests = [json.loads(line) for line in path.read_text().splitlines()]
    return [
        Served(
            received=request["received"],
            first=request["first"] or 0.0,
            end=request["end"] or 0.0,
            gaps_s=tuple(gap / 1e6 for gap in request["gaps_us"]),
            output_tokens=request["output_tokens"],
            error=request["error"],
        )
        for request in requests
        if request["input_tokens"] > 1 and start - 0.01 <= request["received"] <= stop
    ]


def _quantile(ordered: Sequence[float], q: float) -> float:
    """The median-unbiased quantile, type 8 of Hyndman and Fan (1996)."""
    rank = min(max((len(ordered) + 1 / 3) * q + 1 / 3, 1), len(ordered))
    low, high = ordered[math.floor(rank) - 1], ordered[math.ceil(rank) - 1]
    return low + (rank - math.floor(rank)) * (high - low)


def figures(requests: Iterable[Served]) -> dict[str, float]:
    """Return the latencies in ms and the throughput of the requests that were answered."""
    answered = [request for request in requests if not request.error]
    numbers: Mapping[str, Sequence[float]] = {
        "ttft": [request.first for request in answered],
        "tpot": [(request.end - request.first) / (request.output_tokens - 1) for request in answered],
        "itl": [gap for request in answered for gap in request.gaps_s],
        "e2e": [request.end for request in answered],
    }
    found = {
        f"{name}_p{percent}_ms": 1e3 * _quantile(sorted(values), percent / 100)
        for name, values in numbers.items()
        for percent, least in QUANTILES.items()
        if len(answered) >= least
    }
    seconds = max(request.received + request.end for request in answered) - min(each.received for each in answered)
    return found | {"output_tps": sum(request.output_tokens for request in answered) / seconds}


def data_records(path: Path, kind: str) -> list[dict[str, Any]]:
    """Return the records of one kind of a step."""
    lines = (json.loads(line).get("data") for line in path.read_text().splitlines())
    return [data[kind] for data in lines if isinstance(data, dict) and kind in data]
