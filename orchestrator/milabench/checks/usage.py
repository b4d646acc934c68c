"""Was the accelerator used: load and memory over the measured window."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from milabench.checks.api import DeviceCheck, verdict_of_check
from milabench.events.model import Verdict
from milabench.events.readings import Readings


class UsageCheck(DeviceCheck):
    """Fails when a device's mean load, or the share of its memory in use at the peak, stays below the suite's threshold.

    `settings`: `gpu_load_threshold` and `gpu_mem_threshold`, 0 to 1 each; what is left out is not looked at. Only what was
    sampled within the window counts; `has_devices` whether there should have been something to sample.
    """

    def __init__(self, step: str, readings: Readings, settings: Mapping[str, Any], *, has_devices: bool) -> None:
        super().__init__(step, readings)
        self._least = {
            "load": _threshold(settings.get("gpu_load_threshold")),
            "memory": _threshold(settings.get("gpu_mem_threshold")),
        }
        self._has_devices = has_devices

    def verdict(self) -> Verdict:
        """Fail, warn or pass, with each device's load and memory."""
        numbers: dict[str, Any] = {
            "thresholds": {name: least for name, least in self._least.items() if least is not None}
        }
        found: dict[str, Any] = {}
        low, unknown = [], []
        window = self._readings.window
        for key, device in self._readings.devices.items():
            places = device.within(window)
            loads = [device.load[place] for place in places if not math.isnan(device.load[place])]
            shares = [device.used[place] / device.total[place] for place in places if device.total[place] > 0]
            known = {
                "load": math.fsum(loads) / len(loads) if loads else None,
                "memory": max((share for share in shares if not math.isnan(share)), default=None),
            }
            found[key] = {**known, "samples": len(places)}
            for name, least in self._least.items():
                value = known[name]
                if least is None:
                    continue
                if value is None:
                    unknown.append(f"{name} of device {key}")
                elif value < least:
                    low.append(f"{name} of device {key} is {value:.1%}, below {least:.1%}")
        numbers["devices"] = found
        if low:
            return verdict_of_check(self._step, "usage", "fail", numbers, "; ".join(low))
        if unknown:
            return verdict_of_check(
                self._step, "usage", "warn", numbers, f"not read in the window: {', '.join(unknown)}"
            )
        if not found and self._has_devices:
            return verdict_of_check(self._step, "usage", "warn", numbers, "nobody read the devices")
        return verdict_of_check(self._step, "usage", "pass", numbers)


def _threshold(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
