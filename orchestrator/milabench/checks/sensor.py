"""Can the devices' own sensors be believed: did they answer to the end, and do energy and power agree."""

from __future__ import annotations

import math
from typing import Any

from milabench.checks.api import DeviceCheck, verdict_of_check
from milabench.events.model import Verdict
from milabench.events.readings import Readings, energy_of

MOST_DISAGREEMENT = 0.05
MOST_SILENCE_S = 3.0


class SensorCheck(DeviceCheck):
    """Warns when a device stopped answering before the window was over, or reported a fatal error (Xid, ECC).

    So does a window in which none of the step's accelerators, `devices` by number, was read at all.
    """

    def __init__(self, step: str, readings: Readings, devices: tuple[int, ...]) -> None:
        super().__init__(step, readings)
        self._devices = devices

    def verdict(self) -> Verdict:
        """Warn or pass, with what was lost and which errors there were by device."""
        window = self._readings.window
        found: dict[str, Any] = {}
        told = []
        if window is not None and self._devices and not self._readings.devices:
            told.append("no accelerator was read: whether it was throttled, shared or capped is not known")
        for key, device in self._readings.devices.items():
            known: dict[str, Any] = {"samples": len(device.within(window))}
            if device.lost and not (window is not None and device.lost_at > window[1]):
                known["lost"] = device.lost
                told.append(f"device {key} stopped answering: {device.lost}")
            elif window is not None and device.time and device.time[-1] < window[1] - MOST_SILENCE_S:
                known["silent_s"] = round(window[1] - device.time[-1], 3)
                told.append(f"device {key} was not read in the last {known['silent_s']:g} s of the window")
            if device.xid:
                known["xid"] = device.xid
                told.append(f"device {key} reported Xid {', '.join(map(str, device.xid))}")
            if device.ecc_uncorrected is not None and device.ecc_uncorrected[1] > device.ecc_uncorrected[0]:
                known["ecc_uncorrected"] = device.ecc_uncorrected[1] - device.ecc_uncorrected[0]
                told.append(f"device {key} has {known['ecc_uncorrected']} new uncorrected memory errors")
            found[key] = known
        if told:
            return verdict_of_check(self._step, "sensor", "warn", {"devices": found}, "; ".join(told))
        return verdict_of_check(self._step, "sensor", "pass", {"devices": found})


class EnergyCheck(DeviceCheck):
    """Warns when the energy counter and the integral of power differ by more than 5 % over the window."""

    def verdict(self) -> Verdict:
        """Warn or pass, with both in joules by device."""
        found: dict[str, Any] = {}
        told = []
        for key, device in self._readings.devices.items():
            energy = energy_of(device, self._readings.window)
            if energy.counter_j is None and energy.integral_j is None:
                continue
            found[key] = {"counter_J": energy.counter_j, "integral_J": energy.integral_j}
            apart = energy.disagreement
            if apart is not None and math.isfinite(apart) and apart > MOST_DISAGREEMENT:
                told.append(
                    f"device {key}: counter {energy.counter_j:.4g} J, power over time {energy.integral_j:.4g} J"
                )
        if told:
            return verdict_of_check(
                self._step, "energy", "warn", {"devices": found}, f"they disagree: {'; '.join(told)}"
            )
        return verdict_of_check(self._step, "energy", "pass", {"devices": found})
