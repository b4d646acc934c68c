"""This machine's agent, started ahead of the run that it serves."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import time
from pathlib import Path

import pytest

from milabench.execute.agent_client import local_node
from milabench.execute.api import Outcome, StepRequest
from milabench.execute.local_agent import RUN_MARKER, LocalAgent
from milabench.facts.model import Node
from milabench.facts.probe import agent_command
from milabench.plan.model import Step
from tests.processes import is_gone, started


def test_it_describes_the_machine_and_then_runs_steps_with_its_marker(tmp_path: Path) -> None:
    agent = LocalAgent("local", f"ahead-{time.monotonic_ns()}", locks=tmp_path / "locks", describes=True)
    machine = agent.answer()
    shown = tmp_path / "marker"

    async def work() -> Outcome:
        step = Step(
            id="s",
            bench="b",
            phase="run",
            argv=("/bin/sh", "-c", f"printf %s ${RUN_MARKER} > {shown}"),
            needs_data=False,
        )
        async with local_node(agent.run_id, locks=tmp_path / "locks", started=agent) as node:
            return await node.run(StepRequest(step=step, grace_s=0.5), lambda _: None)

    outcome = asyncio.run(work())
    agent.leave()  # nothing is left to do
    assert machine.hostname == socket.gethostname()
    assert machine.cpu_count >= 1
    assert outcome.name == "passed"
    assert shown.read_text() == agent.run_id


def test_one_that_nobody_takes_over_leaves_whatever_it_is_doing(tmp_path: Path) -> None:
    agent = LocalAgent("local", f"spare-{time.monotonic_ns()}", locks=tmp_path / "locks", describes=True)
    agent.leave()
    assert is_gone(agent.take_over().pid)


def test_the_machine_is_asked_again_when_it_has_ended_without_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Node(hostname="asked")

    class Probe:
        def answer(self) -> Node:
            return asked

    monkeypatch.setattr("milabench.execute.local_agent.this_machine", Probe)
    monkeypatch.setattr("milabench.execute.local_agent.agent_command", lambda *_: ["true"])
    agent = LocalAgent("local", "broken", locks=tmp_path / "locks", describes=True)
    assert agent.answer() is asked
    agent.leave()


def test_one_that_hears_nothing_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("milabench.execute.local_agent.PATIENCE_S", 0.1)
    monkeypatch.setattr("milabench.execute.local_agent.agent_command", lambda *_: ["sleep", "600"])
    agent = LocalAgent("local", "deaf", locks=tmp_path / "locks", describes=True)
    agent.leave()
    assert is_gone(agent.take_over().pid)


def test_one_whose_orchestrator_was_killed_ends_without_a_word(tmp_path: Path) -> None:
    words = ("serve", "--run-id", f"left-{time.monotonic_ns()}", "--locks", str(tmp_path), "--first", "facts")
    pipe = subprocess.PIPE
    with started(agent_command(*words), stdin=pipe, stdout=pipe, stderr=pipe) as agent:
        assert agent.stdin is not None and agent.stdout is not None and agent.stderr is not None
        agent.stdout.close()
        agent.stdin.close()
        assert agent.stderr.read() == b""
    assert agent.returncode == 1
