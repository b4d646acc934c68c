"""The two ways through the modules that docs/explanation/architecture.md draws, followed where the modules are entered."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from tests.commands import ROOT
from tests.structure import CONTROL_PLANE, import_graph, modules

pytestmark = pytest.mark.turns(1)  # part of every `make test`
PAGE = ROOT / "docs" / "explanation" / "architecture.md"
# Prints the modules of milabench in the order in which a function of each is first called, after its import.
PROGRAM = """
import sys, threading

entered = {}

def follow(frame, event, _):
    name = frame.f_globals.get("__name__", "")
    if event != "call" or not frame.f_code.co_flags & 1 or not name.startswith("milabench.") or name in entered:
        return
    spec = getattr(sys.modules.get(name), "__spec__", None)
    if spec is not None and not getattr(spec, "_initializing", False):
        entered[name] = None

from milabench import cli

threading.setprofile(follow)
sys.setprofile(follow)
code = cli.run_command_line()
sys.setprofile(None)
print("entered:", *entered)
sys.exit(code)
"""


def drawn(heading: str) -> list[list[str]]:
    """The modules of a drawing, from one process or file to the next."""
    (block,) = re.findall(rf"```text\n{re.escape(heading)}\n(.*?)```", PAGE.read_text(), re.S)
    parts = re.split(r"      .*\n?", block)
    return [names for part in parts if (names := re.findall(r"[a-z0-9_]+(?:\.[a-z0-9_]+)+", part))]


BENCHMARK = drawn("a benchmark, from its suite to its command line")
RECORD = drawn("a record, from its agent to the report")


def entered(*argv: str | Path) -> list[str]:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, argv)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.rpartition("entered:")[2].replace("milabench.", "").split()


def test_no_module_is_drawn_twice() -> None:
    for drawing in (BENCHMARK, RECORD):
        names = [name for part in drawing for name in part]
        assert len(names) == len(set(names)) > 10


def test_a_benchmark_goes_through_planning_as_drawn(tmp_path: Path) -> None:
    words = ("plan", "run", "--config", "config/ci.yaml", "--select", "machine", "--base", tmp_path)
    [way] = BENCHMARK
    assert [name for name in entered(*words) if name in way] == way


def test_a_record_goes_from_the_run_directory_to_the_report_as_drawn(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "recorded"
    shutil.copytree(ROOT / "tests" / "runs" / "system_a", run, ignore=shutil.ignore_patterns("summary.json"))
    *_, way = RECORD
    assert [name for name in entered("report", run, "--base", tmp_path) if name in way] == way


def test_a_record_goes_from_the_agent_to_the_run_directory_as_drawn() -> None:
    imports = import_graph(modules(CONTROL_PLANE))
    for part in RECORD[:-1]:
        for one, next_one in pairwise(f"milabench.{name}" for name in part):
            assert next_one in imports[one] or one in imports[next_one], (one, next_one)
