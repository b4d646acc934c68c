"""Is installed what was locked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from milabench.checks.check import Check, StepContext
from milabench.events.model import Meta, StepEvent, Verdict

_MAX_LISTED = 5


class VersionsCheck(Check):
    """Fails when a package of the step's environment is not the version that was there when it was installed."""

    name = "versions"
    doc = "installed packages against those that were there after the installation"
    severities = ("fail",)

    def __init__(self, context: StepContext, settings: Mapping[str, Any] | None = None) -> None:
        super().__init__(context, settings)
        self._locked: dict[str, str] = {}
        self._installed: dict[str, str] | None = None

    def observe(self, event: StepEvent) -> None:
        """Take what was recorded at the installation, and what the monitor found installed."""
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
