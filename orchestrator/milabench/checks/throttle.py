"""Did the clocks hold, and was the board allowed its power."""

from __future__ import annotations

from typing import Any

from milabench.checks.api import DeviceCheck, verdict_of_check
from milabench.events.model import Meta, StepEvent, Verdict
from milabench.events.readings import THROTTLED, Readings, share_of

# docs/methodology.md, 1.1: any of THROTTLED in more than one sample of a hundred is throttling; a power cap in software is not.
POWER_CAP = frozenset({"sw_power_cap"})
MOST = 0.01


class ThrottleCheck(DeviceCheck):
    """Fails when a device was slowed down in more than 1 % of the samples within the window."""

    def verdict(self) -> Verdict:
        """Fail or pass, with the share of the samples by device and which reasons there were."""
        found: dict[str, Any] = {}
        slowed = []
        window = self._readings.window
        for key, device in self._readings.devices.items():
            told = [device.throttle[place] for place in device.within(window)]
            share, samples = share_of(told, THROTTLED)
            if share is None:
                continue
            reasons = sorted({reason for each in told for reason in each or ()} & THROTTLED)
            found[key] = {"share": share, "samples": samples, **({"reasons": reasons} if reasons else {})}
            if share > MOST:
                slowed.append(f"device {key} in {share:.1%} of the samples ({', '.join(reasons)})")
        if slowed:
            return verdict_of_check(
                self._step, "throttle", "fail", {"devices": found}, f"slowed down: {'; '.join(slowed)}"
            )
        return verdict_of_check(self._step, "throttle", "pass", {"devices": found})


class PowerCheck(DeviceCheck):
    """Warns when a board's power limit is set below its default; tells how often the limit was reached, which is normal."""

    def __init__(self, step: str, readings: Readings, devices: tuple[int, ...]) -> None:
        super().__init__(step, readings)
        self._devices = devices
        self._limited: dict[str, dict[str, float]] = {}

    def see(self, event: StepEvent) -> None:
        """Take the limits from what is told of the machine."""
        super().see(event)
        accelerators = event.data.get("accelerators") if isinstance(event, Meta) else None
        for one in accelerators if isinstance(accelerators, list) else ():
            if not isinstance(one, dict) or one.get("index") not in self._devices:
                continue
            limit, default = one.get("power_limit_w"), one.get("power_limit_default_w")
            if isinstance(limit, int | float) and isinstance(default, int | float) and limit < default:
                self._limited[str(one["index"])] = {"limit_W": limit, "default_W": default}

    def verdict(self) -> Verdict:
        """Warn or pass, with the share of the samples at the limit by device."""
        window = self._readings.window
        shares = {
            key: share
            for key, device in self._readings.devices.items()
            if (share := share_of([device.throttle[place] for place in device.within(window)], POWER_CAP)[0])
            is not None
        }
        numbers: dict[str, Any] = {"at_limit": shares}
        if self._limited:
            numbers["limited"] = self._limited
            told = (
                f"device {key} to {one['limit_W']:g} of {one['default_W']:g} W" for key, one in self._limited.items()
            )
            return verdict_of_check(
                self._step, "power", "warn", numbers, f"power limit below its default: {', '.join(told)}"
            )
        return verdict_of_check(self._step, "power", "pass", numbers)
