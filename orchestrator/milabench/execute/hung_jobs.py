"""Jobs that hang: their other nodes are asked for evidence too, and the outcome states the finding of all evidence."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from milabench import seams
from milabench.execute.agent_client import AgentNode
from milabench.execute.api import Outcome
from milabench.plan.model import Step

if TYPE_CHECKING:
    from milabench.records.hang_evidence import NodeEvidence

WAIT_S = 4.0  # for the evidence of the other nodes, which take two seconds


class HungJobs:
    """Facts about the steps that hung, or whose node was lost, and about their jobs. `running` are the steps that run now."""

    def __init__(self, steps: Sequence[Step], running: Mapping[str, AgentNode]) -> None:
        self._steps = {step.id: step for step in steps}
        self._running = running
        self._asked: dict[str, asyncio.Task[None]] = {}
        self._releasing: set[asyncio.Task[None]] = set()
        self._evidence: dict[str, NodeEvidence] = {}
        self._lost: set[str] = set()

    def begin(self, step: Step) -> None:
        """Forget an earlier attempt at a step."""
        self._steps[step.id] = step
        self._asked.pop(step.id, None)
        self._evidence.pop(step.id, None)
        self._lost.discard(step.id)

    def ask_others(self, step: str) -> None:
        """Ask the nodes of the job's other steps for their evidence, and then let a step end that waits for it."""
        others = [other.id for other in self._job(step) if other.id != step]
        for other in others:
            if other not in self._asked and (node := self._running.get(other)):
                self._asked[other] = asyncio.create_task(node.collect(other))
        self._releasing.add(task := asyncio.create_task(self._release(step, others)))
        task.add_done_callback(self._releasing.discard)

    async def _release(self, step: str, others: Sequence[str]) -> None:
        if asked := {self._asked[other] for other in others if other in self._asked}:
            await asyncio.wait(asked)
        if node := self._running.get(step):
            await node.collected(step)

    def add(self, step: str, evidence: NodeEvidence) -> None:
        """Keep the evidence of a step."""
        self._evidence[step] = evidence

    async def explained(self, step: Step, outcome: Outcome) -> Outcome:
        """Return the outcome, with the finding if the step hung, or was lost and left others of its job behind."""
        if outcome.why not in ("silent", "timeout", "lost-node") or not seams.takes_part("hangs"):
            return outcome
        if outcome.why == "lost-node":
            self._lost.add(step.id)
            self.ask_others(step.id)
        job = self._job(step.id)
        if asked := {self._asked[each.id] for each in job if each.id in self._asked}:
            await asyncio.wait(asked, timeout=WAIT_S)
        from milabench.records.hang_evidence import JobMember

        members = [
            JobMember(
                step=each.id,
                node=each.node,
                devices=each.devices,
                evidence=self._evidence.get(each.id),
                is_lost=each.id in self._lost,
            )
            for each in job
        ]
        finding: str = seams.handler("hangs")(members)
        return replace(outcome, detail=f"{outcome.detail}; {finding}") if finding else outcome

    def _job(self, step: str) -> list[Step]:
        job = self._steps[step].job
        return [each for each in self._steps.values() if each.id == step or (job and each.job == job)]
