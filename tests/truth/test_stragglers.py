"""Four ranks that train together over gloo: the one that sleeps in each step is named, and of equal ones none is."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from tests.commands import ROOT, milabench_in
from tests.common_folders import common_environments

pytestmark = pytest.mark.e2e

HERE = Path(__file__).parent
SUITE = """
profile: quick
system: {arch: cpu, gpu: {count: 4}}
_ranks:
  definition: torch
  install_group: torch
  max_duration: 200
  weight: 1.0
  plan: {method: multigpu}
  env: {OMP_NUM_THREADS: "1"}
  voir: {options: {stop: 60, skip: 10}}
four_ranks: {inherits: _ranks}
four_ranks_one_slow: {inherits: _ranks}
"""


def test_the_slow_rank_is_named_and_equal_ones_are_not(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    (tmp_path / "suite.yaml").write_text(SUITE)
    shutil.copytree(HERE / "programs", tmp_path / "torch")
    for file in ("requirements.in", "requirements.cpu.txt"):
        shutil.copy(ROOT / "benchmarks" / "_environments" / "torch" / file, tmp_path / "torch")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MILABENCH_")}
    own = {"MILABENCH_BASE": str(tmp_path / "base"), "MILABENCH_LOCK_DIR": str(tmp_path / "locks")}
    milabench = milabench_in({**kept, **own, "MILABENCH_DIRS_VENV": str(common_environments(tmp_path_factory))})
    suite = ("--config", str(tmp_path / "suite.yaml"))
    installed = milabench("install", *suite)
    assert installed.code == 0, installed.err
    ran = milabench("run", *suite)
    assert ran.code == 0, ran.out + ran.err
    benches = {bench["bench"]: bench for bench in json.loads(milabench("report", "--json").out)["benchmarks"]}
    verdicts = {
        name: next(check for check in bench["validations"] if check["check"] == "stragglers")
        for name, bench in benches.items()
    }
    assert verdicts["four_ranks"]["verdict"] == "pass", verdicts
    slow = verdicts["four_ranks_one_slow"]
    assert slow["verdict"] == "warn"
    waited = re.fullmatch(
        r"rank 2 is slow: last into the collectives in \d+ of \d+ steps, (\d+)% of the waiting. "
        r"Each other rank waits ([\d.]+) ms a step for it",
        slow["message"],
    )
    assert waited, slow
    assert int(waited[1]) > 90
    assert float(waited[2]) == pytest.approx(20, rel=0.5)
    assert "stragglers" not in benches["four_ranks_one_slow"]["reasons"]
    milabench("report", "--format", "html", "-o", str(tmp_path / "page.html"))
    for text in (milabench("report").out, milabench("report", "--full").out, (tmp_path / "page.html").read_text()):
        assert "rank 2 is slow" in text
        assert "stragglers" in text
        assert "rank 0 is slow" not in text
