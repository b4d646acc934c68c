"""The agents of this machine that a plan needs, started as soon as the run has a name: they start while the rest is imported."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from milabench.execute.local_agent import LocalAgent
from milabench.plan.model import Plan
from milabench.workflow.context import CommandContext


def local_names(plan: Plan, context: CommandContext) -> list[str]:
    """Return the names of this machine where the plan uses it, or where it is the only one."""
    used = {step.node for step in plan.steps}
    return [node.name for node in context.nodes if node.local and (node.name in used or len(context.nodes) == 1)]


@contextlib.contextmanager
def local_agents(plan: Plan, context: CommandContext, marker: str) -> Iterator[Mapping[str, LocalAgent]]:
    """Start the agents, by the name of their node; those that nobody has taken over leave at the end of this context.

    Raises Unreachable.
    """
    with contextlib.ExitStack() as started:
        agents = {}
        for name in local_names(plan, context):
            agents[name] = LocalAgent(name, marker, locks=lock_folder())
            started.callback(agents[name].leave)
        yield agents


def lock_folder() -> Path | None:
    """Return another folder for device locks than the one that all runs of a machine share: for tests, which run concurrently."""
    return Path(os.environ["MILABENCH_LOCK_DIR"]) if "MILABENCH_LOCK_DIR" in os.environ else None
