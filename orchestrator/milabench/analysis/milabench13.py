"""Milabench 1.3's figures of its own records, to show next to ours: a mean of rates, a score, failures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from milabench.analysis.step_results import StepResult
from milabench.events.stored_json import Number, Whole
from milabench.events.values import as_mapping, whole
from milabench.shown import grouped

_LEAST_TRIMMED = 5  # rates, from which on the smallest and the largest are left out


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
    def of(cls, results: Iterable[StepResult]) -> BenchFigures:
        """Return the figures of a benchmark from its steps. Steps that never began or never ended do not count."""
        counted = [each for each in results if each.measured.config and each.measured.start and each.measured.end]
        failed = sum(result.outcome != "passed" for result in counted)
        ngpu = max((_devices_of_step(result.measured.config) for result in counted), default=0)
        rates = [rate for result in counted for rate in result.measured.train_rates]
        if not rates:
            return cls(n=len(counted), failed=failed, ngpu=ngpu)
        own = (
            (device, each.measured) for each in counted if (device := each.measured.config.get("device")) is not None
        )
        by_device = grouped((str(device), rate) for device, measured in own for rate in measured.train_rates)
        all_devices, rate = math.fsum(map(_trimmed_mean, by_device.values())), _trimmed_mean(rates)
        return cls(
            n=len(counted),
            failed=failed,
            ngpu=ngpu,
            observations=len(rates),
            rate=rate,
            score=(all_devices if all_devices > 0 else rate) * (1 - failed / len(counted)),
        )


def _trimmed_mean(rates: Sequence[float]) -> float:
    """Return the arithmetic mean. Of 5 rates and more without the smallest and the largest, each once."""
    if len(rates) < _LEAST_TRIMMED:
        return math.fsum(rates) / len(rates)
    return math.fsum((*rates, -min(rates), -max(rates))) / (len(rates) - 2)


def _devices_of_step(config: Mapping[str, object]) -> int:
    devices, machines = config.get("devices"), whole(config.get("num_machines"), 1)
    is_one_job = as_mapping(config.get("plan")).get("method") == "njobs"
    return machines * (len(devices) if isinstance(devices, list) else 0) if is_one_job else machines
