"""What is left to do of a plan."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from milabench.plan.model import Plan, Step


def remaining_plan(plan: Plan, passed: Collection[str], bundles: Sequence[Sequence[Step]] | None = None) -> Plan:
    """Return the plan of the bundles in which a step has not passed; of its groups, where no bundles are given.

    A group is done again as a whole: its steps are concurrent, and an instance measured alone is not comparable. So
    are the two sides of a pair: what drifts cancels only while one follows the other.
    """
    todo = (bundle for bundle in bundles or plan.groups() if not all(step.id in passed for step in bundle))
    return replace(plan, steps=tuple(step for bundle in todo for step in bundle))


def restricted_plan(plan: Plan, steps: Collection[str]) -> Plan:
    """Return the plan of the groups that hold one of these steps."""
    groups = (group for group in plan.groups() if any(step.id in steps for step in group))
    return replace(plan, steps=tuple(step for group in groups for step in group))
