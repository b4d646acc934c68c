"""The records of a client that swept a server -> its curve: the requests of each point, and the numbers that follow from them.

A point is computed from its requests, never from the client's own summary. A request with an error, or without a single token,
counts in the error rate and in nothing else. Gaps are kept as counts of whole microseconds: a sweep may have fifty million.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, cast, get_args

from milabench.analysis.intervals import most_bounds
from milabench.analysis.measure import Metric, SweptStep
from milabench.analysis.serving_model import POINT_METRICS, LaunchCurve, LaunchPoint, PointState, PointValue
from milabench.analysis.throughput import Throughput
from milabench.events.doubts import Doubt
from milabench.events.values import SMALLEST_NUMBER, as_mapping, finite_number, one_line, whole
from milabench.records.latencies import LATENCY_QUANTILES
from milabench.sweeps.request_quantiles import is_surely_above, quantile_of, requests_quantile

SERVER_METRICS = ("kv_cache", "running", "waiting")
"""A server's own metrics, averaged over a point."""
OF_A_REQUEST = ("ttft", "tpot", "e2e")
"""The limits that a single request keeps or breaks. Every other limit is a point's."""
NOTES: Mapping[str, Doubt] = {
    "client-bound": Doubt.CLIENT_BOUND,
    "client differs": Doubt.CLIENT_DIFFERS,
    "output": Doubt.OUTPUT_DIFFERS,
    "usage": Doubt.TOKENS_UNKNOWN,
    "tail": Doubt.TAIL,
}
"""The warning that follows from the first word of a point's note, before the colon."""
_MOST_NOTES = 20
_ROUNDING_US = 5000
"""Allowed excess of a request's gaps over the time from its first token to its end: half a gap for each of 10,000 gaps."""
_UNPLACED_SHARE = 0.01
"""Of the tokens of a point: where more than these have no arrival of their own, nobody knows the times between tokens."""
_CONFIDENCE = 0.95  # with which a point is shown to keep a limit, or to miss it
_NO_RECORDS, _TORN = "nothing was recorded", "the records end before the point does"


class _Requests:
    """The requests of a point, as they are read. Times in s, gaps in us by the number of tokens after a gap."""

    def __init__(self) -> None:
        self.ttft = array("d")  # nan where it is not known
        self.tpot = array("d")  # nan of a request with one token, inf where it is not known: no limit is kept by that
        self.e2e = array("d")
        self.gaps: Counter[float] = Counter()
        self.output_tokens = 0
        self.unplaced = 0  # tokens without an arrival of their own, and arrivals without a token
        self.input_tokens: int | None = 0
        self.start, self.stop = math.inf, -math.inf
        self.errors = 0
        self.unusable = 0
        self.error = ""
        self._seen: set[int] = set()

    @property
    def count(self) -> int:
        return len(self.e2e) + self.errors

    def add(self, request: Mapping[str, object]) -> bool:
        """Take a request, and return whether it could be used. None counts twice."""
        index, error = whole(request.get("index"), -1), request.get("error")
        if index < 0 or index in self._seen:
            self.unusable += 1
            return False
        self._seen.add(index)
        tokens = whole(request.get("output_tokens"), -1)
        if error or tokens == 0:
            self.errors += 1
            self.error = self.error or one_line(str(error or "it brought no token"))
            return True
        is_usable = tokens > 0 and self._add_answered(request, tokens)
        self.unusable += not is_usable
        return is_usable

    def _add_answered(self, request: Mapping[str, object], tokens: int) -> bool:
        at, end = finite_number(request.get("at")), finite_number(request.get("end"))
        first, gaps = finite_number(request.get("first")), _gaps(request)
        if at is None or end is None or end < SMALLEST_NUMBER or gaps is None:
            return False
        # A client that does not stream knows no first token, and leaves it out; null is a number that was none.
        if "first" in request and (first is None or not 0 <= first <= end):
            return False
        if first is not None and sum(_listed(request.get("gaps_us"))) > 1e6 * (end - first) + _ROUNDING_US:
            return False
        self.gaps.update(gaps)  # in C, for a list: no Python object is left of a gap that is like another
        self.e2e.append(end)
        self.ttft.append(math.nan if first is None else first)
        later = _tokens_after_first(request, tokens)
        paced = math.inf if first is None or later <= 0 else (end - first) / later
        self.tpot.append(math.nan if tokens == 1 else paced)
        self.output_tokens += tokens
        self.unplaced += _unplaced(request, tokens)
        sent = whole(request.get("input_tokens"), -1)
        self.input_tokens = None if sent < 0 or self.input_tokens is None else self.input_tokens + sent
        self.start, self.stop = min(self.start, at), max(self.stop, at + end)
        return True

    def samples(self) -> dict[str, Sequence[float]]:
        """Return the times of the requests in order, ms. Gaps are no sample of requests: as many of them as requests."""
        samples: dict[str, Sequence[float]] = {}
        for name in OF_A_REQUEST:
            # One that is not known is above all others, and a quantile that touches it is not known either.
            times = cast("array[float]", getattr(self, name))
            samples[name] = array("d", sorted(1e3 * time for time in times if not math.isnan(time)))
        if self.gaps and self.unplaced <= _UNPLACED_SHARE * self.output_tokens:
            count = len(self.e2e)
            gaps = counted_quantiles(self.gaps, ((index + 0.5) / count for index in range(count)))
            samples["itl"] = array("d", (gap / 1e3 for gap in gaps))
        return samples

    def values(self, slo: Mapping[str, float], samples: Mapping[str, Sequence[float]]) -> dict[str, float]:
        """Return the numbers of the point by the names of POINT_METRICS, as far as its requests have them."""
        values: dict[str, float] = {}
        window, answered = self.stop - self.start, len(self.e2e)
        if answered and window > 0:
            values["output_tps"] = self.output_tokens / window
            if self.input_tokens is not None:
                values["total_tps"] = (self.input_tokens + self.output_tokens) / window
            values["request_rate"] = answered / window
            if any(_latency(name) in OF_A_REQUEST for name in slo):
                values["goodput"] = self._within(slo) / window
        for name, quantile in LATENCY_QUANTILES.items():
            times = samples.get(quantile.latency, ())
            if len(times) >= most_bounds(quantile.share):
                values[name] = quantile_of(times, quantile.share)
        if SMALLEST_NUMBER <= values.get("tpot_p90_ms", 0.0) < math.inf:
            values["user_tps"] = 1e3 / values["tpot_p90_ms"]
        if self.count:
            values["error_rate"] = self.errors / self.count
        return in_order(values)

    @property
    def has_single_tokens(self) -> bool:
        """Whether no request had two tokens: nothing lies between them."""
        return bool(self.e2e) and self.output_tokens == len(self.e2e)

    def _within(self, slo: Mapping[str, float]) -> int:
        """Return how many requests kept every limit that a single request can break. Of two quantiles, the stricter limit."""
        within = [True] * len(self.e2e)
        for name, limit in slo.items():
            if _latency(name) in OF_A_REQUEST:
                times = cast("array[float]", getattr(self, _latency(name)))
                # nan is no time, and breaks no limit.
                within = [kept and not 1e3 * time > limit for kept, time in zip(within, times, strict=True)]
        return sum(within)


def in_order(values: Mapping[str, float]) -> dict[str, float]:
    """Return the known numbers of a point, in the order of POINT_METRICS. A number too small to divide by is zero."""
    known = {name: finite_number(values.get(name)) for name in POINT_METRICS}
    return {name: value if value >= SMALLEST_NUMBER else 0.0 for name, value in known.items() if value is not None}


def _gaps(request: Mapping[str, object]) -> Iterable[int] | Mapping[float, int] | None:
    """Return the gaps of a request between its tokens in us, or how often each occurs. None where they are no gaps.

    A gap after which n tokens arrive is n gaps of an n-th each. A gap after which none does is part of the next.
    """
    try:
        # Refuses what is no whole number or is below zero, for the whole list in C.
        listed = _listed(request.get("gaps_us"))
        gaps = array("Q", listed)
        if bool in set(map(type, listed)):
            return None
        if request.get("tokens") is None:
            return gaps
        tokens = array("Q", _listed(request.get("tokens")))
    except (TypeError, OverflowError):
        return None
    if len(tokens) <= len(gaps):
        return None
    counts: Counter[float] = Counter()
    waited = 0
    for gap, count in zip(gaps, tokens[1:], strict=False):
        waited += gap
        if count:
            counts[waited / count] += count
            waited = 0
    return counts


def _unplaced(request: Mapping[str, object], tokens: int) -> int:
    """Return how many tokens of a request are more, or fewer, than its arrivals, where it does not name the tokens of each."""
    if request.get("tokens") is not None or request.get("cut") or request.get("first") is None:
        return 0
    return abs(tokens - len(_listed(request.get("gaps_us"))) - 1)


def _tokens_after_first(request: Mapping[str, object], tokens: int) -> float:
    """Return how many tokens a request had after its first arrival: where nobody knows, as if each had brought as many."""
    if request.get("tokens") is not None:
        return tokens - max(1, whole(_listed(request["tokens"])[0], 1))
    if not _unplaced(request, tokens):
        return tokens - 1
    arrivals = len(_listed(request.get("gaps_us"))) + 1
    return tokens - max(1.0, tokens / arrivals) if arrivals > 1 else 0.0


def _listed(value: object) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise TypeError("no list")
    return value


def counted_quantiles(counts: Mapping[float, int], quantiles: Iterable[float]) -> list[float]:
    """Return quantiles by linear interpolation (R7) of values, each with its count. At least one count is above 0."""
    ordered = sorted(counts.items())
    ends = list(accumulate(count for _, count in ordered))
    last = ends[-1] - 1

    def at(index: int) -> float:
        return ordered[bisect_right(ends, index)][0]

    positions = ((q * last, math.floor(q * last)) for q in quantiles)
    return [at(below) + (place - below) * (at(min(below + 1, last)) - at(below)) for place, below in positions]


def _latency(metric: str) -> str:
    """Return the latency of a quantile: `ttft` for `ttft_p90_ms`. Empty for any other metric."""
    return LATENCY_QUANTILES[metric].latency if metric in LATENCY_QUANTILES else ""


def point_quantile(metric: str, launches: Sequence[LaunchPoint]) -> PointValue | None:
    """Return a quantile of the requests of a point. None where they are too few, or nobody knows their times."""
    quantile = LATENCY_QUANTILES[metric]
    return requests_quantile([launch.samples.get(quantile.latency, ()) for launch in launches], quantile.share)


def meets(points: Sequence[LaunchPoint], slo: Mapping[str, float]) -> bool | None:
    """Return whether the repeats of a point show at 95 % confidence that it keeps every limit, or that it misses any.

    None without a limit, and where neither is shown. Every repeat has to keep limits other than quantiles. A number
    that is not known keeps no limit, but for the times between tokens where no request had two.
    """
    verdicts = [_is_within(name, points, limit) for name, limit in slo.items()]
    if not verdicts or (None in verdicts and False not in verdicts):
        return None
    return all(verdicts)


def _is_within(name: str, points: Sequence[LaunchPoint], limit: float) -> bool | None:
    quantile = LATENCY_QUANTILES.get(name)
    if quantile is None:
        return all(name in point.values and point.values[name] <= limit for point in points)
    # A request whose time nobody knows is above every limit.
    times = [point.samples.get(quantile.latency, ()) for point in points]
    if not all(times):
        return quantile.latency in ("tpot", "itl") and all(point.has_single_tokens for point in points)
    number = point_quantile(name, points)
    if number is None:  # few requests may show that a limit is missed, never that it is kept
        return False if is_surely_above(times, quantile.share, limit) else None
    lower, upper = (number.bound(_CONFIDENCE, is_upper=is_upper) for is_upper in (False, True))
    return True if upper is not None and upper <= limit else False if lower is not None and lower > limit else None


class SweepFold:
    """The records so far of a sweep."""

    def __init__(self) -> None:
        self._about: Mapping[str, object] | None = None
        self._requests: dict[str, _Requests] = {}
        self._ends: dict[str, Mapping[str, object]] = {}
        self._unusable = 0

    def take(self, data: Mapping[str, object]) -> None:
        """Take the payload of a `data` record into account. Other payloads are ignored."""
        if isinstance(request := data.get("request"), Mapping):
            point = request.get("point")
            if isinstance(point, str) and point:
                self._requests.setdefault(point, _Requests()).add(request)
            else:
                self._unusable += 1
        if isinstance(point := data.get("point"), Mapping):
            name = point.get("name")
            if isinstance(name, str) and name and name not in self._ends:
                self._ends[name] = point
            else:
                self._unusable += 1
        if isinstance(about := data.get("serving"), Mapping):
            self._about = about

    def result(self, declared: Mapping[str, object], metrics: Iterable[Metric]) -> SweptStep | None:
        """Return the result of the step. None where its records do not come from the client of a sweep.

        `declared` is the `serve` of the configuration, empty where it is not known. Of the `metrics` of the step those count
        that the server said of itself, whose case is a point. A point of the configuration without a record was skipped. A
        point whose record is missing failed.
        """
        if self._about is None and not self._ends and not (declared and self._requests):
            return None
        about = self._about or {}
        slo = _limits(about.get("slo") if "slo" in about else declared.get("slo"))
        planned = {point.name: point for point in planned_points(declared)}
        readings = [each for each in metrics if each.name in SERVER_METRICS and each.value >= 0]
        curve = LaunchCurve(
            client=one_line(str(about.get("client") or declared.get("client") or "")),
            version=one_line(str(about.get("version") or "")),
            seed=_seed(about.get("seed", declared.get("seed"))),
            slo=slo,
            points=tuple(
                self._point(
                    name,
                    planned.get(name, LaunchPoint(name=one_line(name))),
                    slo,
                    {each.name: each.value for each in readings if each.case == name},
                )
                for name in dict.fromkeys((*planned, *self._ends, *(() if planned else self._requests)))
            ),
        )
        throughput, of_points = serving_throughput(curve), tuple(_metrics_of(curve))
        return SweptStep(curve=curve, throughput=throughput, metrics=of_points, unusable=self._unusable_in(curve))

    def _point(
        self, name: str, planned: LaunchPoint, slo: Mapping[str, float], readings: Mapping[str, float]
    ) -> LaunchPoint:
        """Return a point by its records, with the load that was planned where they have none."""
        end, requests = self._ends.get(name), self._requests.get(name) or _Requests()
        samples = requests.samples()
        values = requests.values(slo, samples)
        start, stop = requests.start, requests.stop
        state, why = _state(end, requests)
        about = end or {}
        notes = about.get("notes")
        point = LaunchPoint(
            name=planned.name,
            concurrency=_above_zero(about.get("concurrency")) or planned.concurrency,
            rate=_above_zero(about.get("rate")) or planned.rate,
            arrivals=one_line(str(about.get("arrivals") or planned.arrivals)),
            state=state,
            why=why,
            notes=tuple(one_line(str(note)) for note in notes[:_MOST_NOTES]) if isinstance(notes, list) else (),
            requests=requests.count,
            errors=requests.errors,
            start=start if start < stop else finite_number(about.get("start")),
            stop=stop if start < stop else finite_number(about.get("stop")),
            values=in_order({**values, **readings}),
            samples=samples,
            has_single_tokens=requests.has_single_tokens,
        )
        if state != "measured" or point.is_of_client:
            return point
        return replace(point, meets_slo=meets([point], slo))

    def _unusable_in(self, curve: LaunchCurve) -> int:
        """Return how many records of requests and points could not be used, including requests of no point of the curve."""
        names = {point.name for point in curve.points}
        strangers = sum(own.count for name, own in self._requests.items() if one_line(name) not in names)
        return self._unusable + strangers + sum(own.unusable for own in self._requests.values())

    @property
    def has_lost(self) -> bool:
        """Whether a point that was measured had more requests than were recorded."""
        counts = {name: own.count + own.unusable for name, own in self._requests.items()}
        return any(
            counts.get(name, 0) < whole(end.get("requests"), 0)
            for name, end in self._ends.items()
            if end.get("state") == "measured"
        )


def _metrics_of(curve: LaunchCurve) -> Iterable[Metric]:
    """Return the numbers of all points of a sweep as metrics, but for those that the records hold as such."""
    for point in curve.points:
        for name, value in point.values.items():
            about = POINT_METRICS[name]
            if name not in SERVER_METRICS:
                yield Metric(name=name, value=value, units=about.units, direction=about.direction, case=point.name)


def _state(end: Mapping[str, object] | None, requests: _Requests) -> tuple[PointState, str]:
    if end is None:
        return ("failed", _TORN) if requests.count or requests.unusable else ("skipped", _NO_RECORDS)
    why, states = one_line(str(end.get("why") or "")), get_args(PointState)
    state: PointState | None = next((state for state in states if state == end.get("state")), None)
    if state is None:
        return "failed", why or f"its state is {one_line(str(end.get('state')))[:40]!r}"
    if state == "measured" and not requests.e2e:
        if requests.errors:
            return "failed", f"all of its {requests.errors} requests failed: {requests.error}"
        return "failed", "none of its requests can be used"
    return state, why if state != "measured" else ""


def planned_points(declared: Mapping[str, object]) -> Iterator[LaunchPoint]:
    """Yield the points of a sweep, as the suite declares them, none of them measured yet."""
    for value in _items(declared.get("concurrency")):
        if (number := _above_zero(value)) is not None:
            yield LaunchPoint(name=f"concurrency={_exact(number)}", concurrency=number, state="skipped")
    for value in _items(declared.get("rate")):
        if (number := _above_zero(value)) is not None:
            arrivals = str(declared.get("arrivals") or "")
            yield LaunchPoint(name=f"rate={_exact(number)}", rate=number, arrivals=arrivals, state="skipped")
    for value in _items(declared.get("scenario")):
        if isinstance(value, str):
            yield LaunchPoint(name=f"scenario={one_line(value)}", state="skipped")


def _exact(number: float) -> str:
    """Return the shortest text of a number that no other number has, as the client names its points."""
    return str(int(number) if number == int(number) else number)


def _items(value: object) -> Sequence[object]:
    return value if isinstance(value, list | tuple) else () if value is None else (value,)


def _limits(slo: object) -> dict[str, float]:
    limits = {str(name): finite_number(limit) for name, limit in as_mapping(slo).items()}
    return {name: limit for name, limit in limits.items() if limit is not None and name in POINT_METRICS}


def _above_zero(value: object) -> float | None:
    number = finite_number(value)
    return number if number is not None and number > 0 else None


def _seed(value: object) -> int | None:
    number = whole(value, -1)
    return number if number >= 0 else None


def best_point(points: Iterable[LaunchPoint]) -> LaunchPoint | None:
    """Return the point with the most output tokens a second of those that keep the SLO. None where none does.

    Points whose client did not keep the load do not count.
    """
    kept = [
        point
        for point in points
        if point.state == "measured" and point.meets_slo is not False and not point.is_of_client
    ]
    return max((point for point in kept if "output_tps" in point.values), key=_output_tps, default=None)


def _output_tps(point: LaunchPoint) -> float:
    return point.values["output_tps"]


def serving_throughput(curve: LaunchCurve) -> Throughput | None:
    """Return the number of a repeat: the output tokens a second of its best point."""
    best = best_point(curve.points)
    if best is None or _output_tps(best) < SMALLEST_NUMBER:
        return None
    return Throughput(
        value=_output_tps(best),
        units=POINT_METRICS["output_tps"].units,
        basis="metric",
        observations=best.requests - best.errors,
        doubts=tuple(curve_doubts(curve)),
    )


def curve_doubts(curve: LaunchCurve) -> Iterable[Doubt]:
    """Yield why a curve is suspect. Errors that the SLO limits are checked by that limit."""
    measured = [point for point in curve.points if point.state == "measured"]
    if len(measured) < len(curve.points):
        yield Doubt.POINTS_MISSING
    best = best_point(measured)
    yield from dict.fromkeys(
        doubt
        for point in measured
        for note in point.notes
        # What is too small at another point is no fault of the number.
        if (doubt := NOTES.get(note.partition(":")[0])) and (doubt is not Doubt.TAIL or point is best)
    )
    if "error_rate" not in curve.slo and any(point.errors for point in measured):
        yield Doubt.REQUEST_ERRORS
