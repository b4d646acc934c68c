"""Milabench 1.3's figures of its own records, to show next to ours: a mean of rates, a score, failures."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from milabench.events.stored_json import Number, Whole

_LEAST_TRIMMED = 5  # rates, from which on the smallest and the largest are left out


@dataclass(frozen=True, slots=True, kw_only=True)
class RateSum:
    """Rates that can be pooled with other steps' rates: how many, their sum, the smallest and the largest."""

    count: int
    total: float
    least: float
    most: float

    @classmethod
    def of(cls, rates: Iterable[float]) -> RateSum | None:
        """Return the pool of these rates. None without any."""
        known = list(rates)
        return cls(count=len(known), total=math.fsum(known), least=min(known), most=max(known)) if known else None

    @classmethod
    def pooled(cls, sums: Iterable[RateSum]) -> RateSum | None:
        """Return the pooled rates of several steps. None without any."""
        parts = list(sums)
        if not parts:
            return None
        return cls(
            count=sum(part.count for part in parts),
            total=math.fsum(part.total for part in parts),
            least=min(part.least for part in parts),
            most=max(part.most for part in parts),
        )

    @property
    def trimmed_mean(self) -> float:
        """The arithmetic mean. Of 5 rates and more without the smallest and the largest, each once."""
        if self.count < _LEAST_TRIMMED:
            return self.total / self.count
        return math.fsum((self.total, -self.least, -self.most)) / (self.count - 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFigures:
    """A step as milabench 1.3 counts it. `device` is its own device, None where it had `ngpu` devices."""

    is_success: bool
    ngpu: int = 0
    device: str | None = None
    rates: RateSum | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchFigures:
    """A benchmark in the report of milabench 1.3: `n` steps that began and ended, `failed` of them, and their `observations`.

    `rate` is the mean of all their rates, failed steps' included, and `score` the sum of the devices' means, else that mean,
    times the share of successes. Both are None without a rate. `ngpu` are the devices of a step, not of all.
    """

    n: Whole
    failed: Whole
    ngpu: Whole = 0
    observations: Whole = 0
    rate: Number | None = None
    score: Number | None = None

    @classmethod
    def of(cls, steps: Iterable[StepFigures]) -> BenchFigures:
        """Return the figures of a benchmark from all of its steps that began and ended."""
        counted = list(steps)
        failed, ngpu = sum(not step.is_success for step in counted), max((step.ngpu for step in counted), default=0)
        by_device: dict[str, list[RateSum]] = {}
        for step in counted:
            if step.rates is not None and step.device is not None:
                by_device.setdefault(step.device, []).append(step.rates)
        pooled = RateSum.pooled(step.rates for step in counted if step.rates is not None)
        if pooled is None:
            return cls(n=len(counted), failed=failed, ngpu=ngpu)
        of_devices = (RateSum.pooled(rates) for rates in by_device.values())
        all_devices = math.fsum(rates.trimmed_mean for rates in of_devices if rates is not None)
        reached = all_devices if all_devices > 0 else pooled.trimmed_mean
        return cls(
            n=len(counted),
            failed=failed,
            ngpu=ngpu,
            observations=pooled.count,
            rate=pooled.trimmed_mean,
            score=reached * (1 - failed / len(counted)),
        )
