"""Did the devices' own sensors answer to the end."""

from __future__ import annotations

from typing import Any

from milabench.checks.check import Check
from milabench.events.model import Verdict

MAX_SILENCE_S = 3.0


class SensorCheck(Check):
    """Warns when a device stopped answering before the window was over, or reported a fatal error (Xid, ECC).

    So does a window in which none of the step's accelerators was read at all.
    """

    name = "sensor"
    doc = "devices that stopped answering; Xid; new uncorrected ECC errors"
    severities = ("warn",)
    reason = "sensor-lost"

    def verdict(self) -> Verdict:
        """Warn or pass, with what was lost and which errors there were by device."""
        readings = self.context.readings
        window = readings.window
        by_device: dict[str, Any] = {}
        problems = []
        if window is not None and self.context.devices and not readings.devices:
            problems.append("no accelerator was read: whether it was throttled, shared or capped is not known")
        for key, device in readings.devices.items():
            numbers: dict[str, Any] = {"samples": len(device.within(window))}
            if device.lost and not (window is not None and device.lost_at > window[1]):
                numbers["lost"] = device.lost
                problems.append(f"device {key} stopped answering: {device.lost}")
            elif window is not None and device.time and device.time[-1] < window[1] - MAX_SILENCE_S:
                numbers["silent_s"] = round(window[1] - device.time[-1], 3)
                problems.append(f"device {key} was not read in the last {numbers['silent_s']:g} s of the window")
            if device.xid:
                numbers["xid"] = device.xid
                problems.append(f"device {key} reported Xid {', '.join(map(str, device.xid))}")
            if device.ecc_uncorrected is not None and device.ecc_uncorrected[1] > device.ecc_uncorrected[0]:
                numbers["ecc_uncorrected"] = device.ecc_uncorrected[1] - device.ecc_uncorrected[0]
                problems.append(f"device {key} has {numbers['ecc_uncorrected']} new uncorrected memory errors")
            by_device[key] = numbers
        if problems:
            return self.warning("; ".join(problems), {"devices": by_device})
        return self.passed({"devices": by_device})
