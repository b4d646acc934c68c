"""Instances of a group: each keeps running, and keeps measuring, until all have their observations."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from agent import Agent

from benchmate.ring import HEAD, STOP, WARM_UP

PROGRAM = """
import time
import benchmate
for _ in benchmate.observed(range(10**6), stop=True):
    time.sleep(0.001)
"""
WITH_BARRIER = {"measure": {"warmup_steps": 2, "warmup_s": 0, "window_steps": 5, "window_s": 0, "barrier": True}}


def test_an_instance_with_all_its_observations_measures_until_the_group_has_them(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(PROGRAM)
    with Agent() as agent:

        def stop_the_group() -> None:
            while not agent.controls("complete"):
                time.sleep(0.005)
            for _, memory in agent.rings:
                words = memoryview(memory).cast("q")
                written = words[HEAD]
                while words[HEAD] < written + 50:
                    time.sleep(0.005)
                words[STOP] = 1

        stopper = threading.Thread(target=stop_the_group, daemon=True)
        stopper.start()
        ran = agent.run(str(script), module="", config=WITH_BARRIER)
        stopper.join(10)
        assert ran.code == 0, ran.stderr
        (window,) = agent.windows()
        assert window["why"] == "complete"
        assert agent.controls("ready") == [True]
        assert agent.controls("complete") == [True]
        inside = [entry for entry in agent.entries() if window["start_ns"] <= entry.t0_ns < window["stop_ns"]]
        assert len(inside) >= 50
        assert not any(entry.flags & WARM_UP for entry in inside)


def test_without_a_barrier_an_instance_does_not_wait_for_others(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(PROGRAM)
    with Agent() as agent:
        ran = agent.run(str(script), module="", config={"measure": {**WITH_BARRIER["measure"], "barrier": False}})
        assert ran.code == 0
        assert agent.controls("complete") == []
        assert len(agent.windows()) == 1
