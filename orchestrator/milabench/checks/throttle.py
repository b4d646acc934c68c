"""Did the clocks hold."""

from __future__ import annotations

from typing import Any

from milabench.checks.check import Check
from milabench.events.model import Verdict
from milabench.events.readings import THROTTLED, share_of

# methodology.md, 1.1: any of THROTTLED in more than one sample of a hundred is throttling; a power cap in software is not.
MAX_SHARE = 0.01


class ThrottleCheck(Check):
    """Fails when a device was slowed down in more than 1 % of the samples within the window."""

    name = "throttle"
    doc = "`hw_slowdown sw_thermal hw_thermal power_brake` in more than 1 % of the window's samples"
    severities = ("fail",)
    reason = "throttled"

    def verdict(self) -> Verdict:
        """Fail or pass, with the share of the samples by device and which reasons there were."""
        readings = self.context.readings
        by_device: dict[str, Any] = {}
        slowed = []
        for key, device in readings.devices.items():
            sampled = [device.throttle[index] for index in device.within(readings.window)]
            share, samples = share_of(sampled, THROTTLED)
            if share is None:
                continue
            reasons = sorted({reason for sample in sampled for reason in sample or ()} & THROTTLED)
            by_device[key] = {"share": share, "samples": samples, **({"reasons": reasons} if reasons else {})}
            if share > MAX_SHARE:
                slowed.append(f"device {key} in {share:.1%} of the samples ({', '.join(reasons)})")
        if slowed:
            return self.failure(f"slowed down: {'; '.join(slowed)}", {"devices": by_device})
        return self.passed({"devices": by_device})
