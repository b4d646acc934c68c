"""Whole runs with a node that sends something else than our agent does."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest

from tests.commands import ROOT, milabench_in
from tests.hostile_agent import hostile_system
from tests.processes import started, until

pytestmark = pytest.mark.slow


def variables(tmp_path: Path, environ: dict[str, str], change: str) -> dict[str, str]:
    """The variables of a system of this machine and a node `n1` whose answers are changed."""
    suite = {"MILABENCH_CONFIG": str(ROOT / "tests" / "suite" / "odd.yaml"), "MILABENCH_USE_CURRENT_ENV": "1"}
    return hostile_system(tmp_path / "system", {**environ, **suite}, {"n1": change})


def journal_of(base: str) -> list[dict[str, object]]:
    """The journal of the newest run, as far as it is written."""
    files = sorted(Path(base).glob("runs/*/journal.jsonl"), key=lambda path: path.stat().st_mtime_ns)
    return [json.loads(line) for line in files[-1].read_text().splitlines()] if files else []


def test_a_node_whose_ends_cannot_be_read_ends_alone(tmp_path: Path, environ: dict[str, str]) -> None:
    change = """
def change(message):
    is_measured = message.kind == "ended" and json.loads(message.header)["step"].startswith("good.D0")
    return [frame({**json.loads(message.header), "n": 2}, b"[]") if is_measured else message.whole]
"""
    said = milabench_in(variables(tmp_path, environ, change))("run", "--select", "good")
    assert said.code == 1
    ended = {
        str(entry["step"]): entry for entry in journal_of(environ["MILABENCH_BASE"]) if entry.get("state") == "ended"
    }
    assert {step: (entry["outcome"], entry.get("why")) for step, entry in ended.items()} == {
        "good.D0.node0": ("passed", None),
        "good.D0.node1": ("failed", "lost-node"),
    }
    assert "on n1: lost-node: its message 'ended' cannot be read: Expected `object`, got `array`" in said.out + said.err


def test_a_signal_ends_a_run_whose_node_never_says_that_its_steps_have_ended(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    environ = variables(tmp_path, environ, 'change = dropping("ended")')
    with started([sys.executable, "-m", "milabench", "run", "--select", "good"], env=environ, cwd=ROOT) as run:
        begun = [{"step": "good.node1", "state": "started"}]
        until(lambda: [e for e in journal_of(environ["MILABENCH_BASE"]) if {k: e.get(k) for k in begun[0]} in begun])
        run.send_signal(signal.SIGINT)
    assert run.returncode == 130
    ended = {
        entry["step"]: entry["outcome"]
        for entry in journal_of(environ["MILABENCH_BASE"])
        if entry.get("state") == "ended"
    }
    assert ended["good.node1"] == "cancelled"
    # Whatever it has left there is found by its markers.
    assert milabench_in(environ)("gc", "processes").code == 0
