"""Words that several reports and verbs say the same things in; it imports nothing of what is reported."""

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
    """Return how often one benchmark is run and why; both arguments as in the manifest."""
    wanted, planned, spread = decision.get("wanted"), decision.get("planned"), decision.get("log_spread")
    budget = f"the budget of {duration(aim.get('budget_s') or 0)} reaches no further"
    if wanted is None:
        return f"{planned} replicates: fewer than three of its pilot have a rate, from which nothing follows"
    if spread is None:
        return f"{planned} replicates" if planned >= wanted else f"{planned} of {wanted} replicates: {budget}"
    why = f"for {aim_text(aim)}, with {percents(spread)} between launches"
    return f"{wanted} replicates {why}" if planned >= wanted else f"{planned} of {wanted} replicates {why}: {budget}"


def aim_text(aim: Mapping[str, Any]) -> str:
    """Return the precision target of a run, from its manifest."""
    precision = aim.get("precision")
    return "a budget" if precision is None else f"a precision of {percents(precision)}"


def percents(fraction: float) -> str:
    """Return `1 %`, `0.25 %`."""
    return f"{100 * fraction:.2g} %"
