"""Texts shared by reports and commands. Imports nothing that is reported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def duration(seconds: float) -> str:
    """Return `1.2 s`, `12 s`, `3 min 4 s`, `2 h 5 min`."""
    whole = max(0, round(seconds))
    if whole < 10:
        return f"{max(0.0, seconds):.1f} s"
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def replicates_text(decision: Mapping[str, Any], aim: Mapping[str, Any]) -> str:
    """Return how often a benchmark runs and why. Both arguments are as in the manifest."""
    wanted, planned = decision.get("wanted"), decision.get("planned")
    if wanted is not None and planned < wanted:
        return f"{planned} of {wanted} repeats: the budget of {duration(aim.get('budget_s') or 0)} reaches no further"
    replicates = f"{planned} repeats"
    return replicates if aim.get("precision") is None else f"{replicates} for {aim_text(aim)}"


def aim_text(aim: Mapping[str, Any]) -> str:
    """Return the precision target of a run, from its manifest."""
    precision = aim.get("precision")
    return "a budget" if precision is None else f"a precision of {percents(precision)}"


def percents(fraction: float) -> str:
    """Return `1 %`, `0.25 %`, `518 %`."""
    return f"{100 * fraction:{'.2g' if abs(fraction) < 0.995 else '.0f'}} %"


def format_number(value: float | None) -> str:
    """Return a number in at least four digits, short enough to read. Empty when there is none."""
    if value is None:
        return ""
    size = abs(value)
    if value == 0:
        return "0"
    if size >= 1e7 or size < 1e-3:
        return f"{value:.4g}"
    if size >= 1000:
        return f"{value:.1f}"
    return f"{value:.2f}" if size >= 10 else f"{value:.4f}"


def percent_cell(fraction: float | None) -> str:
    """Return a fraction as a cell of a column headed `%`. Empty when there is none."""
    return "" if fraction is None else f"{100 * fraction:.1f}"
