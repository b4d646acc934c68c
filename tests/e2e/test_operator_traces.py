"""Execution traces in the environment of benchmarks/ops: commands on a program of two ranks, benchmate's tests with torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.long]

ROOT = Path(__file__).resolve().parents[2]
SUITE = ("--config", str(ROOT / "config" / "ops.yaml"), "--select", "ops-add")
OPS = ("--bench", "ops-add")
PROGRAM = """\
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(6):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(torch.randn(8, 64)), torch.randint(0, 10, (8,)))
    loss.backward()
    optimizer.step()
    dist.all_reduce(loss.detach().clone())
dist.destroy_process_group()
"""

Milabench = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def milabench(tmp_path_factory: pytest.TempPathFactory) -> Milabench:
    """Runs a verb on an installed environment, in a folder."""
    base = tmp_path_factory.mktemp("base")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MILABENCH_")}
    environ = {**kept, "MILABENCH_BASE": str(base), "MILABENCH_WAIT": "1", "OMP_NUM_THREADS": "1"}

    def run(folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "milabench", *argv]
        environ["PYTHONPATH"] = str(ROOT)
        return subprocess.run(command, env=environ, cwd=folder, capture_output=True, text=True, check=False)

    missing = run(base, "ops", *OPS, "--list-ops")
    assert (missing.returncode, missing.stdout) == (4, "")
    assert missing.stderr.startswith("error: not installed: venv/torch. Run `milabench install")
    done = run(base, "install", *SUITE)
    assert done.returncode == 0, done.stderr
    return run


def test_a_step_of_two_ranks_is_recorded_summarised_converted_and_replayed(
    milabench: Milabench, tmp_path: Path
) -> None:
    (tmp_path / "ddp.py").write_text(PROGRAM)

    def ops(*argv: str) -> str:
        done = milabench(tmp_path, "ops", *OPS, *argv)
        assert done.returncode == 0, f"{argv}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    ranks = ("torchrun", "--standalone", "--nproc-per-node", "2")
    ops("trace", "record", "-o", "t.json", "--skip", "1", "--timed", "2", "--", *ranks, "ddp.py")
    found = json.loads(ops("trace", "summary", "t.rank-1.json", "--json"))
    assert (found["about"]["rank"], found["ranks"]) == (1, 2)
    assert [row["name"] for row in found["collectives"]] == ["c10d::allreduce_"]
    ops("trace", "to-config", "t.rank-0.json", "-o", "c.json")
    ops("-c", "c.json", "-o", "records", "-a")
    assert json.loads(ops("trace", "predict", "records.json", "--json"))["missing"] == 0

    replay = ("-m", "benchmate.ops", "trace", "replay", str(tmp_path / "t.json"), "-i", "2", "--json")
    done = milabench(tmp_path, "dev", *SUITE[:2], "ops-add", "--", *ranks, *replay)
    assert done.returncode == 0, done.stderr
    coverage = json.loads(done.stdout)["coverage"]
    assert (coverage["skipped"], coverage["failed"], coverage["of_executable"]) == (0, 0, 1.0)
    assert coverage["recorded_operators_covered"] == coverage["recorded_operators"]


def test_benchmates_tests_of_replay_pass_in_an_environment_with_torch(milabench: Milabench, tmp_path: Path) -> None:
    where = milabench(tmp_path, "dev", *SUITE[:2], "ops-add", "--", "python", "-c", "import sys; print(sys.executable)")
    python = where.stdout.strip()
    # By pip, which asks where the user's settings say.
    add = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--quiet",
        "pytest>=8.3",
        "hypothesis>=6.100",
        "pytest-timeout",
    ]
    subprocess.run(add, check=True)
    tests = str(ROOT / "benchmate" / "tests" / "ops" / "test_traces_replay.py")
    command = [
        python,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-c",
        str(ROOT / "benchmate/pyproject.toml"),
        tests,
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout
