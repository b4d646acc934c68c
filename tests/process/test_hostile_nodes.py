"""Nodes that send something else than our agent does: each ends in one sentence, and holds, fills or crashes nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from milabench.execute.api import Outcome, Progress, StepRequest
from milabench.execute.remote_host import remote_node
from milabench.plan.model import Step
from tests.hostile_agent import Change, hostile_machine


def request(*argv: str, name: str = "s", timeout_s: float | None = None) -> StepRequest:
    step = Step(id=name, bench="b", phase="run", argv=argv, needs_data=False, node="h0", timeout_s=timeout_s)
    return StepRequest(step=step, grace_s=0.5)


@pytest.fixture
def outcome_of(tmp_path: Path) -> Callable[..., Outcome]:
    """Runs a step on a machine whose answers a change alters, and returns its outcome."""

    def outcome(
        change: Change, *argv: str, seen: list[Progress] | None = None, timeout_s: float | None = None
    ) -> Outcome:
        async def work() -> Outcome:
            machine = hostile_machine(change)
            marker = f"hostile-{time.monotonic_ns()}"
            node = remote_node(machine, marker, grace_s=0.5, locks=tmp_path / "locks")
            try:
                return await node.run(
                    request(*(argv or ("true",)), timeout_s=timeout_s), (seen if seen is not None else []).append
                )
            finally:
                await node.close()
                await machine.close()

        return asyncio.run(work())

    return outcome


def test_a_node_whose_answers_are_not_changed_runs_its_step(outcome_of: Callable[..., Outcome]) -> None:
    assert outcome_of(lambda message: [message.whole]) == Outcome("passed")
