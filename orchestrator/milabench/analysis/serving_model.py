"""The results of a sweep over a server as frozen values: a curve of points, in a repeat and over repeats.

Words: TTFT is the time from sending a request to its first token, ITL the time between two tokens (that between two arrivals
over the tokens of the second), TPOT the time from the first token to the last over the tokens after the first, of a request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from milabench.analysis.intervals import Interval
from milabench.analysis.json_codec import OPTIONAL
from milabench.analysis.throughput import Direction
from milabench.events.stored_json import NotNegative, Number, Whole, WholeOrFloat
from milabench.records.latencies import LATENCY_QUANTILES

AREA, AREA_UNITS = "area", "(tokens/s)^2"
"""The number of a whole curve: its name in addition to POINT_METRICS, and its units."""
PointState = Literal["measured", "failed", "skipped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingMetric:
    """A number of a point: its shown name, its units, its better direction."""

    label: str
    units: str
    direction: Direction = "lower"


POINT_METRICS: Mapping[str, ServingMetric] = {
    "output_tps": ServingMetric(label="output tokens", units="tokens/s", direction="higher"),
    "total_tps": ServingMetric(label="all tokens", units="tokens/s", direction="higher"),
    "user_tps": ServingMetric(label="tokens of a user (1000 / TPOT p90)", units="tokens/s", direction="higher"),
    "request_rate": ServingMetric(label="requests", units="requests/s", direction="higher"),
    "goodput": ServingMetric(label="requests within the SLO", units="requests/s", direction="higher"),
    **{name: ServingMetric(label=quantile.label, units="ms") for name, quantile in LATENCY_QUANTILES.items()},
    "error_rate": ServingMetric(label="requests with an error", units=""),
    "joules_per_mtok": ServingMetric(label="energy of a million output tokens", units="J"),
    "cost_per_mtok": ServingMetric(label="cost of a million output tokens", units=""),
    "kv_cache": ServingMetric(label="KV cache in use", units="", direction="none"),
    "running": ServingMetric(label="requests in the batch", units="", direction="none"),
    "waiting": ServingMetric(label="requests that wait", units="", direction="none"),
}
"""The numbers of a point by name, in the order in which they are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPoint:
    """A point and how it ended, in a repeat or over repeats.

    Either `concurrency` (closed loop: requests in flight) or `rate` (open loop: arrivals in a second) is
    given. Neither for a scenario of its own. `why` says why a point failed or was skipped, `notes` the remarks on
    a measured point.
    """

    name: str
    concurrency: NotNegative | None = None
    rate: NotNegative | None = None
    arrivals: str = ""
    state: PointState = "measured"
    why: str = ""
    notes: tuple[str, ...] = ()
    requests: Whole = 0
    errors: Whole = 0
    meets_slo: bool | None = None

    @property
    def is_of_client(self) -> bool:
        """Whether its client did not keep the load, in a repeat at least: it says something about the client, not the server."""
        return any(note.startswith("client-bound") for note in self.notes)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPoint(SweepPoint):
    """A point of a sweep in a repeat.

    `start` and `stop` are unix seconds. `values` are by the names of POINT_METRICS, as far as they are known. `samples` are
    the times of its requests in order, ms, by `ttft`, `tpot`, `itl` and `e2e`. Of ITL an even sample of all gaps.
    `has_single_tokens`: no request had two, so that nothing lies between them.
    """

    start: float | None = None
    stop: float | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    samples: Mapping[str, Sequence[float]] = field(default_factory=dict)
    has_single_tokens: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchCurve:
    """A sweep in a repeat, its points in the order of the suite. `slo` are the limits by names of POINT_METRICS."""

    client: str = ""
    version: str = ""
    seed: int | None = None
    slo: Mapping[str, float] = field(default_factory=dict)
    points: tuple[LaunchPoint, ...] = ()

    @property
    def is_measured(self) -> bool:
        """Whether any of its points was."""
        return any(point.state == "measured" for point in self.points)


@dataclass(frozen=True, slots=True, kw_only=True)
class PointValue:
    """A number of a point over repeats: a number for each that measured it, their mean and its interval.

    The mean is geometric, but arithmetic where any number is zero. No interval below three repeats. A quantile is
    over the requests of all repeats. `lower` and `upper` are its one-sided bounds by confidence (`0.95`).
    """

    value: Number
    ci95: Interval | None = None
    launches: tuple[Number, ...] = ()
    lower: Annotated[Mapping[str, Number], OPTIONAL] = field(default_factory=dict)
    upper: Annotated[Mapping[str, Number], OPTIONAL] = field(default_factory=dict)

    def bound(self, confidence: float, *, is_upper: bool) -> float | None:
        """Return a stored one-sided bound at this confidence or more. None without any."""
        bounds = self.upper if is_upper else self.lower
        level = min((level for level in bounds if float(level) >= confidence), key=float, default=None)
        return None if level is None else bounds[level]


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint(SweepPoint):
    """A point of a sweep over repeats. It is measured if any repeat measured it.

    `meets_slo` is whether it is shown at 95 % confidence to keep every limit, or to miss any. None where neither is shown, and
    where its client did not keep its load in some repeat. `few` are the quantiles for which it has too few requests.
    """

    values: Mapping[str, PointValue] = field(default_factory=dict)
    few: Annotated[tuple[str, ...], OPTIONAL] = ()

    @property
    def is_in_area(self) -> bool:
        """Whether it counts in the area of its curve: it says something about the server."""
        return self.state == "measured" and not self.is_of_client


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingCurve:
    """The throughput of a server against the tokens/s of a user, and the best point within the SLO.

    `area` is the area under the step function of `output_tps` over `user_tps` (its points without interpolation), in
    (tokens/s)^2: the area below the curve, of the repeats that measured every point that any did. Points whose client did not
    keep the load count in none of what follows, nor in the area. `best` is the name of the
    point with the most output tokens/s of those that every repeat measured and that meet the SLO, of all those where there is
    none. Empty where there is no such point. `slo_concurrency` and `slo_rate` are the largest load of such points, None without
    an SLO and where no point meets it. `currency` is for `cost_per_mtok`, where costs are declared.
    """

    client: str = ""
    version: str = ""
    seed: Whole | None = None
    slo: Mapping[str, WholeOrFloat] = field(default_factory=dict)
    points: tuple[CurvePoint, ...] = ()
    area: PointValue | None = None
    best: str = ""
    slo_concurrency: NotNegative | None = None
    slo_rate: NotNegative | None = None
    currency: str = ""

    @property
    def points_in_area(self) -> frozenset[str]:
        """The names of the points that the area is of."""
        return frozenset(point.name for point in self.points if point.is_in_area)

    @property
    def has_few_requests(self) -> bool:
        """Whether a limit of the SLO is on a quantile for which a point has too few requests, or no point is decided."""
        asked = [point for point in self.points if point.is_in_area]
        is_open = bool(self.slo) and not self.best and any(point.meets_slo is None for point in asked)
        return is_open or any(name in point.few for point in asked for name in self.slo)
