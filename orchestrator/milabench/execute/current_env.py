"""Whether the running interpreter can serve as a benchmark's environment, where nothing may be installed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from packaging.markers import default_environment

from milabench.execute.inventory import installed_packages
from milabench.plan.requirements import RequirementFile, lacking, merge_locks, parse_requirements


@dataclass(frozen=True, slots=True, kw_only=True)
class Lacking:
    """A requirement that is not met; `found` is the version that is there instead, None when there is none."""

    requirement: str
    found: str | None

    def __str__(self) -> str:
        return f"{self.requirement}: " + (f"{self.found} is installed" if self.found else "not installed")


def check_current_env(
    files: Iterable[RequirementFile], installed: Mapping[str, str] | None = None
) -> tuple[Lacking, ...]:
    """Return the requirements of the files, and of benchmate, that the running interpreter does not meet.

    `installed` maps normalised names to versions; None looks.
    """
    versions = installed_packages() if installed is None else installed
    required = merge_locks([parse_requirements("benchmate"), *(parse_requirements(file.text) for file in files)])
    environment = {name: str(value) for name, value in default_environment().items()}
    return tuple(Lacking(requirement=pin.line, found=found) for pin, found in lacking(required, versions, environment))
