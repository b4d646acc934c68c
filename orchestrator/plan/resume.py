"""What is left to do of a plan."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from orchestrator.plan.model import Plan


def left(plan: Plan, passed: Collection[str]) -> Plan:
    """The plan of the groups in which a step has not passed.

    A group is done again as a whole: its steps are measured side by side, and one alone would be another measurement.
    """
    groups = (group for group in plan.groups() if not all(step.id in passed for step in group))
    return replace(plan, steps=tuple(step for group in groups for step in group))


def only(plan: Plan, steps: Collection[str]) -> Plan:
    """The plan of the groups that hold one of these steps."""
    groups = (group for group in plan.groups() if any(step.id in steps for step in group))
    return replace(plan, steps=tuple(step for group in groups for step in group))
