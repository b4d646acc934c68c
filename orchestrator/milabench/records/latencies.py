"""The latencies of a request to a served model and their quantiles: limits of suites and criteria, numbers of points.

The client's own percentiles, which benchmate compares with the percentiles of its requests, are separate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

LATENCIES: Final = {"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2e": "whole request"}
QUANTILES: Final = (50, 90, 99)
"""In per cent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyQuantile:
    """A quantile of a latency of LATENCIES over the requests of a point, in ms. `share` of them are below it."""

    latency: str
    share: float
    label: str


LATENCY_QUANTILES: Final[Mapping[str, LatencyQuantile]] = {
    f"{latency}_p{q}_ms": LatencyQuantile(latency=latency, share=q / 100, label=f"{label} p{q}")
    for latency, label in LATENCIES.items()
    for q in QUANTILES
}
"""By the names that metrics, limits and criteria have for them."""
