"""The agents of this machine that a plan needs, started as soon as the run has a name: they start while the rest is imported."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from milabench.execute.local_agent import LocalAgent, lock_folder
from milabench.plan.model import Plan
from milabench.workflow.context import CommandContext


def local_names(plan: Plan, context: CommandContext) -> list[str]:
    """Return the names of this machine where the plan uses it, or where it is the only one."""
    used = {step.node for step in plan.steps}
    return [node.name for node in context.nodes if node.local and (node.name in used or len(context.nodes) == 1)]


def agent_ahead(plan: Plan, context: CommandContext) -> LocalAgent | None:
    """Return the agent that was started ahead, for the run that it was started for; it is this run's from now on."""
    agent = context.session.agent
    if agent is None or plan.phase != "run":
        return None
    context.session.agent = None
    return agent


@contextlib.contextmanager
def local_agents(
    plan: Plan, context: CommandContext, marker: str, ahead: LocalAgent | None = None
) -> Iterator[Mapping[str, LocalAgent]]:
    """Start the agents, by the name of their node; those that nobody has taken over leave at the end of this context.

    `ahead` is already one of them. Raises Unreachable.
    """
    with contextlib.ExitStack() as started:
        agents = {}
        for name in local_names(plan, context):
            agents[name], ahead = ahead or LocalAgent(name, marker, locks=lock_folder()), None
            started.callback(agents[name].leave)
        if ahead is not None:
            ahead.leave()  # all is done on other machines
        yield agents
