"""Did the step run where, and in as many processes, as planned."""

from __future__ import annotations

from typing import Any

from milabench.checks.api import verdict_of_check
from milabench.events.model import Data, Meta, ObservationBatch, StepEvent, Verdict
from milabench.events.readings import Readings


class PlacementCheck:
    """Fails when none of the group's processes was seen on a device of the step, or the machine has lost one.

    Warns when a rank of a job never reported.

    `devices` are those of the plan, by number, empty when they are slots of a processor; `ranks` how many processes should
    report, None when that is not known.
    """

    def __init__(self, step: str, readings: Readings, devices: tuple[int, ...], ranks: int | None) -> None:
        self._step = step
        self._readings = readings
        self._devices = devices
        self._ranks = ranks
        self._seen: set[int] = set()
        self._lost: dict[str, str] = {}

    def see(self, event: StepEvent) -> None:
        """Note who reports."""
        if isinstance(event, ObservationBatch):
            self._seen.add(event.rank)
            return
        self._readings.see(event)
        lost = event.data.get("lost_accelerators") if isinstance(event, Meta) else None
        for one in lost if isinstance(lost, list) else ():
            if isinstance(one, dict) and self._devices:
                self._lost[str(one.get("index"))] = str(one.get("lost"))
        if isinstance(event, Data) and "rate" in event.data:
            rank = event.data.get("rank", 0)
            if isinstance(rank, int):
                self._seen.add(rank)

    def verdict(self) -> Verdict:
        """Fail, warn or pass, with planned and seen devices and ranks."""
        sampled = self._readings.devices
        numbers: dict[str, Any] = {
            "devices": list(self._devices),
            "sampled": sorted(sampled),
            "ranks": self._ranks,
            "reported": len(self._seen),
        }
        if self._lost:
            numbers["lost"] = self._lost
            message = "; ".join(
                f"device {index} of the machine does not answer: {why}" for index, why in self._lost.items()
            )
            return verdict_of_check(self._step, "placement", "fail", numbers, message)
        if self._ranks is not None and self._seen and len(self._seen) < self._ranks:
            message = f"{len(self._seen)} of {self._ranks} ranks reported"
            return verdict_of_check(self._step, "placement", "warn", numbers, message)
        unused = [key for key, device in sampled.items() if device.own is False]
        if unused:
            message = f"none of its processes was seen on device {', '.join(unused)}"
            return verdict_of_check(self._step, "placement", "fail", numbers, message)
        missing = [str(index) for index in self._devices if sampled and str(index) not in sampled]
        if missing and not any(key.startswith("MIG-") for key in sampled):
            return verdict_of_check(
                self._step, "placement", "warn", numbers, f"device {', '.join(missing)} was not read"
            )
        return verdict_of_check(self._step, "placement", "pass", numbers)
