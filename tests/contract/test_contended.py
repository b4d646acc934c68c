"""A busy loop beside a real program under a real agent and a real monitor, against the clocks of loop and machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from milabench.analysis.measure import measure
from milabench.checks.check import StepContext
from milabench.checks.host import ContendedCheck
from milabench.events.model import Verdict
from milabench.events.wire import decode
from tests.contract.test_instruments_and_agent import run

pytestmark = pytest.mark.turns(3)

WINDOW_S = 4
CONFIG = {"measure": {"warmup_steps": 3, "warmup_s": 0, "window_steps": 10, "window_s": WINDOW_S}}
MONITOR = {"monitor": {"argv": [sys.executable, "-m", "benchmate.monitors", "--arch", "cpu"], "about": {}}}
# Works a tenth of the time; each step has a child that lives for a moment only.
PROGRAM = """
    import subprocess, sys, time

    def batches():
        while True:
            subprocess.run([sys.executable, "-S", "-c", "[None for _ in range(200_000)]"])
            time.sleep(0.2)
            yield [0] * 4

    def train():
        for batch in batches():
            pass

    if __name__ == "__main__":
        train()
"""
PROBE = """
    from benchmate import probes

    def instrument_main(ov):
        probes.iterable(ov, "__main__.batches", units="items/s", batch_size=len)
"""
LOOP = "import time\nend = time.monotonic() + 100\nwhile time.monotonic() < end: pass"


def process_s(pid: int) -> float:
    """Processor seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def machine_s() -> float:
    """Processor seconds of the whole machine so far, by what the kernel counts as work at its ticks."""
    fields = [int(field) for field in Path("/proc/stat").read_text().partition("\n")[0].split()[1:4]]
    return sum(fields) / os.sysconf("SC_CLK_TCK")


def judged(agent: Any, step: str = "s") -> Verdict:
    events = (decode(line, step) for line in bytes(agent.records[step]).splitlines())
    return ContendedCheck(StepContext(step=step)).verdict(measure(step, events))


@contextmanager
def busy_loop() -> Iterator[int]:
    loop = subprocess.Popen([sys.executable, "-S", "-c", LOOP])
    try:
        yield loop.pid
    finally:
        loop.kill()
        loop.wait()


def test_a_busy_loop_beside_a_step_makes_it_contended_with_what_the_loop_used(agent: Any, tmp_path: Path) -> None:
    with busy_loop() as pid:
        begin, before_s = time.monotonic(), process_s(pid)
        said = run(agent, tmp_path, PROGRAM, PROBE, config=CONFIG, **MONITOR)
        loop_used = (process_s(pid) - before_s) / (time.monotonic() - begin)
    assert said["outcome"] == "passed", agent.text("stderr")
    verdict = judged(agent)
    processors = len(os.sched_getaffinity(0))
    assert verdict.verdict == "warn"
    assert verdict.numbers["processors"] == processors
    # Others may be at work on this machine too.
    assert 0.85 * loop_used <= verdict.numbers["foreign"] <= processors
    assert verdict.message.startswith(f"others used {verdict.numbers['foreign']:.2f} of the {processors} processors")


def test_a_step_alone_is_not_contended(agent: Any, tmp_path: Path) -> None:
    begin, before_s = time.monotonic(), machine_s()
    said = run(agent, tmp_path, PROGRAM, PROBE, config=CONFIG, **MONITOR)
    lasted_s = time.monotonic() - begin
    busy = (machine_s() - before_s) / lasted_s
    assert said["outcome"] == "passed", agent.text("stderr")
    verdict = judged(agent)
    numbers = verdict.numbers
    # Its own work, short children included, is not foreign, whatever else this machine does.
    assert numbers["own"] > 0.01
    assert numbers["foreign"] == pytest.approx(max(0.0, busy - numbers["own"]), abs=0.15 * len(os.sched_getaffinity(0)))
    if busy - numbers["own"] > 0.035 * numbers["processors"]:  # its start, about 0.015, is in no reading
        pytest.skip(f"this machine is busy: {json.dumps(numbers)}")
    assert verdict.verdict == "pass"


def test_instances_of_a_group_are_not_foreign_to_each_other(agent: Any) -> None:
    begin, before_s = time.monotonic(), machine_s()
    steps = ("a", "b")
    for step in steps:
        loop = LOOP.replace("100", str(WINDOW_S + 1))
        agent.start(sys.executable, "-S", "-c", loop, step=step, group="g", group_size=2, **MONITOR)
    for step in steps:
        assert agent.end_of(step)["outcome"] == "passed"
    busy = (machine_s() - before_s) / (time.monotonic() - begin)
    processors = len(os.sched_getaffinity(0))
    numbers = [judged(agent, step).numbers for step in steps]
    used = sum(each["own"] for each in numbers)
    for each in numbers:
        assert each["own"] > 0.1
        assert each["foreign"] == pytest.approx(max(0.0, busy - used), abs=0.15 * processors)
