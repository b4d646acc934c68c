"""A cluster whose machines have addresses and processes of their own: one is cut off, one is switched off, one is slow."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from milabench.events.run_writer import create_run
from milabench.events.rundir import open_run
from milabench.execute import ssh
from milabench.execute.api import Frame, Progress
from milabench.execute.engine import ExecutionResult, ExecutionSettings, execute
from milabench.execute.remote_host import RemoteHost, node_marker, remote_node
from milabench.plan.model import Plan
from tests.processes import until
from tests.ssh.conftest import address, carrying, python, step, until_async
from tests.ssh.hosts import Host, Hosts, crash, cut, heal, in_namespaces, why_no_namespaces
from tests.ssh.test_life_and_death import TREE, marker, said


@pytest.fixture
def cluster() -> Iterator[Hosts]:
    """Three machines on a network of their own."""
    if (why := why_no_namespaces()) is not None:
        pytest.skip(why)
    with in_namespaces(3) as made:
        yield made


def carried_out(
    cluster: Hosts, base: Path, mark: str, plan: Plan, disturb: Any = None, *, lease_s: float = 2.0
) -> tuple[ExecutionResult, Path]:
    """A plan carried out on the cluster while something happens to it."""

    async def work() -> tuple[ExecutionResult, Path]:
        writer = create_run(base, "test", datetime.now())
        machines = [RemoteHost(address(cluster, host)) for host in cluster.hosts]
        nodes = {each.name: remote_node(each, mark, grace_s=1.0, lease_s=lease_s) for each in machines}
        seen: list[Progress] = []
        disturbing = asyncio.create_task(disturb(seen)) if disturb is not None else None
        try:
            done = await execute(plan, nodes, writer, seen.append, ExecutionSettings(grace_s=1.0))
        finally:
            await asyncio.gather(*(node.close() for node in nodes.values()))
            await asyncio.gather(*(machine.close() for machine in machines))
        if disturbing is not None:
            await disturbing
        return done, writer.path

    return asyncio.run(work())


def side_by_side(*argv: str, last: str = "2") -> Plan:
    """The tree on the first machine beside something short on the others, then a step on each."""
    steps = [step(*TREE, name="tree", node="n0", group="g")]
    steps += [step(*argv, name=f"short{node}", node=f"n{node}", group="g") for node in (1, 2)]
    return Plan(
        phase="run", steps=(*steps, *(step("hostname", name=f"then{node}", node=f"n{node}") for node in range(3)))
    )


def whys(done: ExecutionResult) -> dict[str, str]:
    """How each step ended."""
    return {name: outcome.why or outcome.name for name, outcome in done.outcomes.items()}


def test_a_loss_is_noticed_within_fifteen_seconds_by_default() -> None:
    assert ssh.KEEPALIVE_S * (ssh.KEEPALIVE_COUNT + 1) <= 15


@pytest.mark.parametrize("end", [cut, crash], ids=["cut off", "switched off"])
def test_the_steps_of_a_machine_that_is_gone_fail_and_all_others_go_on(
    cluster: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: Any
) -> None:
    monkeypatch.setattr(ssh, "KEEPALIVE_S", 0.5)
    monkeypatch.setattr(ssh, "CONNECT_S", 1.0)
    mark = marker()

    async def disturb(seen: list[Progress]) -> None:
        await until_async(lambda: '"deaf"' in said([one for one in seen if isinstance(one, Frame)]), "the tree stands")
        end(cluster.hosts[0])

    done, run = carried_out(cluster, tmp_path, mark, side_by_side(*python("import time; time.sleep(1)")), disturb)
    assert whys(done) == {
        "tree": "lost-node",
        "short1": "passed",
        "short2": "passed",
        "then0": "lost-node",
        "then1": "passed",
        "then2": "passed",
    }
    ended = [entry for entry in open_run(run).journal if entry.get("step") == "tree" and entry.get("state") == "ended"]
    assert [entry["why"] for entry in ended] == ["lost-node"]
    # Nobody could tell it so: its agent ends everything because it hears nothing more.
    until(lambda: not carrying(f"={node_marker(mark, 'n0')}\0"), "nothing is left")


def test_a_machine_that_comes_back_is_used_again(
    cluster: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh, "KEEPALIVE_S", 0.5)
    monkeypatch.setattr(ssh, "CONNECT_S", 1.0)
    lost: Host = cluster.hosts[0]

    async def disturb(seen: list[Progress]) -> None:
        await until_async(lambda: '"deaf"' in said([one for one in seen if isinstance(one, Frame)]), "the tree stands")
        cut(lost)
        await until_async(lambda: any(getattr(one, "step", "") == "tree" and hasattr(one, "outcome") for one in seen))
        heal(lost)

    done, _ = carried_out(cluster, tmp_path, marker(), side_by_side(*python("import time; time.sleep(6)")), disturb)
    assert whys(done)["tree"] == "lost-node"
    assert whys(done)["then0"] == "passed"


def test_a_machine_that_is_slow_to_let_in_is_waited_for(tmp_path: Path) -> None:
    if (why := why_no_namespaces()) is not None:
        pytest.skip(why)
    slow = 'ForceCommand sleep 1; exec sh -c "$SSH_ORIGINAL_COMMAND"\n'
    with in_namespaces(1, extra=slow) as cluster:
        plan = Plan(phase="run", steps=(step("true", node="n0"),))
        done, _ = carried_out(cluster, tmp_path, marker(), plan, lease_s=20.0)
    assert whys(done) == {"s": "passed"}
