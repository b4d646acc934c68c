"""A program of milabench 1.3 without voir, which logs rates by `setupvoir`: its window ends it, and its progress is shown."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

BENCHFILE = """
    from milabench.commands import CmdCommand
    from milabench.pack import Package

    class Logging(Package):
        def build_run_plan(self):
            return CmdCommand(self, "python", str(self.dirs.code / "main.py"))

    __pack__ = Logging
"""
MAIN = """
    import time
    from benchmate.monitor import setupvoir

    log, monitor = setupvoir()
    while True:
        time.sleep(0.05)
        log({"task": "train", "rate": 20.0, "units": "items/s"})
"""


@pytest.fixture
def suite(tmp_path: Path) -> tuple[str, ...]:
    """A suite of the program, which alone would never end."""
    folder = tmp_path / "mine"
    folder.mkdir()
    for name, text in (("benchfile.py", BENCHFILE), ("main.py", MAIN)):
        (folder / name).write_text(textwrap.dedent(text))
    bench = {"definition": "mine", "install_group": "mine", "plan": {"method": "per_gpu"}, "max_duration": 60}
    voir = {"options": {"skip": 2, "stop": 8}}
    file = tmp_path / "suite.yaml"
    file.write_text(json.dumps({"rates": {**bench, "voir": voir}, "profile": "quick"}))  # JSON is YAML
    return ("--use-current-env", "--config", str(file))


def test_a_program_that_logs_for_ever_is_ended_with_its_window(
    milabench: Callable[..., Any], suite: tuple[str, ...]
) -> None:
    said = milabench("run", *suite)
    assert said.code == 0, said.out + said.err
    assert re.search(r"rates.D0: first observation, \d+(/8| steps)\n", said.err), said.err
    (bench,) = json.loads(milabench("report", "--json").out)["benchmarks"]
    assert (bench["outcome"], bench["perf"], bench["units"]) == ("passed", pytest.approx(20.0), "items/s")
