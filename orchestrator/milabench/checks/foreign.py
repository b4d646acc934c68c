"""Did anybody else compute on the step's devices while it measured."""

from __future__ import annotations

from typing import Any

from milabench.checks.api import DeviceCheck, verdict_of_check
from milabench.events.model import Verdict


class ForeignCheck(DeviceCheck):
    """Fails when a process that is not of the step's group was seen on one of its devices within the window."""

    def verdict(self) -> Verdict:
        """Fail or pass, with the foreign processes and their memory in MiB by device."""
        window = self._readings.window
        found: dict[str, dict[str, float | None]] = {}
        for key, device in self._readings.devices.items():
            for time, pid, memory in device.foreign:
                # A list of processes is read once a second: what was there just before the window was there in it.
                if window is None or window[0] - 1 <= time <= window[1] + 1:
                    held = found.setdefault(key, {}).get(str(pid))
                    found[key][str(pid)] = memory if held is None else max(held, memory)
        numbers: dict[str, Any] = {
            "devices": {
                key: {pid: None if size != size else size for pid, size in held.items()}  # noqa: PLR0124 - nan
                for key, held in found.items()
            }
        }
        if found:
            told = (f"{', '.join(held)} on device {key}" for key, held in found.items())
            return verdict_of_check(self._step, "foreign", "fail", numbers, f"foreign processes: {'; '.join(told)}")
        return verdict_of_check(self._step, "foreign", "pass", numbers)
