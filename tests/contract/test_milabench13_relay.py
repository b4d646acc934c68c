"""Programs that speak voir's own protocol, through the relay to a real agent, and what the analysis makes of them."""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from milabench.analysis.measure import measure
from milabench.events.batch_decoder import decode_lines

MEASURE = {"measure": {"warmup_steps": 4, "warmup_s": 0, "window_steps": 16, "window_s": 0}}
PRELUDE = """
import json, os, signal, sys, time
data = int(os.environ["DATA_FD"])
def give(**record): os.write(data, json.dumps(record).encode() + b"\\n")
def event(name, value=None): os.write(data, json.dumps({"$event": name, "$data": value}).encode() + b"\\n")
"""
RATES = """
for index in range(20):
    give(task="train", rate=100.0 + index % 2, units="items/s", time=1000.0 + index)
    give(task="train", loss=1 / (index + 1))
"""


def command(folder: Path, code: str) -> list[object]:
    """The words of a program through the relay."""
    script = folder / "program.py"
    script.write_text(PRELUDE + textwrap.dedent(code))
    return [sys.executable, "-m", "benchmate.milabench13.relay", "--", sys.executable, script]


def run(agent: Any, folder: Path, code: str, **more: Any) -> Any:
    """Runs a program through the relay; what the agent reports of its end."""
    return agent.run(*command(folder, code), **more)


def test_a_program_is_ended_with_its_window_and_passes(agent: Any, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(MEASURE))
    env = {"MILABENCH_BENCH_CONFIG": str(tmp_path / "config.json")}
    ended = run(agent, tmp_path, f"{RATES}\nsignal.pause()", needs_data=True, env=env)
    assert (ended["outcome"], ended["return_code"]) == ("passed", 0)
    found = measure("s", decode_lines(bytes(agent.records["s"]), "s"))
    assert found.throughput is not None
    assert found.throughput.value == pytest.approx(2 / (1 / 100 + 1 / 101))
    assert (found.task, found.throughput.units, found.throughput.observations) == ("train", "items/s", 16)
    assert found.losses.first == 1.0


def test_a_program_that_gives_nothing_has_no_data(agent: Any, tmp_path: Path) -> None:
    ended = run(agent, tmp_path, "print('nothing')", needs_data=True)
    assert (ended["outcome"], ended["why"]) == ("failed", "no-data")


def test_a_crash_after_some_rates_is_a_failure_with_its_records(agent: Any, tmp_path: Path) -> None:
    ended = run(agent, tmp_path, f"{RATES}\nos.kill(os.getpid(), signal.SIGABRT)", needs_data=True)
    assert (ended["outcome"], ended["why"]) == ("failed", "signal")
    assert "SIGABRT" in ended["detail"]
    assert sum("rate" in data for data in agent.data("data")) == 20


def test_the_end_of_a_step_is_one_signal_to_its_program(agent: Any, tmp_path: Path) -> None:
    code = """
    signal.signal(signal.SIGTERM, lambda *_: print("got TERM", flush=True))
    give(rate=1.0)
    print("ready", flush=True)
    signal.pause()
    time.sleep(0.3)
    """
    agent.start(*command(tmp_path, code))
    assert agent.printed() == "ready"
    agent.ask("end", step="s", why="timeout", detail="ended on request")
    assert (agent.end_of()["outcome"], agent.text("stdout")) == ("failed", "ready\ngot TERM\n")
    assert [data["rate"] for data in agent.data("data") if "rate" in data] == [1.0]


def test_what_had_come_before_a_kill_is_recorded(agent: Any, tmp_path: Path) -> None:
    agent.start(*command(tmp_path, f"{RATES}\nprint('ready', flush=True)\nsignal.pause()"))
    assert agent.printed() == "ready"
    agent.ask("end", step="s", grace_s=0)
    assert agent.end_of()["outcome"] == "cancelled"
    assert sum("rate" in data for data in agent.data("data")) == 20
