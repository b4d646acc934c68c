"""A wrong gradient of one of three ranks, in a real training: the report names the rank and the step."""

from __future__ import annotations

import json
import os
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
  max_duration: 120
  env: {{OMP_NUM_THREADS: "1", FLIPPED: "{flipped}"}}
  answers: {{steps: 12, gradients: true}}
"""


def trained(folder: Path, environments: Path, flipped: str) -> tuple[int, Mapping[str, Any]]:
    """The exit code of `run`, and what the report says of the benchmark."""
    shutil.copytree(ROOT / "tests" / "programs" / "answers", folder / "answers")
    for file in ("requirements.in", "requirements.cpu.txt"):
        shutil.copy(ROOT / "benchmarks" / "_environments" / "torch" / file, folder / "answers")
    suite = folder / "suite.yaml"
    suite.write_text(SUITE.format(flipped=flipped))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MILABENCH_")}
    own = {"MILABENCH_BASE": str(folder / "base"), "MILABENCH_LOCK_DIR": str(folder / "locks")}
    milabench = milabench_in({**kept, **own, "MILABENCH_DIRS_VENV": str(environments)})
    installed = milabench("install", "--config", str(suite))
    assert installed.code == 0, installed.err
    said = milabench("run", "--config", str(suite), "--repeat", "1")
    [bench] = json.loads(milabench("report", "--json").out)["benchmarks"]
    return said.code, bench


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
