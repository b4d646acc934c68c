"""Was the accelerator used: load and memory over the measured window."""

from __future__ import annotations

import math
from typing import Any

from milabench.checks.check import Check
from milabench.events.model import Verdict


class UsageCheck(Check):
    """Fails when a device's mean load, or the share of its memory in use at the peak, stays below the suite's threshold.

    Settings: `gpu_load_threshold` and `gpu_mem_threshold`, 0 to 1 each; what is left out is not looked at. Only what was
    sampled within the window counts.
    """

    name = "usage"
    doc = (
        "mean load and peak memory in the window against `validation.usage.gpu_load_threshold`, `.gpu_mem_threshold`; "
        "only where given"
    )
    severities = ("fail", "warn")
    needs_settings = True

    def verdict(self) -> Verdict:
        """Fail, warn or pass, with each device's load and memory."""
        readings = self.context.readings
        thresholds = {
            "load": _threshold(self.settings.get("gpu_load_threshold")),
            "memory": _threshold(self.settings.get("gpu_mem_threshold")),
        }
        by_device: dict[str, Any] = {}
        low, unknown = [], []
        for key, device in readings.devices.items():
            indices = device.within(readings.window)
            loads = [device.load[index] for index in indices if not math.isnan(device.load[index])]
            shares = [device.used[index] / device.total[index] for index in indices if device.total[index] > 0]
            usage = {
                "load": math.fsum(loads) / len(loads) if loads else None,
                "memory": max((share for share in shares if not math.isnan(share)), default=None),
            }
            by_device[key] = {**usage, "samples": len(indices)}
            for name, threshold in thresholds.items():
                value = usage[name]
                if threshold is None:
                    continue
                if value is None:
                    unknown.append(f"{name} of device {key}")
                elif value < threshold:
                    low.append(f"{name} of device {key} is {value:.1%}, below {threshold:.1%}")
        numbers = {
            "thresholds": {name: threshold for name, threshold in thresholds.items() if threshold is not None},
            "devices": by_device,
        }
        if low:
            return self.failure("; ".join(low), numbers)
        if unknown:
            return self.warning(f"not read in the window: {', '.join(unknown)}", numbers)
        if not by_device and self.context.devices:
            return self.warning("no monitor read the devices", numbers)
        return self.passed(numbers)


def _threshold(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
