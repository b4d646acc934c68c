"""The end of a point, when nothing is sent any more: by how much it makes the throughput of the whole point smaller."""

from __future__ import annotations

from collections.abc import Sequence

from benchmate.serving.load import LoadPoint, RequestResult

LARGEST_LOSS = 0.02
LEAST_STEADY = 0.25
"""A steady part below this share of a point is too short to tell its throughput."""


def tail_note(point: LoadPoint, requests: Sequence[RequestResult]) -> str:
    """Return that the tokens a second of a point are more than 2 % below its steady part's. Else nothing.

    Steady is the time between the end of the first answer and the last sending: before it the server fills, after it it
    empties. The note names loads of an open loop without such a part. Rounds of a closed loop fill and empty at once.
    """
    answered = [each for each in requests if not each.error and each.first is not None and each.end]
    if (point.rate is None and point.concurrency is None) or not answered:
        return ""
    start, last = min(each.at for each in requests), max(each.at for each in requests)
    ends = [each.at + (each.end or 0.0) for each in answered]
    filled, stop = min(ends), max(ends)
    if stop <= start:
        return ""
    after = f"tail: {(stop - last) / (stop - start):.0%} of the time is after the last request was sent"
    if last - filled < LEAST_STEADY * (stop - start):
        return "" if point.rate is None else f"{after}: too short a point to tell the tokens/s at its rate"
    steady = sum(_tokens_within(each, filled, last) for each in answered) / (last - filled)
    whole = sum(each.output_tokens for each in answered) / (stop - start)
    if whole >= (1 - LARGEST_LOSS) * steady:
        return ""
    return f"{after}: its tokens/s are {1 - whole / steady:.1%} below the {steady:.4g} before"


def _tokens_within(request: RequestResult, start: float, stop: float) -> float:
    """Return how many tokens of a request came within a time, as if they came evenly."""
    first, end = request.at + (request.first or 0.0), request.at + (request.end or 0.0)
    if end <= first:
        return request.output_tokens if start < end <= stop else 0.0
    return request.output_tokens * max(0.0, min(end, stop) - max(first, start)) / (end - first)
