"""What `project` and `budget` are asked, as values."""

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
