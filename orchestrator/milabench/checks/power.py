"""Was the board allowed its power."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from milabench.checks.check import Check, StepContext
from milabench.events.model import Meta, StepEvent, Verdict
from milabench.events.readings import share_of

POWER_CAP = frozenset({"sw_power_cap"})


class PowerCheck(Check):
    """Warns when a board's power limit is set below its default; reports how often the limit was reached, which is normal."""

    name = "power"
    doc = "a power limit below the default; the share of samples at the limit, which is normal"
    severities = ("warn",)
    reason = "power-limited"

    def __init__(self, context: StepContext, settings: Mapping[str, Any] | None = None) -> None:
        super().__init__(context, settings)
        self._limited: dict[str, dict[str, float]] = {}

    def observe(self, event: StepEvent) -> None:
        """Take the limits from the description of the machine."""
        super().observe(event)
        accelerators = event.data.get("accelerators") if isinstance(event, Meta) else None
        for device in accelerators if isinstance(accelerators, list) else ():
            if not isinstance(device, dict) or device.get("index") not in self.context.devices:
                continue
            limit, default = device.get("power_limit_w"), device.get("power_limit_default_w")
            if isinstance(limit, int | float) and isinstance(default, int | float) and limit < default:
                self._limited[str(device["index"])] = {"limit_W": limit, "default_W": default}

    def verdict(self) -> Verdict:
        """Warn or pass, with the share of the samples at the limit by device."""
        readings = self.context.readings
        shares = {
            key: share_of([device.throttle[index] for index in device.within(readings.window)], POWER_CAP)[0]
            for key, device in readings.devices.items()
        }
        numbers: dict[str, Any] = {"at_limit": {key: share for key, share in shares.items() if share is not None}}
        if self._limited:
            numbers["limited"] = self._limited
            limits = (f"device {key} to {w['limit_W']:g} of {w['default_W']:g} W" for key, w in self._limited.items())
            return self.warning(f"power limit below its default: {', '.join(limits)}", numbers)
        return self.passed(numbers)
