"""Did anybody else compute on the step's devices while it measured."""

from __future__ import annotations

import math
from typing import Any

from milabench.checks.check import Check
from milabench.events.model import Verdict


class ForeignCheck(Check):
    """Fails when a process that is not of the step's group was seen on one of its devices within the window."""

    name = "foreign"
    doc = "processes of others on the step's devices in the window"
    severities = ("fail",)
    reason = "foreign-process"

    def verdict(self) -> Verdict:
        """Fail or pass, with the foreign processes and their memory in MiB by device."""
        readings = self.context.readings
        window = readings.window
        memory_of: dict[str, dict[str, float]] = {}
        for key, device in readings.devices.items():
            for time, pid, memory_mib in device.foreign:
                # A list of processes is read once a second: what was there just before the window was there in it.
                if window is None or window[0] - 1 <= time <= window[1] + 1:
                    known = memory_of.setdefault(key, {})
                    known[str(pid)] = max(known.get(str(pid), memory_mib), memory_mib)
        numbers: dict[str, Any] = {
            "devices": {
                key: {pid: None if math.isnan(memory_mib) else memory_mib for pid, memory_mib in processes.items()}
                for key, processes in memory_of.items()
            }
        }
        if memory_of:
            seen = "; ".join(f"{', '.join(processes)} on device {key}" for key, processes in memory_of.items())
            return self.failure(f"foreign processes: {seen}", numbers)
        return self.passed(numbers)
