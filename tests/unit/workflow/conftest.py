"""A suite of commands on an imaginary machine, read without asking the real one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from milabench.events.rundir import Run, open_run
from milabench.execute.retry_policy import RetryPolicy
from milabench.facts.model import Node
from milabench.plan.model import Plan
from milabench.workflow import execution, local_agents
from milabench.workflow.context import read_context
from milabench.workflow.execution import ExecutedPlan
from milabench.workflow.new_run import execute_plan
from milabench.workflow.options import CollectingReporter, CommandContext, Extent, Session, SuiteOptions
from milabench.workflow.run_records import RunDescription
from tests.fake_node import FakeNode

MACHINE = Node(hostname="box", cpu_model="EPYC 9354", cpu_count=8, memory_mib=65536, os="Debian 12", kernel="6.1.0")
SUITE = {
    "profile": "quick",
    "_line": {"install_group": "lines", "command": ["true"], "plan": {"method": "njobs", "n": 1}, "tags": ["line"]},
    "a": {"inherits": "_line"},
    "b": {"inherits": "_line", "weight": 2.0},
}
ReadContext = Callable[..., CommandContext]
Execute = Callable[..., ExecutedPlan]


class StartedFakeNode(FakeNode):
    """A fake node that an orchestrator can open."""

    async def open(self) -> None:
        """Nothing to start."""


class FakeAgent:
    """An agent that is no process."""

    def __init__(self, *args: object, **options: object) -> None: ...

    def leave(self) -> None:
        """Nothing to end."""


class FakeProbe:
    """Answers for this machine."""

    def answer(self) -> Node:
        """Return the imaginary machine."""
        return MACHINE


@pytest.fixture
def reporter() -> CollectingReporter:
    return CollectingReporter()


@pytest.fixture
def session(reporter: CollectingReporter, monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setattr("milabench.facts.probe.this_machine", FakeProbe)
    return Session(reporter)


@pytest.fixture
def suite_file(tmp_path: Path) -> Callable[..., Path]:
    """Write a suite; `changes` are further keys."""

    def write(name: str = "suite.yaml", **changes: Any) -> Path:
        path = tmp_path / name
        path.write_text(json.dumps({**SUITE, **changes}))
        return path

    return write


@pytest.fixture
def options(suite_file: Callable[..., Path], tmp_path: Path) -> SuiteOptions:
    return SuiteOptions(config_file=suite_file(), base=tmp_path / "base", use_current_env=True)


@pytest.fixture
def context_of(session: Session, options: SuiteOptions) -> ReadContext:
    """Read the suite; keyword arguments are those of `Extent`."""

    def read(suite: SuiteOptions = options, environ: Mapping[str, str] | None = None, **extent: Any) -> CommandContext:
        return read_context(replace(suite, environ=environ or {}), session, Extent(**extent, run_name="run", seed=1))

    return read


@pytest.fixture
def fake_nodes(monkeypatch: pytest.MonkeyPatch) -> dict[str, StartedFakeNode]:
    """The nodes of the runs of a test, by name."""
    nodes: dict[str, StartedFakeNode] = {}

    def start(marker: str, *, name: str, locks: object, started: object) -> StartedFakeNode:
        return nodes.setdefault(name, StartedFakeNode(name))

    monkeypatch.setattr(execution, "local_node", start)
    monkeypatch.setattr(local_agents, "LocalAgent", FakeAgent)
    return nodes


@pytest.fixture
def execute(fake_nodes: dict[str, StartedFakeNode]) -> Execute:
    """Execute a plan on fake nodes."""

    def run(plan: Plan, context: CommandContext, name: str = "run", **more: Any) -> ExecutedPlan:
        return execute_plan(plan, context, RunDescription(name=name), retry=RetryPolicy(), **more)

    return run


def recorded(executed: ExecutedPlan) -> Run:
    return open_run(executed.path)
