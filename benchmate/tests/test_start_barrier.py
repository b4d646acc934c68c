"""Instances of a group: each goes on, and goes on measuring, until all have their observations."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from agent import Agent

from benchmate.ring import STOP

PROGRAM = """
import time
import benchmate
for _ in benchmate.observed(range(10**6), stop=True):
    time.sleep(0.001)
"""
TOGETHER = {"measure": {"warmup_steps": 2, "warmup_s": 0, "window_steps": 5, "window_s": 0, "barrier": True}}


def test_an_instance_that_has_its_observations_measures_on_until_it_is_told(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(PROGRAM)
    with Agent() as agent:

        def tell() -> None:
            while not agent.controls("complete"):
                time.sleep(0.005)
            for _, reader in agent.rings:
                seen = reader.words[2]
                while reader.words[2] < seen + 50:
                    time.sleep(0.005)
                reader.words[STOP] = 1

        telling = threading.Thread(target=tell, daemon=True)
        telling.start()
        ran = agent.run(str(script), module="", config=TOGETHER)
        telling.join(10)
        assert ran.code == 0, ran.stderr
        (window,) = agent.windows()
        assert window["why"] == "complete"
        assert agent.controls("ready") == [True]
        assert agent.controls("complete") == [True]
        inside = [one for one in agent.entries() if window["start_ns"] <= one.t0_ns < window["stop_ns"]]
        assert len(inside) >= 50
        assert not any(one.flags & 1 for one in inside)


def test_without_a_barrier_nobody_is_waited_for(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(PROGRAM)
    with Agent() as agent:
        ran = agent.run(str(script), module="", config={"measure": {**TOGETHER["measure"], "barrier": False}})
        assert ran.code == 0
        assert agent.controls("complete") == []
        assert len(agent.windows()) == 1
