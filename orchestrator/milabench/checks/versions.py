"""Is installed what was locked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from milabench.checks.api import verdict_of_check
from milabench.events.model import Meta, StepEvent, Verdict

_SHOWN = 5


class VersionsCheck:
    """Fails when a package of the step's environment is not the version that was there when it was installed."""

    def __init__(self, step: str) -> None:
        self._step = step
        self._locked: dict[str, str] = {}
        self._installed: dict[str, str] | None = None

    def see(self, event: StepEvent) -> None:
        """Take what was recorded at the installation, and what the monitor found."""
        if isinstance(event, Meta):
            if isinstance(event.data.get("packages"), Mapping):
                self._locked = _by_name(event.data["packages"])
            if isinstance(event.data.get("installed"), Mapping):
                self._installed = _by_name(event.data["installed"])

    def verdict(self) -> Verdict:
        """Fail or pass, with how many packages were compared and those that differ."""
        if self._installed is None or not self._locked:
            return verdict_of_check(self._step, "versions", "pass", {"compared": 0})
        differing = {
            name: [version, self._installed.get(name)]
            for name, version in sorted(self._locked.items())
            if self._installed.get(name) != version
        }
        numbers: dict[str, Any] = {"compared": len(self._locked), "differing": differing}
        if differing:
            told = [f"{name} {found or 'missing'} instead of {locked}" for name, (locked, found) in differing.items()]
            more = f" and {len(told) - _SHOWN} more" if len(told) > _SHOWN else ""
            return verdict_of_check(self._step, "versions", "fail", numbers, f"{', '.join(told[:_SHOWN])}{more}")
        return verdict_of_check(self._step, "versions", "pass", numbers)


def _by_name(packages: Mapping[str, Any]) -> dict[str, str]:
    return {re.sub(r"[-_.]+", "-", str(name)).lower(): str(version) for name, version in packages.items()}
