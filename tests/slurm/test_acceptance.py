"""A fleet of eight nodes, one of them slow: a benchmark runs once on every node, and `outliers` names that one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import ROOT
from tests.slurm.cluster import Cluster, Settings, cluster, why_no_slow_node, why_no_slurm
from tests.slurm.user import User

SLOW = "n5"
# Sleeps most of the time, so that others on this machine disturb it little; a node with a part of a processor is far slower.
PACED = """
import time
import benchmate
for _ in benchmate.observed(range(40), units="rounds/s", batch_size=1):
    time.sleep(0.02)
    burnt = time.process_time() + 0.004
    while time.process_time() < burnt:
        pass
"""


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Eight nodes, of which one gets a small part of a processor."""
    if (why := why_no_slurm() or why_no_slow_node()) is not None:
        pytest.skip(why)
    with cluster(Settings(nodes=8)) as made:
        made.slow(SLOW, 0.04)
        for name, value in made.environ.items():
            monkeypatch.setenv(name, value)
        yield made


@pytest.mark.e2e
@pytest.mark.long
def test_outliers_names_the_slow_node(fleet: Cluster, tmp_path: Path) -> None:
    (tmp_path / "paced.py").write_text(PACED)
    user = User(tmp_path)
    user.suite.write_text(
        "profile: quick\n"
        f"paced: {{install_variant: unpinned, command: ['{sys.executable}', '{tmp_path}/paced.py'],"
        " plan: {method: njobs, n: 1}, voir: {options: {skip: 2}}}\n"
    )
    user.says("run", "--engine", "slurm", "--distribute", "--max-jobs", "4")
    assert SLOW in outliers(user.base, user.environ)


@pytest.mark.e2e
@pytest.mark.long
def test_flops_on_every_node_and_outliers_names_the_slow_one(fleet: Cluster, tmp_path: Path) -> None:
    environ = {**os.environ, "MILABENCH_LOCK_DIR": str(tmp_path / "locks")}
    base = tmp_path / "base"
    suite = ("--config", "config/quickstart.yaml", "--select", "flops")
    milabench("install", *suite, base=base, environ=environ)
    milabench("prepare", *suite, base=base, environ=environ)
    milabench("run", *suite, "--engine", "slurm", "--distribute", "--max-jobs", "1", base=base, environ=environ)
    assert SLOW in outliers(base, environ)


def outliers(base: Path, environ: dict[str, str]) -> set[str]:
    """The nodes of the latest run that are outliers among the others, by their rate or their first step."""
    file = base / "baseline.json"
    milabench("baseline", "latest", "-o", str(file), base=base, environ=environ)
    said = milabench("outliers", "latest", "--baseline", str(file), "--json", base=base, environ=environ, expect=None)
    found = json.loads(said)["outliers"]
    return {one["node"] for one in found}


def milabench(*argv: str, base: Path, environ: dict[str, str], expect: int | None = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "milabench", *argv, "--base", str(base)],
        env=environ,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert expect is None or done.returncode == expect, f"{argv}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout
