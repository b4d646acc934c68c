"""The rate of a server over time, from its client's records of each request."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

A_DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Request:
    """A request that was answered: seconds on the client's clock, and the tokens of prompt and answer."""

    start: float
    end: float
    tokens: float

    def overlap(self, start: float, end: float) -> float:
        """Return for how many of its seconds it was on its way in an interval."""
        return max(0.0, min(self.end, end) - max(self.start, start))


def timeline(outputs: Sequence[Any], number: int) -> list[dict[str, float]]:
    """Return `number` intervals of equal length, from the first start of a request to the last end.

    `outputs`: mappings or objects with start_time, latency, output_tokens, prompt_len, success. The tokens of a request are
    spread evenly over its latency. An interval: `time` its end (unix seconds, where the clock of the starts is known), `rate`
    tokens per second, `active_jobs` requests on their way in it, `active_jobs_pct` their mean number at a time, and how many of
    them started in it (`start_job`), ended in it (`finished_job`) or did neither (`ran_through`). Empty without an answered
    request.
    """
    requests = [request for request in map(_request, outputs) if request is not None]
    if not requests or number < 1:
        return []
    start, end = min(request.start for request in requests), max(request.end for request in requests)
    step = (end - start) / number
    offset = _unix_offset(start, end)
    edges = [start + index * step for index in range(number)] + [end]
    return [{"time": right + offset, **_interval(requests, left, right)} for left, right in pairwise(edges)]


def _interval(requests: Sequence[Request], left: float, right: float) -> dict[str, float]:
    active = [(request, overlap) for request in requests if (overlap := request.overlap(left, right)) > 0]
    tokens = sum(request.tokens * overlap / (request.end - request.start) for request, overlap in active)
    started = sum(left <= request.start < right for request, _ in active)
    # Each end is in one interval only: that which it closes belongs to it.
    finished = sum(left < request.end <= right for request, _ in active)
    through = sum(request.start < left and right < request.end for request, _ in active)
    return {
        "rate": tokens / (right - left),
        "active_jobs": len(active),
        "start_job": started,
        "finished_job": finished,
        "ran_through": through,
        "active_jobs_pct": sum(overlap for _, overlap in active) / (right - left),
    }


def _request(output: Any) -> Request | None:
    def get(key: str, default: Any) -> Any:
        return output.get(key, default) if isinstance(output, Mapping) else getattr(output, key, default)

    latency = get("latency", 0.0)
    if not get("success", True) or latency <= 0:
        return None
    start = get("start_time", 0.0)
    return Request(start, start + latency, (get("output_tokens", 0) or 0) + (get("prompt_len", 0) or 0))


def _unix_offset(start: float, end: float) -> float:
    """Return the offset from the client's clock to unix time: requests are read soon after the last of them."""
    for clock in (time.time, time.perf_counter):
        if 0 <= clock() - end < A_DAY_S:
            return time.time() - clock()
    return -start
