"""Results from the requests of a point: its figures by METRICS' names, and the notes for readers."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from benchmate.ops.statistics import quantile
from benchmate.serving.load import CLIENT_PERCENTILES, LoadPoint, PlannedRequest, RequestResult, Workload

KEPT_SHARE = 0.97
"""A client that keeps a smaller share of the load than this has measured itself."""
LATE_SHARE = 0.05
"""A median lateness above this share of the mean gap between arrivals is too late."""
LARGEST_DIFFERENCE = 0.01
SMALLEST_DIFFERENCE_MS = 0.1
"""Rounding of the figures that clients print."""
LARGEST_LOSS = 0.02
LEAST_STEADY = 0.25
"""A steady part below this share of a point is too short to tell its throughput."""


def point_figures(requests: Sequence[RequestResult]) -> dict[str, float]:
    """Return the latencies of a point in ms, its tokens and requests a second, without failed requests."""
    good = [request for request in requests if not request.error and request.first is not None and request.end]
    if not good:
        return {}
    values: dict[str, list[float]] = {"ttft": [], "tpot": [], "itl": [], "e2e": []}
    for request in good:
        assert request.first is not None
        assert request.end is not None
        values["ttft"].append(request.first)
        values["e2e"].append(request.end)
        if request.output_tokens > 1:
            paced = tokens_after_first(request)
            values["tpot"].append((request.end - request.first) / paced if paced else math.inf)
        values["itl"] += token_gaps(request)
    if not tells_tokens(good):
        values["itl"] = []
    figures = {
        f"{name}_p{q}_ms": 1e3 * quantile(sorted(numbers), q / 100)
        for name, numbers in values.items()
        if numbers
        for q in CLIENT_PERCENTILES
    }
    figures = {name: value for name, value in figures.items() if math.isfinite(value)}
    window = max(request.at + (request.end or 0) for request in good) - min(request.at for request in good)
    if window > 0:
        output = sum(request.output_tokens for request in good)
        figures["output_tps"] = output / window
        figures["total_tps"] = (output + sum(request.input_tokens for request in good)) / window
        figures["request_rate"] = len(good) / window
    return figures


def tells_tokens(requests: Sequence[RequestResult]) -> bool:
    """Return whether it is known when tokens came, but for the hundredth that has no arrival of its own."""
    answered = [request for request in requests if not request.error]
    lost = sum(abs(request.output_tokens - _arrivals(request)) for request in answered if not request.tokens)
    return lost <= LARGEST_DIFFERENCE * sum(request.output_tokens for request in answered)


def _arrivals(request: RequestResult) -> int:
    return len(request.gaps_us) + 1 if request.first is not None else 0


def tokens_after_first(request: RequestResult) -> float:
    """Return how many tokens came after the first arrival: where that is not known, as if each arrival had brought as many."""
    if request.tokens:
        return sum(request.tokens) - max(1, request.tokens[0])
    arrivals = _arrivals(request)
    return request.output_tokens - max(1.0, request.output_tokens / arrivals) if arrivals > 1 else 0.0


def token_gaps(request: RequestResult) -> list[float]:
    """Return the seconds between tokens: a gap after which n of them came is n gaps of an n-th each, without any it goes on."""
    if not request.tokens:
        return [gap_us / 1e6 for gap_us in request.gaps_us]
    gaps: list[float] = []
    waited_us = 0
    for gap_us, count in zip(request.gaps_us, request.tokens[1:], strict=True):
        waited_us += gap_us
        if count:
            gaps += [waited_us / 1e6 / count] * count
            waited_us = 0
    return gaps


def point_notes(
    point: LoadPoint, workload: Workload, requests: Sequence[RequestResult], client: Mapping[str, float]
) -> list[str]:
    """Return the problems of a point: its client kept no pace, some requests failed, or figures differ."""
    # Between the turns of a session nothing is in flight, and who is left at the end is alone.
    is_judged = point.rate is not None or not workload.has_turns
    pace = _client_bound(point, requests) if is_judged else ""
    notes = [pace, _errors(requests), _lengths(workload.requests, requests), _chunks(requests), _usage(requests)]
    own = point_figures(requests)
    if not tells_tokens(requests):
        # A client that takes each arrival for a token, or the first for one, has others.
        own = {name: value for name, value in own.items() if not name.startswith("tpot")}
    return [note for note in [*notes, _differences(own, client)] if note]


def _client_bound(point: LoadPoint, requests: Sequence[RequestResult]) -> str:
    if point.rate is not None:
        return _late(point.rate, requests)
    if point.concurrency is None:
        return ""
    in_flight = mean_in_flight(requests)
    if in_flight is None or in_flight >= KEPT_SHARE * point.concurrency:
        return ""
    return f"client-bound: {in_flight:.3g} requests were in flight, of {point.concurrency}"


def mean_in_flight(requests: Sequence[RequestResult]) -> float | None:
    """Return how many requests were in flight on average, until the last was sent. None where that took no time.

    A request that failed is left out with the time that it took: when it ended is not known.
    """
    start, stop = min((each.at for each in requests), default=0.0), max((each.at for each in requests), default=0.0)
    if stop <= start or any(request.error for request in requests):
        return None
    return sum(min(each.at + (each.done or each.end or 0), stop) - each.at for each in requests) / (stop - start)


def _late(rate: float, requests: Sequence[RequestResult]) -> str:
    late = [request.at - request.due for request in requests if request.due is not None]
    if late and statistics.median(late) > LATE_SHARE / rate:
        return f"client-bound: requests were sent {1e3 * statistics.median(late):.3g} ms late (median)"
    sent = sorted(request.at for request in requests)
    span = sent[-1] - sent[0] if sent else 0.0
    if span <= 0:
        return ""
    asked = rate
    dues = sorted(request.due for request in requests if request.due is not None)
    if len(dues) == len(sent) and dues[-1] > dues[0]:
        asked = (len(dues) - 1) / (dues[-1] - dues[0])
    elif not late:
        # Of unknown random arrivals only what lies outside of three standard deviations is the client's doing.
        asked /= 1 + 3 / math.sqrt(len(sent))
    achieved = (len(sent) - 1) / span
    return f"client-bound: {achieved:.4g} requests/s were sent, of {asked:.4g}" if achieved < KEPT_SHARE * asked else ""


def _errors(requests: Sequence[RequestResult]) -> str:
    errors = [request.error for request in requests if request.error]
    return f"errors: {len(errors)} of {len(requests)} requests: {errors[0]}" if errors else ""


def _lengths(planned: Sequence[PlannedRequest], requests: Sequence[RequestResult]) -> str:
    wrong = [
        each
        for each in requests
        if not each.error and each.index < len(planned) and each.output_tokens != planned[each.index].output_tokens
    ]
    if not wrong:
        return ""
    asked, got = planned[wrong[0].index].output_tokens, wrong[0].output_tokens
    return f"output: {len(wrong)} of {len(requests)} answers have another length than asked: {got} tokens for {asked}"


def _chunks(requests: Sequence[RequestResult]) -> str:
    """Return that tokens and arrivals are not the same, and nobody says which arrival brought how many."""
    if tells_tokens(requests):
        return ""
    answered = [each for each in requests if not each.error]
    odd = next(each for each in answered if not each.tokens and each.output_tokens != _arrivals(each))
    if all(_arrivals(each) == 1 for each in answered):
        return f"chunks: {odd.output_tokens} tokens came at once: no time between tokens is known"
    what = f"{odd.output_tokens} tokens came in {_arrivals(odd)} pieces"
    return f"chunks: {what}, with an unknown number of tokens each: no ITL, and TPOT assumes equal numbers"


def _usage(requests: Sequence[RequestResult]) -> str:
    counted = sum(not each.has_usage for each in requests if not each.error)
    if not counted:
        return ""
    return f"usage: the server did not say how many tokens {counted} of {len(requests)} answers have. The tokenizer counted them"


def _differences(own: Mapping[str, float], client: Mapping[str, float]) -> str:
    """Return the latencies that the client itself reports differently. Throughput is not compared: its window differs."""
    different = [
        f"{name} {client[name]:.4g}, from its requests {value:.4g}"
        for name, value in own.items()
        if name.endswith("_ms") and name in client
        if abs(client[name] - value) > max(LARGEST_DIFFERENCE * value, SMALLEST_DIFFERENCE_MS)
    ]
    return f"client differs: {'; '.join(different)}" if different else ""


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
