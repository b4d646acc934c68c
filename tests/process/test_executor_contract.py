"""What every executor promises, held against the agent over pipes and against the fake that stands for it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from milabench.execute.agent_client import AgentNode, local_node
from milabench.execute.api import Frame, Progress, Started, StepRequest, Waiting
from milabench.plan.model import Step
from tests.fake_node import FakeLocks, FakeNode

Node = AgentNode | FakeNode
Make = Callable[[], Node]


@pytest.fixture(params=["agent", "fake"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    locks = FakeLocks()

    def agent() -> Node:
        return local_node(f"contract-{time.monotonic_ns()}", locks=tmp_path / "locks")

    yield agent if request.param == "agent" else (lambda: FakeNode(locks=locks))


def order(*argv: str, step: str = "s") -> StepRequest:
    return StepRequest(step=Step(id=step, bench="b", phase="run", argv=argv, needs_data=False), grace_s=0.5)


def using(make: Make, work: Callable[[Node], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        node = make()
        try:
            return await asyncio.wait_for(work(node), 60)
        finally:
            await node.close()

    return asyncio.run(run())


def carried_out(make: Make, *argv: str) -> tuple[Any, list[Progress]]:
    seen: list[Progress] = []
    return using(make, lambda node: node.run(order(*argv), seen.append)), seen


def records(seen: list[Progress]) -> list[dict[str, Any]]:
    frames = b"".join(thing.payload for thing in seen if isinstance(thing, Frame))
    return [json.loads(line) for line in frames.splitlines()]


def test_a_command_that_exits_well_has_passed(make: Make) -> None:
    outcome, seen = carried_out(make, "true")
    assert outcome.name == "passed"
    assert records(seen)[-1]["data"]["return_code"] == 0


def test_a_command_that_exits_badly_has_failed(make: Make) -> None:
    outcome, seen = carried_out(make, "false")
    assert outcome.name == "failed"
    assert (outcome.why, records(seen)[-1]["data"]["return_code"]) == ("exit", 1)


def test_a_command_that_is_not_there_has_failed_and_never_started(make: Make) -> None:
    outcome, seen = carried_out(make, "no-such-command-anywhere")
    assert outcome.name == "failed"
    assert outcome.why == "environment"
    assert not [thing for thing in seen if isinstance(thing, Started)]
    assert records(seen)[-1]["event"] == "end"


def test_the_records_begin_with_the_start_and_end_with_the_end(make: Make) -> None:
    _, seen = carried_out(make, "echo", "some", "words")
    first, line, last = records(seen)
    assert first["event"] == "start"
    assert (line["data"], line["pipe"]) == ("some words\n", "stdout")
    assert last["event"] == "end"
    assert last["data"]["outcome"] == "passed"


@pytest.mark.parametrize("grace_s", [None, 0.0])
def test_a_step_that_is_ended_is_cancelled(make: Make, grace_s: float | None) -> None:
    seen: list[Progress] = []

    async def work(node: Node) -> Any:
        started = asyncio.Event()
        running = asyncio.create_task(
            node.run(order("sleep", "600"), lambda thing: (seen.append(thing), started.set()))
        )
        await started.wait()
        await node.end("s", grace_s=grace_s)
        return await running

    outcome = using(make, work)
    assert outcome.name == "cancelled"
    assert records(seen)[-1]["data"]["return_code"] == (-15 if grace_s is None else -9)


def test_a_step_that_is_done_has_passed_when_it_is_ended(make: Make) -> None:
    async def work(node: Node) -> Any:
        started = asyncio.Event()
        running = asyncio.create_task(node.run(order("sleep", "600"), lambda _: started.set()))
        await started.wait()
        await node.end("s", is_done=True)
        return await running

    assert using(make, work).name == "passed"


def test_a_step_that_is_late_has_failed_for_a_timeout(make: Make) -> None:
    async def work(node: Node) -> Any:
        started = asyncio.Event()
        running = asyncio.create_task(node.run(order("sleep", "600"), lambda _: started.set()))
        await started.wait()
        await node.end("s", late="the others waited")
        return await running

    outcome = using(make, work)
    assert outcome.name == "failed"
    assert (outcome.why, outcome.detail) == ("timeout", "the others waited")


def test_a_group_that_is_released_is_told_with_the_clock(make: Make) -> None:
    async def work(node: Node) -> Any:
        await node.run(order("true"), lambda _: None)
        await node.stop("nothing that runs")
        return await node.release("nothing that waits")

    assert using(make, work) is not None


def test_a_node_has_a_free_port(make: Make) -> None:
    port = using(make, lambda node: node.port())
    assert port is not None
    assert 0 < port < 65536


def test_a_cancelled_task_ends_its_step_first(make: Make) -> None:
    seen: list[Progress] = []

    async def work(node: Node) -> None:
        started = asyncio.Event()

        def emit(thing: Progress) -> None:
            seen.append(thing)
            if isinstance(thing, Started):
                started.set()

        running = asyncio.create_task(node.run(order("sleep", "600"), emit))
        await started.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    using(make, work)
    assert records(seen)[-1]["data"]["outcome"] == "cancelled"


def test_ending_what_does_not_run_is_nothing(make: Make) -> None:
    assert using(make, lambda node: node.end("s")) is None


def test_a_device_that_is_held_is_told_with_its_holder(make: Make) -> None:
    async def work(first: Node) -> Any:
        second = make()
        try:
            assert await first.lock(["cuda-1", "cuda-2"], wait=False, emit=print) == ()
            held = await second.lock(["cuda-2", "cuda-3"], wait=False, emit=print)
            assert await second.lock(["cuda-3"], wait=False, emit=print) == ()
            return held
        finally:
            await second.close()

    (holder,) = using(make, work)
    assert holder.name == "cuda-2"
    assert holder.run


def test_a_device_that_is_waited_for_is_had_in_the_end(make: Make) -> None:
    async def work(first: Node) -> None:
        second, told = make(), asyncio.Event()
        try:
            await first.lock(["cuda-1"], wait=False, emit=print)
            waiting = asyncio.create_task(second.lock(["cuda-1"], wait=True, emit=lambda thing: told.set()))
            await told.wait()
            await first.close()
            assert await waiting == ()
        finally:
            await second.close()

    using(make, work)


def test_waiting_tells_for_whom(make: Make) -> None:
    async def work(first: Node) -> Any:
        second, told = make(), asyncio.get_running_loop().create_future()
        try:
            await first.lock(["cuda-1"], wait=False, emit=print)
            waiting = asyncio.create_task(second.lock(["cuda-1"], wait=True, emit=told.set_result))
            thing = await told
            waiting.cancel()
            return thing
        finally:
            await second.close()

    thing = using(make, work)
    assert isinstance(thing, Waiting)
    assert thing.holders[0].name == "cuda-1"
