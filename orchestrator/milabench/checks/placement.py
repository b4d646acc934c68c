"""Did the step run where, and in as many processes, as planned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from milabench.checks.check import Check, StepContext
from milabench.events.model import Data, Meta, ObservationBatch, StepEvent, Verdict


class PlacementCheck(Check):
    """Fails when none of the group's processes was seen on a device of the step, or the machine has lost one.

    Warns when a rank of a job never reported.
    """

    name = "placement"
    doc = "devices and ranks as planned; own processes on each device; no device of the machine lost"
    severities = ("fail", "warn")

    def __init__(self, context: StepContext, settings: Mapping[str, Any] | None = None) -> None:
        super().__init__(context, settings)
        self._reporting_ranks: set[int] = set()
        self._lost: dict[str, str] = {}

    def observe(self, event: StepEvent) -> None:
        """Note which rank reports, and which devices the machine has lost."""
        super().observe(event)
        match event:
            case ObservationBatch(rank=rank):
                self._reporting_ranks.add(rank)
            case Data(data=data) if "rate" in data and isinstance(data.get("rank", 0), int):
                self._reporting_ranks.add(data.get("rank", 0))
            case Meta(data={"lost_accelerators": list(devices)}) if self.context.devices:
                for device in devices:
                    if isinstance(device, dict):
                        self._lost[str(device.get("index"))] = str(device.get("lost"))
            case _:
                pass

    def verdict(self) -> Verdict:
        """Fail, warn or pass, with planned and sampled devices and ranks."""
        sampled, ranks = self.context.readings.devices, self.context.ranks
        numbers: dict[str, Any] = {
            "devices": list(self.context.devices),
            "sampled": sorted(sampled),
            "ranks": ranks,
            "reported": len(self._reporting_ranks),
        }
        if self._lost:
            numbers["lost"] = self._lost
            lost = (f"device {index} of the machine does not answer: {why}" for index, why in self._lost.items())
            return self.failure("; ".join(lost), numbers)
        if ranks is not None and 0 < len(self._reporting_ranks) < ranks:
            return self.warning(f"{len(self._reporting_ranks)} of {ranks} ranks reported", numbers)
        unused = [key for key, device in sampled.items() if device.own is False]
        if unused:
            return self.failure(f"none of its processes was seen on device {', '.join(unused)}", numbers)
        missing = [str(index) for index in self.context.devices if sampled and str(index) not in sampled]
        if missing and not any(key.startswith("MIG-") for key in sampled):
            return self.warning(f"device {', '.join(missing)} was not read", numbers)
        return self.passed(numbers)
