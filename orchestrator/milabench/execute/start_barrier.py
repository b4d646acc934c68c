"""The start barrier of a group on several nodes: which steps are ready to measure, and which have measured enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from milabench.plan.model import Step


@dataclass(slots=True, kw_only=True)
class GroupBarrier:
    """The steps of a group that wait for each other across nodes, by id. An ended step is waited for no longer.

    `limit_s` is how long the first that is ready waits for the last, in seconds. None: for ever.
    """

    group: str
    nodes: Mapping[str, str]
    limit_s: float | None = None
    ready: set[str] = field(default_factory=set)
    measured: set[str] = field(default_factory=set)
    ended: set[str] = field(default_factory=set)
    is_released: bool = False
    is_stopped: bool = False

    @property
    def live(self) -> list[str]:
        """The steps that have not ended."""
        return [step for step in self.nodes if step not in self.ended]

    @property
    def late(self) -> list[str]:
        """The steps that the others wait for at the start barrier."""
        return [] if self.is_released else [step for step in self.live if step not in self.ready]

    @property
    def may_start(self) -> bool:
        """Whether all that live wait at the start barrier."""
        return not self.is_released and bool(self.live) and not self.late

    @property
    def may_stop(self) -> bool:
        """Whether all that live have their observations, so that nobody needs their load any longer."""
        is_open = self.is_released and not self.is_stopped and bool(self.live)
        return is_open and all(step in self.measured for step in self.live)


def group_barrier(steps: Sequence[Step]) -> GroupBarrier | None:
    """Return the barrier of the steps that start measuring together on several nodes. None without such steps."""
    measures: dict[str, Any] = {step.id: step.config.get("measure") for step in steps}
    waiting = [step for step in steps if isinstance(measure := measures[step.id], Mapping) and measure.get("barrier")]
    if len({step.node for step in waiting}) < 2:
        return None
    limits = [limit for step in waiting if (limit := measures[step.id].get("barrier_timeout_s")) is not None]
    return GroupBarrier(
        group=waiting[0].group or waiting[0].id,
        nodes={step.id: step.node for step in waiting},
        limit_s=max(limits, default=None),
    )
