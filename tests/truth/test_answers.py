"""A wrong gradient of one of three ranks, in a real training: the report names the rank and the step."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.commands import ROOT, milabench_in
from tests.common_folders import common_environments

pytestmark = pytest.mark.e2e

SUITE = """
profile: quick
system: {{arch: cpu, gpu: {{count: 3}}}}
trained:
  definition: answers
  install_group: torch
  plan: {{method: multigpu}}
  max_duration: 600
  env: {{OMP_NUM_THREADS: "1", FLIPPED: "{flipped}"}}
  answers: {{steps: 12, gradients: true}}
"""


def trained(folder: Path, environments: Path, flipped: str) -> tuple[int, Mapping[str, Any]]:
    """The exit code of `run`, and what the report says of the benchmark."""
    shutil.copytree(ROOT / "tests" / "programs" / "answers", folder / "answers")
    for file in ("requirements.in", "requirements.cpu.txt"):
        shutil.copy(ROOT / "benchmarks" / "_environments" / "torch" / file, folder / "answers")
    (folder / "suite.yaml").write_text(SUITE.format(flipped=flipped))
    return measured(folder, environments)


def measured(folder: Path, environments: Path) -> tuple[int, Mapping[str, Any]]:
    """Install and run the suite of a folder: the exit code of `run`, and what the report says of its benchmark."""
    suite = folder / "suite.yaml"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MILABENCH_")}
    own = {"MILABENCH_BASE": str(folder / "base"), "MILABENCH_LOCK_DIR": str(folder / "locks")}
    milabench = milabench_in({**kept, **own, "MILABENCH_DIRS_VENV": str(environments)})
    installed = milabench("install", "--config", str(suite))
    assert installed.code == 0, installed.err
    said = milabench("run", "--config", str(suite), "--repeat", "1")
    [bench] = json.loads(milabench("report", "--json").out)["benchmarks"]
    return said.code, bench


STUCK = """
profile: quick
system: {arch: cpu}
burn:
  definition: machine
  program: burn
  install_group: torch
  plan: {method: njobs, n: 1}
  argv: {--seconds: 1, --formats: fp32}
"""


def test_a_stuck_bit_of_every_product_ends_with_wrong_and_the_device_is_named(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    shutil.copytree(ROOT / "benchmarks" / "machine", tmp_path / "machine")
    shutil.copytree(ROOT / "benchmarks" / "_environments" / "torch", tmp_path / "_environments" / "torch")
    shutil.copy(ROOT / "tests" / "truth" / "faulty_device.py", tmp_path / "machine")
    burn = tmp_path / "machine" / "burn.py"
    faulty = "import torch\nfrom faulty_device import make_faulty\n\nmake_faulty('stuck-exponent')\n"
    burn.write_text(burn.read_text().replace("import torch\n", faulty, 1))
    (tmp_path / "suite.yaml").write_text(STUCK)
    code, found = measured(tmp_path, common_environments(tmp_path_factory))
    assert (code, found["outcome"], found["reasons"]) == (1, "failed", ["wrong"]), found
    [failure] = found["failures"]
    assert failure["why"] == "wrong"
    assert re.match(r"burn: the processor of \S+: a fp32 product of known answer before the load: ", failure["detail"])
    assert "bit 23 (exponent)" in failure["detail"]


def test_the_rank_and_the_step_of_a_wrong_gradient_are_named(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    environments = common_environments(tmp_path_factory)
    code, good = trained(tmp_path / "good", environments, "-1:0")
    assert (code, good["outcome"]) == (0, "passed"), good["failures"]
    assert [found["verdict"] for found in good["validations"] if found["check"] == "answers"] == ["pass"]
    code, bad = trained(tmp_path / "bad", environments, "1:7")
    assert (code, bad["outcome"], bad["reasons"]) == (1, "failed", ["wrong"]), bad
    [failure] = bad["failures"]
    assert failure["why"] == "wrong"
    assert "rank 1" in failure["detail"]
    assert failure["detail"].endswith("differs from 2 other ranks: its gradient norm from step 7 on")
