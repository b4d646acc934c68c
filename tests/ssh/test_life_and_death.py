"""Whatever ends a run on other machines, nothing of it is left there, and what happened is said."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from milabench.execute.api import EvidenceCollected, Frame, Progress, Started, StepRequest
from milabench.execute.messages import EVIDENCE
from milabench.execute.remote_host import RemoteHost, node_marker, remote_node
from tests.commands import Said
from tests.processes import until
from tests.ssh.conftest import PROGRAMS, address, carrying, python, step, until_async
from tests.ssh.hosts import Hosts, sessions

TREE = (sys.executable, str(PROGRAMS / "tree.py"), "wait")
AWKWARD = ("a b", "it's", 'say "no"', "$(touch /tmp/x)", "`id`", "*", "line\nbreak", "größer", "", "\\", "!", ";&|<>")


def marker() -> str:
    return f"ssh-test-{os.getpid()}-{time.monotonic_ns()}"


def gone(mark: str, *nodes: str) -> bool:
    return not any(carrying(f"={node_marker(mark, node)}\0") for node in nodes or ("h0", "h1"))


def said(frames: list[Progress]) -> str:
    lines = [
        line for one in frames if isinstance(one, Frame) and one.kind == "line" for line in one.payload.splitlines()
    ]
    return "".join(json.loads(line)["data"] for line in lines)


def test_arguments_and_environment_arrive_as_they_are(machine: RemoteHost) -> None:
    code = "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ['AWKWARD'], len(os.environ['LONG'])]))"
    env = {"AWKWARD": "\n".join(AWKWARD), "LONG": "x" * 100_000, "LONG2": "y" * 100_000}
    frames: list[Progress] = []

    async def work() -> object:
        async with remote_node(machine, marker()) as node:
            outcome = await node.run(StepRequest(step=step(*python(code), *AWKWARD, env=env)), frames.append)
        await machine.close()
        return outcome

    assert asyncio.run(work()).name == "passed"
    assert json.loads(said(frames)) == [list(AWKWARD), "\n".join(AWKWARD), 100_000]


def test_the_evidence_of_a_hang_comes_from_another_machine(machine: RemoteHost) -> None:
    mark = marker()
    seen: list[Progress] = []

    async def work() -> tuple[Any, Any]:
        async with remote_node(machine, mark) as node:
            running = asyncio.create_task(
                node.run(StepRequest(step=replace(step("sleep", "600"), timeout_s=4.0)), seen.append)
            )
            await until_async(lambda: any(isinstance(one, Started) for one in seen))
            words = ("feature", "hangs.on_node.collecting", "--step", "s", "--marker", node_marker(mark, machine.name))
            asked = await machine.ask(EVIDENCE, *words)
            outcome = await running
        await machine.close()
        return asked, outcome

    asked, outcome = asyncio.run(work())
    (sent,) = [one.evidence for one in seen if isinstance(one, EvidenceCollected)]
    assert outcome.why == "timeout"
    assert [process.name for process in asked.processes] == [process.name for process in sent.processes] == ["sleep"]


def test_a_variable_that_no_kernel_takes_fails_the_step_in_one_line(hosts: Hosts) -> None:
    async def work() -> object:
        machine = RemoteHost(address(hosts, hosts.hosts[0]))
        async with remote_node(machine, marker()) as node:
            outcome = await node.run(StepRequest(step=step("true", env={"LONG": "x" * 200_000})), lambda _: None)
        await machine.close()
        return outcome

    outcome = asyncio.run(work())
    assert outcome.name == "failed"
    assert outcome.why == "environment"
    assert "too long" in outcome.detail.lower()


@pytest.mark.parametrize("how", ["session", "agent", "lease"])
def test_a_lost_node_fails_its_step_only_and_keeps_nothing(hosts: Hosts, how: str) -> None:
    """The session's sshd is killed, the agent is killed, or the agent hears nothing more."""
    mark = marker()
    lost = hosts.hosts[0]

    async def work() -> tuple[Any, Any]:
        machines = [RemoteHost(address(hosts, host)) for host in hosts.hosts]
        nodes = [remote_node(each, mark, grace_s=1.0, lease_s=1.5 if how == "lease" else 20.0) for each in machines]
        begun: list[Progress] = []

        async def disturb() -> None:
            await until_async(lambda: '"deaf"' in said(begun), "the tree stands")
            if how == "session":
                for pid in sessions(lost):
                    os.kill(pid, signal.SIGKILL)
            elif how == "agent":
                assert nodes[0]._link is not None
                os.kill(nodes[0]._link.hello.result()["pid"], signal.SIGKILL)
            else:
                assert nodes[0]._link is not None
                assert nodes[0]._link._beating is not None
                nodes[0]._link._beating.cancel()

        short = nodes[1].run(StepRequest(step=step(*python("import time; time.sleep(0.5)"), node="h1")), lambda _: None)
        first, second, _ = await asyncio.gather(
            nodes[0].run(StepRequest(step=step(*TREE)), begun.append), short, disturb()
        )
        await until_async(lambda: nodes[0]._link is not None and nodes[0]._link.lost, "the loss is noticed")
        again = await nodes[0].run(StepRequest(step=step("true")), lambda _: None)
        assert again.name == "passed"
        await asyncio.gather(*(node.close() for node in nodes))
        await asyncio.gather(*(each.close() for each in machines))
        return first, second

    first, second = asyncio.run(work())
    assert second.name == "passed"
    assert first.name == "failed"
    assert first.why == "lost-node"
    if how == "lease":
        assert "nothing was heard from the control plane" in first.detail
    until(lambda: gone(mark), "nothing is left")


class Control:
    """A running orchestrator."""

    def __init__(self, base: Path, mark: str, hosts: Hosts, steps: list[dict[str, Any]], **settings: Any) -> None:
        known = [asdict(address(hosts, host)) for host in hosts.hosts]
        lease_s = settings.pop("lease_s", 20.0)
        request = json.dumps([str(base), mark, known, steps, {"grace_s": 1.0, **settings}, lease_s])
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAMS / "remote_control.py"), request],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(PROGRAMS.parents[1])},
        )

    def read_until(self, word: str) -> str:
        """What it told up to a line with this word."""
        assert self.process.stdout is not None
        told = ""
        while line := self.process.stdout.readline():
            told += line
            if word in line:
                return told
        raise AssertionError(f"it ended without '{word}': {told}")


@pytest.fixture
def control(tmp_path: Path, hosts: Hosts) -> Iterator[Callable[..., Control]]:
    """Starts orchestrators; ends them at the end."""
    made: list[Control] = []

    def start(mark: str, steps: list[dict[str, Any]], **settings: Any) -> Control:
        made.append(Control(tmp_path / "base", mark, hosts, steps, **settings))
        return made[-1]

    yield start
    for each in made:
        each.process.kill()
        each.process.wait()
        assert each.process.stdout is not None
        each.process.stdout.close()


def tree_on(*nodes: str) -> list[dict[str, Any]]:
    return [{"id": f"s{number}", "argv": TREE, "node": node, "group": "g"} for number, node in enumerate(nodes)]


def test_an_orchestrator_that_is_killed_leaves_nothing_on_its_nodes(control: Callable[..., Control]) -> None:
    mark = marker()
    running = control(mark, tree_on("h0", "h1"))
    running.read_until('"deaf"')
    running.read_until('"deaf"')
    assert not gone(mark)
    running.process.kill()
    until(lambda: gone(mark), "nothing is left")


def test_interrupted_once_steps_end_in_order_and_twice_at_once(control: Callable[..., Control], tmp_path: Path) -> None:
    mark = marker()
    polite = (
        "import signal, sys, time; signal.signal(15, lambda *_: (print('bye', flush=True), sys.exit(0)));"
        "print('up', flush=True); time.sleep(600)"
    )
    running = control(mark, [{"id": "s", "argv": python(polite), "node": "h0"}], grace_s=30.0)
    running.read_until("up")
    running.process.send_signal(signal.SIGINT)
    told = running.read_until("done")
    assert "line s bye" in told
    assert "ended s cancelled" in told

    running = control(mark, tree_on("h0"), grace_s=600.0)
    running.read_until('"deaf"')
    running.process.send_signal(signal.SIGINT)
    journal = until(lambda: list((tmp_path / "base").glob("runs/*/journal.jsonl")))
    assert journal
    time.sleep(1.1)  # what follows at once is the same wish
    running.process.send_signal(signal.SIGINT)
    assert "ended s0 cancelled" in running.read_until("done")
    until(lambda: gone(mark), "nothing is left")


def test_a_timeout_ends_the_step_and_the_rest_goes_on(control: Callable[..., Control]) -> None:
    mark = marker()
    steps = [
        {"id": "slow", "argv": TREE, "node": "h0", "timeout_s": 1.0},
        {"id": "next", "argv": ["true"], "node": "h0"},
    ]
    told = control(mark, steps).read_until("done")
    assert "ended slow failed timeout" in told
    assert "ended next passed" in told
    until(lambda: gone(mark), "nothing is left")


def test_cleanup_shows_and_ends_what_a_dead_orchestrator_left_on_its_nodes_and_only_that(
    control: Callable[..., Control], milabench: Callable[..., Said]
) -> None:
    mark, stranger = marker(), marker()
    running = control(mark, tree_on("h0"), lease_s=600.0)
    other = subprocess.Popen(["sleep", "600"], env={**os.environ, "MILABENCH_RUN_MARKER": node_marker(stranger, "h0")})
    try:
        running.read_until('"deaf"')
        agent = min(carrying(f"={node_marker(mark, 'h0')}\0"))
        for pid in carrying(f"={node_marker(mark, 'h0')}\0"):
            os.kill(pid, signal.SIGSTOP)  # one that hangs does not notice that nobody is there
        running.process.kill()
        running.process.wait()
        shown = milabench("gc", "processes")
        assert shown.code == 1
        assert f"{agent}  on h0" in shown.out
        assert str(other.pid) not in shown.out.split()
        ended = milabench("gc", "processes", "--yes")
        assert ended.code == 0, ended.err
        until(lambda: gone(mark), "nothing is left")
        assert other.poll() is None
        assert milabench("gc", "processes").code == 0
    finally:
        other.kill()
        other.wait()


def test_a_step_is_told_where_it_runs(hosts: Hosts) -> None:
    begun: list[Progress] = []

    async def work() -> None:
        machine = RemoteHost(address(hosts, hosts.hosts[1]))
        async with remote_node(machine, marker()) as node:
            await node.run(
                StepRequest(step=step("sleep", "0.5", node="h1")), begun.append
            )  # long enough to be looked at
        await machine.close()

    asyncio.run(work())
    started = next(one for one in begun if isinstance(one, Started))
    assert (started.node, started.step) == ("h1", "s")
    assert started.pid
    assert started.pid_start
