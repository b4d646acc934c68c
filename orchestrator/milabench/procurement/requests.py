"""What `project`, `budget`, `import-meter` and `offer compare` are asked, as values."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectRequest:
    """Which runs, or JSON reports or bundles of runs, are projected, and how far.

    `to` are counts, by default 2, 4 and 8 times the largest measured. `of` is their unit, by default nodes where runs differ
    in them, else devices. `bound` is `COUNT: WHO ANSWERS FOR IT`. `across`: also where arguments differ between the counts.
    """

    runs: tuple[str, ...]
    base: Path | None = None
    benchmarks: tuple[str, ...] = ()
    to: tuple[int, ...] = ()
    of: Literal["nodes", "devices"] | None = None
    bound: str | None = None
    across: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetRequest:
    """Budget questions about systems: runs, reports, bundles or offers. Amounts are texts such as `2M` and `400kW`.

    Without a question those are asked that the limits of the tender are about.
    """

    tender: Path
    systems: tuple[str, ...] = ()
    base: Path | None = None
    match: tuple[str, str] | None = None
    spend: str | None = None
    power: str | None = None
    metric: str | None = None
    vary: float = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class MeterRequest:
    """The readings of which file are added to which run. Without a `clock_offset` in seconds it is computed.

    Of the `outlets` alone, where any are named. `declaration` is the file with the meter's coverage and error.
    """

    run: str
    file: Path
    base: Path | None = None
    clock_offset: float | None = None
    outlets: tuple[str, ...] = ()
    declaration: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffersRequest:
    """The offers of which folder are compared by which tender. `allowed_signers` are the keys that may have signed them."""

    folder: Path
    tender: Path
    base: Path | None = None
    metric: str | None = None
    allowed_signers: Path | None = None
