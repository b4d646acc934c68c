"""Every example of the README runs, and measures something."""

from __future__ import annotations

import importlib.util
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parents[1] / "README.md").read_text()
BLOCKS = re.findall(r"^```python (\S[^\n]*)\n(.*?)^```", README, re.M | re.S)
PROGRAMS = {name: text for name, text in BLOCKS if name.endswith(".py") and not name.startswith("voirfile")}
VOIRFILES = [(name.removeprefix("voirfile for "), text) for name, text in BLOCKS if name.startswith("voirfile for ")]
QUICK = {"measure": {"warmup_steps": 1, "warmup_s": 0, "window_steps": 5, "window_s": 0}}


@pytest.mark.parametrize(("program", "voirfile"), VOIRFILES, ids=range(len(VOIRFILES)))
def test_every_voirfile_example_measures(agent, tmp_path, program, voirfile):
    if program == "digits.py" and importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    (tmp_path / program).write_text(PROGRAMS[program])
    (tmp_path / "voirfile.py").write_text(voirfile)
    ran = agent.run("--voirfile", str(tmp_path / "voirfile.py"), str(tmp_path / program), config=QUICK)
    assert (ran.code, ran.stderr, agent.controls("fail")) == (0, "", [])
    assert len(agent.entries()) == 6
    assert len(agent.windows()) == 1


@pytest.mark.parametrize("text", [text for name, text in BLOCKS if name == "run"])
def test_an_example_without_the_runner_prints_a_table(tmp_path, text):
    script = tmp_path / "own.py"
    script.write_text(text)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert re.search(r"^train +\d+ .*images/s", done.stderr, re.M)
    assert re.search(r"^inference +\d+ .*tokens/s", done.stderr, re.M)
    assert "accuracy: 0.97 fraction" in done.stderr


@pytest.mark.parametrize("text", [text for name, text in BLOCKS if name == "milabench13"])
def test_the_example_in_the_style_of_milabench_1_3_is_measured(agent, tmp_path, text):
    script = tmp_path / "old.py"
    script.write_text(text)
    ran = agent.run(str(script), config=QUICK)
    assert (ran.code, ran.stderr) == (0, "")
    assert [entry.n for entry in agent.entries()] == [8] * 6
    assert agent.losses() == [0.5] * 6


@pytest.mark.parametrize("text", [text for name, text in BLOCKS if name == "prepare"])
def test_the_example_of_a_preparation_makes_its_data_once(tmp_path, text):
    script = tmp_path / "prepare.py"
    script.write_text(text)
    for what in ("made", "already there"):
        command, env = [sys.executable, str(script)], {**os.environ, "MILABENCH_DIR_DATA": str(tmp_path / "data")}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
        assert done.stdout == f"{tmp_path / 'data' / 'points'}: {what}\n"
    assert len((tmp_path / "data" / "points" / "points.txt").read_text().splitlines()) == 1000


def test_the_demo_of_the_first_lines_runs():
    assert "$ python -m benchmate demo" in README
    done = subprocess.run([sys.executable, "-m", "benchmate", "demo"], capture_output=True, text=True, check=True)
    assert "samples/s" in done.stderr


def test_every_probe_is_in_the_readme():
    from benchmate import probes

    names = {name for name, value in vars(probes).items() if inspect.isfunction(value)}
    assert {"loader", "optimizer_step", "calls"} <= names
    assert {name for name in names if f"probes.{name}(" not in README} == set()
