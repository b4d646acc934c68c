"""The agents of this machine that a plan needs, started as soon as the run has a name: they start while the rest is imported."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from milabench.execute.local_agent import LocalAgent, lock_folder
from milabench.plan.model import Plan
from milabench.workflow.options import CommandContext


def local_names(plan: Plan, context: CommandContext) -> list[str]:
    """Return the names of this machine where the plan uses it, or where it is the only node."""
    used = {step.node for step in plan.steps}
    return [node.name for node in context.nodes if node.local and (node.name in used or len(context.nodes) == 1)]


def marker_ahead(plan: Plan, context: CommandContext) -> str | None:
    """Return the marker of the agent that was started ahead, where this is the run that it was started for."""
    agent = context.session.agent
    return None if agent is None or plan.phase != "run" else agent.run_id


@contextlib.contextmanager
def local_agents(plan: Plan, context: CommandContext, marker: str) -> Iterator[Mapping[str, LocalAgent]]:
    """Start the agents, by the name of their node. Those that nobody has taken over leave at the end of this context.

    The agent that was started ahead with this marker is included: until here the session ends it. Raises Unreachable.
    """
    with contextlib.ExitStack() as started:
        agents, ahead = {}, None
        if marker_ahead(plan, context) == marker:
            ahead, context.session.agent = context.session.agent, None
        for name in local_names(plan, context):
            agents[name], ahead = ahead or LocalAgent(name, marker, locks=lock_folder()), None
            started.callback(agents[name].leave)
        if ahead is not None:
            ahead.leave()  # all is done on other machines
        yield agents
