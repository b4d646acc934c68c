"""A link to an agent that hangs, or that was lost while nobody looked."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from pathlib import Path

import pytest

from milabench.execute import agent_client, local_agent
from milabench.execute.agent_client import AgentNode, local_node
from milabench.execute.api import Outcome, Progress, Started, StepRequest
from milabench.plan.model import Step
from tests.processes import is_gone, until


def request(*argv: str, name: str = "s") -> StepRequest:
    return StepRequest(step=Step(id=name, bench="b", phase="run", argv=argv, needs_data=False), grace_s=0.5)


async def agent_of(node: AgentNode) -> int:
    return int((await (await node.open()).hello)["pid"])


def test_steps_of_an_agent_that_died_while_nobody_looked_are_started_by_a_new_one(tmp_path: Path) -> None:
    async def work() -> tuple[list[Outcome], list[str], int]:
        seen: list[Progress] = []
        async with local_node(f"lost-{time.monotonic_ns()}", locks=tmp_path / "locks") as node:
            agent = await agent_of(node)
            os.kill(agent, signal.SIGKILL)  # and nothing is awaited until it is asked
            outcomes = await asyncio.gather(*(node.run(request("true", name=name), seen.append) for name in "ab"))
        return list(outcomes), [one.step for one in seen if isinstance(one, Started)], agent

    outcomes, began, agent = asyncio.run(work())
    assert [outcome.name for outcome in outcomes] == ["passed", "passed"]
    assert sorted(began) == ["a", "b"]
    until(lambda: is_gone(agent))


def test_a_step_of_an_agent_that_hangs_can_be_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_client, "LEAVE_S", 0.3)

    async def work() -> tuple[Outcome, list[int]]:
        node = local_node(f"hung-{time.monotonic_ns()}", grace_s=0.5, locks=tmp_path / "locks")
        agent = await agent_of(node)
        begun: asyncio.Queue[int] = asyncio.Queue()

        def emit(event: Progress) -> None:
            if isinstance(event, Started):
                assert event.pid is not None
                begun.put_nowait(event.pid)

        running = asyncio.create_task(node.run(request("sleep", "600"), emit))
        step = await begun.get()
        os.kill(agent, signal.SIGSTOP)
        try:
            await node.end("s", grace_s=0.0)
            outcome = await running
        finally:
            with contextlib.suppress(ProcessLookupError):  # the sweep has found it
                os.kill(agent, signal.SIGKILL)
            await node.close()
        return outcome, [step, agent]

    outcome, pids = asyncio.run(work())
    assert (outcome.name, outcome.why) == ("failed", "lost-node")
    assert "did not answer 'end'" in outcome.detail
    until(lambda: all(map(is_gone, pids)))


def test_an_agent_that_says_nothing_is_given_up_and_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_client, "START_S", 0.5)
    silent = tmp_path / "pid"
    command = ["/bin/sh", "-c", f"echo $$ > {silent}; exec sleep 600"]
    answering = local_agent.agent_command

    def agent_command(*words: str) -> list[str]:
        return command if words[0] == "serve" else [*answering(*words)]

    monkeypatch.setattr(local_agent, "agent_command", agent_command)

    async def work() -> Outcome:
        async with local_node(f"silent-{time.monotonic_ns()}", grace_s=0.5) as node:
            return await node.run(request("true"), lambda _: None)

    outcome = asyncio.run(work())
    assert (outcome.name, outcome.why) == ("failed", "lost-node")
    assert "no answer within" in outcome.detail
    until(lambda: is_gone(int(silent.read_text())))


@pytest.mark.parametrize("kills", [0, 1, 2])
def test_the_loss_of_an_agent_says_whether_the_kernel_was_killing_for_memory(tmp_path: Path, kills: int) -> None:
    async def work() -> Outcome:
        async with local_node(f"memory-{time.monotonic_ns()}", grace_s=0.5, locks=tmp_path / "locks") as node:
            hello = await (await node.open()).hello
            if hello["oom_kills"] is None:
                pytest.skip("this kernel does not count its kills for memory")
            hello["oom_kills"] -= kills  # type: ignore[index]  # as if so many had come since
            begun = asyncio.Event()
            running = asyncio.create_task(
                node.run(request("sleep", "600"), lambda event: begun.set() if isinstance(event, Started) else None)
            )
            await begun.wait()
            os.kill(hello["pid"], signal.SIGKILL)
            return await running

    outcome = asyncio.run(work())
    assert outcome.why == "lost-node"
    assert outcome.detail.startswith("the agent was ended by SIGKILL; ")
    told = {0: "", 1: "meanwhile the kernel killed there 1 time for lack of memory, "}
    assert told.get(kills, f"meanwhile the kernel killed there {kills} times for lack of memory, ") in outcome.detail
    assert ("memory" in outcome.detail) == (kills > 0)
