"""Do a device's energy counter and its power agree."""

from __future__ import annotations

import math
from typing import Any

from milabench.checks.check import Check
from milabench.events.model import Verdict
from milabench.events.readings import energy_of

MAX_DISAGREEMENT = 0.05


class EnergyCheck(Check):
    """Warns when the energy counter and the integral of power differ by more than 5 % over the window."""

    name = "energy"
    doc = "counter against power integrated over the window, more than 5 % apart"
    severities = ("warn",)
    reason = "energy"

    def verdict(self) -> Verdict:
        """Warn or pass, with both in joules by device."""
        by_device: dict[str, Any] = {}
        problems = []
        for key, device in self.context.readings.devices.items():
            energy = energy_of(device, self.context.readings.window)
            if energy.counter_j is None and energy.integral_j is None:
                continue
            by_device[key] = {"counter_J": energy.counter_j, "integral_J": energy.integral_j}
            disagreement = energy.disagreement
            if disagreement is not None and math.isfinite(disagreement) and disagreement > MAX_DISAGREEMENT:
                problems.append(
                    f"device {key}: counter {energy.counter_j:.4g} J, power over time {energy.integral_j:.4g} J"
                )
        if problems:
            return self.warning(f"they disagree: {'; '.join(problems)}", {"devices": by_device})
        return self.passed({"devices": by_device})
