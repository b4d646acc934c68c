"""Did the program raise, was its loss a number, and was it installed, and placed, as planned."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from milabench.checks.check import Check, StepContext
from milabench.events.model import Data, Meta, ObservationBatch, StepEvent, Verdict, reported_error
from milabench.events.values import finite_number


class ErrorCheck(Check):
    """Fails on any exception in the benchmark, its instruments or voir's overseer, except SystemExit with success."""

    name = "error"
    doc = "exceptions in the program and in its instruments"
    severities = ("fail",)

    _count = 0
    _first = ""

    def observe(self, event: StepEvent) -> None:
        """Count an error."""
        error = reported_error(event)
        if error is not None and error.is_failure:
            self._count += 1
            self._first = self._first or error.headline

    def verdict(self) -> Verdict:
        """Fail when there was an error. The message is from the first error."""
        numbers = {"count": self._count}
        return self.failure(self._first, numbers) if self._count else self.passed(numbers)


# Fewer equal losses in a row can be chance (a plateau, few digits).
_LEAST_EQUAL = 5


class LossCheck(Check):
    """Fails on a loss that is not finite or ends outside its band, warns about a constant loss.

    Settings: `min` and `max`, between which the last loss must lie. Passes where no loss is reported, unless a band is given.
    """

    name = "loss"
    doc = "finite, moving, the last loss between `validation.loss.min` and `.max`"
    severities = ("fail", "warn")

    _last: float | None = None
    _count = 0
    _nonfinite = 0
    _lowest = math.inf
    _highest = -math.inf

    def observe(self, event: StepEvent) -> None:
        """Take a loss into account."""
        if not isinstance(event, Data) or "loss" not in event.data:
            return
        self._count += 1
        loss = finite_number(event.data["loss"])
        if loss is None:
            self._nonfinite += 1
        else:
            self._lowest, self._highest = min(self._lowest, loss), max(self._highest, loss)
            self._last = loss

    def verdict(self) -> Verdict:
        """Fail, warn or pass, with how many losses there were."""
        numbers: dict[str, Any] = {"count": self._count, "nonfinite": self._nonfinite}
        if self._nonfinite:
            return self.failure(f"{self._nonfinite} of {self._count} losses are not finite", numbers)
        low, high = self.settings.get("min"), self.settings.get("max")
        if low is not None or high is not None:
            numbers |= {"last": self._last, "min": low, "max": high}
            if self._last is None:
                return self.failure("no loss was reported, although a band is given for it", numbers)
            if (low is not None and self._last < low) or (high is not None and self._last > high):
                return self.failure(f"the last loss, {self._last:g}, is outside its band", numbers)
        if self._count >= _LEAST_EQUAL and self._lowest == self._highest:
            return self.warning(f"the loss did not move in {self._count} reports: {self._lowest:g}", numbers)
        return self.passed(numbers)


class PlacementCheck(Check):
    """Fails when none of the group's processes was seen on a device of the step, or the machine has lost a device.

    Warns when a rank of a job never reported.
    """

    name = "placement"
    doc = "devices and ranks as planned, own processes on each device, no device of the machine lost"
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
        # Slices of a MIG device have names of their own, which say nothing of the number they were planned by.
        if missing and not any(key.startswith("MIG-") for key in sampled):
            return self.warning(f"device {', '.join(missing)} was not read", numbers)
        return self.passed(numbers)


_MAX_LISTED = 5


class VersionsCheck(Check):
    """Fails when a package of the step's environment is not the version that was there when it was installed."""

    name = "versions"
    doc = "installed packages against those that were there after the installation"
    severities = ("fail",)

    _locked: Mapping[str, str] | None = None
    _installed: Mapping[str, str] | None = None

    def observe(self, event: StepEvent) -> None:
        """Take the packages recorded at the installation, and those the monitor found installed."""
        if isinstance(event, Meta):
            if isinstance(event.data.get("packages"), Mapping):
                self._locked = _by_normal_name(event.data["packages"])
            if isinstance(event.data.get("installed"), Mapping):
                self._installed = _by_normal_name(event.data["installed"])

    def verdict(self) -> Verdict:
        """Fail or pass, with how many packages were compared and those that differ."""
        if self._installed is None or not self._locked:
            return self.passed({"compared": 0})
        differing = {
            name: [version, self._installed.get(name)]
            for name, version in sorted(self._locked.items())
            if self._installed.get(name) != version
        }
        numbers: dict[str, Any] = {"compared": len(self._locked), "differing": differing}
        if differing:
            listed = [f"{name} {now or 'missing'} instead of {locked}" for name, (locked, now) in differing.items()]
            omitted = f" and {len(listed) - _MAX_LISTED} more" if len(listed) > _MAX_LISTED else ""
            return self.failure(f"{', '.join(listed[:_MAX_LISTED])}{omitted}", numbers)
        return self.passed(numbers)


def _by_normal_name(packages: Mapping[str, Any]) -> dict[str, str]:
    """Return versions by the normalised name of the package (PEP 503)."""
    return {re.sub(r"[-_.]+", "-", str(name)).lower(): str(version) for name, version in packages.items()}
