"""A job over two nodes of a real Slurm by every launcher: gradients are exchanged by gloo, in one allocation and in jobs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from milabench.workflow.environments import requirements_of
from tests.single_records import single_records
from tests.slurm.cluster import Settings, cluster, why_no_slurm

# One environment, made once.
pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[2]
# Not c10d: on a machine that is this busy, torchrun on the second node may find the store of the first one closed at the end.
LAUNCHERS = ("static", "accelerate", "ranks", "srun")


@pytest.fixture(scope="module")
def login(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, str]]]:
    """The folder of the suite, which is installed below it, and the variables by which the cluster is found."""
    if (why := why_no_slurm()) is not None:
        pytest.skip(why)
    made = tmp_path_factory.mktemp("slurm")
    shutil.copy(ROOT / "tests" / "suite" / "launchers.yaml", made)
    shutil.copytree(ROOT / "tests" / "suite" / "allreduce", made / "allreduce")
    for name in ("requirements.in", "requirements.cpu.txt"):
        shutil.copy(requirements_of(ROOT / "benchmarks" / "trl") / name, made / "allreduce")
    with cluster(Settings(nodes=2, prefix="e")) as slurm:
        installed = milabench(made, slurm.environ, "install", "--select", ",".join(LAUNCHERS))
        assert installed.returncode == 0, installed.stderr
        yield made, slurm.environ
    shutil.rmtree(made, ignore_errors=True)


def milabench(folder: Path, environ: dict[str, str], verb: str, *more: str) -> subprocess.CompletedProcess[str]:
    words = ("--config", str(folder / "launchers.yaml"), "--base", str(folder / "base"), "--engine", "slurm")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MILABENCH_")}
    return subprocess.run(
        [sys.executable, "-m", "milabench", verb, *words, "--slurm-arg", "nodes=2", *more],
        env={**kept, **environ, "MILABENCH_LOCK_DIR": str(folder / "locks")},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("more", [(), ("--submit",)], ids=["allocation", "jobs"])
def test_the_ranks_of_every_launcher_train_over_two_nodes(
    login: tuple[Path, dict[str, str]], more: tuple[str, ...]
) -> None:
    folder, environ = login
    name = f"run{len(more)}"
    ran = milabench(folder, environ, "run", "--select", ",".join(LAUNCHERS), "--run-name", name, *more)
    assert ran.returncode == 0, ran.stderr
    (run,) = (folder / "base" / "runs").glob(f"{name}.*")
    files = json.loads((run / "manifest.json").read_text())["files"]
    # srun is one command, whose ranks on the other node do not report.
    assert len(files) == 2 * len(LAUNCHERS) - 1
    for file in files.values():
        records = single_records((run / f"{file}.data").read_text())
        rates = [one["data"] for one in records if one["event"] == "data" and "rate" in one["data"]]
        assert sum("warmup" not in one for one in rates) > 0
        assert records[-1]["data"]["outcome"] == "passed"
