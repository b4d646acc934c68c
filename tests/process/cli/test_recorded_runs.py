"""The recorded runs that come with the source: small, and enough for a comparison."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from tests.commands import ROOT, Said

RUNS = ROOT / "tests" / "runs"


def test_the_recorded_runs_are_compared_and_one_is_faster(milabench: Callable[..., Said], tmp_path: Path) -> None:
    shutil.copytree(RUNS, tmp_path / "runs")  # a summary is kept beside what is read
    said = milabench("compare", str(tmp_path / "runs" / "system_a"), str(tmp_path / "runs" / "system_b"))
    assert said.code == 0, said.err
    rows = [line.split("|") for line in said.out.splitlines() if line.count("|") > 1]
    verdicts = {row[0].strip(): row[-1].split()[0] for row in rows[1:]}
    assert verdicts == {"flops": "FASTER", "digits": "FASTER", "sft": "INCONCLUSIVE", "ppo": "INCONCLUSIVE"}


def test_what_is_recorded_here_stays_small() -> None:
    files = [path for path in RUNS.glob("*/*") if path.is_file() and path.name != "summary.json"]
    assert 0 < sum(path.stat().st_size for path in files) < 400_000
