"""`make demo-slurm`: what it shows, and that nothing of it is left."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import ROOT
from tests.slurm.cluster import why_no_slurm

pytestmark = [pytest.mark.e2e, pytest.mark.long]

DEMO = ROOT / "tests" / "slurm" / "demo.py"


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A folder for the cluster, of its own to see what is left, and with a path that is short enough for slurmd."""
    with tempfile.TemporaryDirectory(prefix="mb-") as folder:
        yield Path(folder)


def demo(tmp_path: Path, scratch: Path, select: str) -> subprocess.CompletedProcess[str]:
    suite = ["--config", str(ROOT / "tests" / "suite" / "odd.yaml"), "--select", select, "--nodes", "2"]
    known = {"MILABENCH_USE_CURRENT_ENV": "1", "MILABENCH_LOCK_DIR": str(tmp_path / "locks"), "TMPDIR": str(scratch)}
    return subprocess.run(
        [sys.executable, str(DEMO), "--base", str(tmp_path / "base"), *suite],
        env={**os.environ, **known},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_suite_is_run_both_ways_and_the_death_of_the_orchestrator_costs_nothing(
    tmp_path: Path, scratch: Path
) -> None:
    if (why := why_no_slurm()) is not None:
        pytest.skip(why)
    shown = demo(tmp_path, scratch, "good,'a b'")
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert "== the orchestrator is killed; its jobs are not" in shown.stdout
    report = shown.stdout.partition("== report\n")[2]
    assert "result  2 of 2 steps passed" in report
    assert shown.stdout.endswith("== the cluster is taken down\n")
    assert not list(scratch.glob("mb-slurm-*"))
