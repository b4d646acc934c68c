"""Did the program raise, was its loss a number, and was it installed, and placed, as planned."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from milabench.checks.check import Check
from milabench.events.model import Verdict
from milabench.events.values import mappings_in
from milabench.shown import some_of

if TYPE_CHECKING:
    from milabench.analysis.measure import Measurement


class ErrorCheck(Check):
    """Fails on any exception in the benchmark, its instruments or voir's overseer, except SystemExit with success."""

    name = "error"
    doc = "exceptions in the program and in its instruments"
    severities = ("fail",)

    def verdict(self, measured: Measurement) -> Verdict:
        """Fail when there was an error. The message is from the first error."""
        failures = [error.headline for error in measured.errors if error.is_failure]
        numbers = {"count": len(failures)}
        return self.failure(next(filter(None, failures), ""), numbers) if failures else self.passed(numbers)


# Fewer equal losses in a row can be chance (a plateau, few digits).
_LEAST_EQUAL = 5


class LossCheck(Check):
    """Fails on a loss that is not finite or ends outside its band, warns about a constant loss.

    Settings: `min` and `max`, between which the last loss must lie. Passes where no loss is reported, unless a band is given.
    """

    name = "loss"
    doc = "finite, moving, the last loss between `validation.loss.min` and `.max`"
    severities = ("fail", "warn")

    def verdict(self, measured: Measurement) -> Verdict:
        """Fail, warn or pass, with how many losses there were."""
        losses = measured.losses
        numbers: dict[str, Any] = {"count": losses.count, "nonfinite": losses.nonfinite}
        if losses.nonfinite:
            return self.failure(f"{losses.nonfinite} of {losses.count} losses are not finite", numbers)
        low, high = self.settings.get("min"), self.settings.get("max")
        if low is not None or high is not None:
            numbers |= {"last": losses.last, "min": low, "max": high}
            if losses.last is None:
                return self.failure("no loss was reported, although a band is given for it", numbers)
            if (low is not None and losses.last < low) or (high is not None and losses.last > high):
                return self.failure(f"the last loss, {losses.last:g}, is outside its band", numbers)
        if losses.count >= _LEAST_EQUAL and losses.lowest == losses.highest:
            return self.warning(f"the loss did not move in {losses.count} reports: {losses.lowest:g}", numbers)
        return self.passed(numbers)


class PlacementCheck(Check):
    """Fails when none of the group's processes was seen on a device of the step, or the machine has lost a device.

    Warns when a rank of a job never reported.
    """

    name = "placement"
    doc = "devices and ranks as planned, own processes on each device, no device of the machine lost"
    severities = ("fail", "warn")

    def verdict(self, measured: Measurement) -> Verdict:
        """Fail, warn or pass, with planned and sampled devices and ranks."""
        sampled, ranks, reporting = measured.readings.devices, self.context.ranks, measured.reporting
        numbers: dict[str, Any] = {
            "devices": list(self.context.devices),
            "sampled": sorted(sampled),
            "ranks": ranks,
            "reported": len(reporting),
        }
        lost = [device for device in mappings_in(measured.meta.get("lost_accelerators")) if device]
        if lost and self.context.devices:
            numbers["lost"] = {str(device.get("index")): str(device.get("lost")) for device in lost}
            silent = (f"device {index} of the machine does not answer: {why}" for index, why in numbers["lost"].items())
            return self.failure("; ".join(silent), numbers)
        if ranks is not None and 0 < len(reporting) < ranks:
            return self.warning(f"{len(reporting)} of {ranks} ranks reported", numbers)
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

    def verdict(self, measured: Measurement) -> Verdict:
        """Fail or pass, with how many packages were compared and those that differ.

        Passes with nothing compared where the packages of the installation, or those that the monitor found, are not recorded.
        """
        locked, now = measured.meta.get("packages"), measured.meta.get("installed")
        if not locked or not isinstance(locked, Mapping) or not isinstance(now, Mapping):
            return self.passed({"compared": 0})
        locked, now = _by_normal_name(locked), _by_normal_name(now)
        differing = {
            name: [version, now.get(name)] for name, version in sorted(locked.items()) if now.get(name) != version
        }
        numbers: dict[str, Any] = {"compared": len(locked), "differing": differing}
        if differing:
            listed = [f"{name} {own or 'missing'} instead of {other}" for name, (other, own) in differing.items()]
            return self.failure(some_of(listed, _MAX_LISTED), numbers)
        return self.passed(numbers)


def _by_normal_name(packages: Mapping[str, Any]) -> dict[str, str]:
    """Return versions by the normalised name of the package (PEP 503)."""
    return {re.sub(r"[-_.]+", "-", str(name)).lower(): str(version) for name, version in packages.items()}
