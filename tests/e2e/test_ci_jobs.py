"""The jobs of build servers with nothing installed before: the action from its own source, the component from a wheel."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ci_runner import run_action, run_component
from tests.commands import ROOT

pytestmark = pytest.mark.e2e
SUITE = "benchmarks/mine/suite.yaml"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    subprocess.run([sys.executable, "-m", "milabench", "new", "mine"], cwd=folder, check=True, capture_output=True)
    return folder


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A runner's variables: a Python on its path, and no milabench."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MILABENCH_", "PYTHON"))}
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").symlink_to(os.path.realpath(sys.executable))
    path = f"{tmp_path / 'bin'}:/usr/bin:/bin"
    own = {"MILABENCH_LOCK_DIR": str(tmp_path / "locks"), "MILABENCH_WAIT": "1", "MILABENCH_GPU_ARCH": "cpu"}
    return {**kept, **own, "PATH": path}


def test_the_action_installs_itself_and_measures(workspace: Path, environ: dict[str, str]) -> None:
    done = run_action(workspace, environ, config=SUITE)
    assert (done.code, done.outputs["exit-code"]) == (0, "0"), done.log
    assert "1 of 1 step passed" in done.log
    assert "mine" in done.summary
    assert sorted(path.name for path in workspace.iterdir()) == ["benchmarks", "milabench-reports", "results"]


@pytest.mark.long
def test_the_component_installs_a_wheel_and_measures(workspace: Path, environ: dict[str, str], tmp_path: Path) -> None:
    built = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "dist")]
    subprocess.run(built, cwd=ROOT, check=True, capture_output=True)
    [wheel] = (tmp_path / "dist").iterdir()
    done = run_component(workspace, environ, package=str(wheel), config=SUITE)
    assert done.code == 0, done.log
    assert "1 of 1 step passed" in done.log
    assert (workspace / "milabench-reports" / "report.xml").is_file()


def test_a_package_that_pip_does_not_find_ends_the_job(workspace: Path, environ: dict[str, str]) -> None:
    for run in (run_action, run_component):
        done = run(workspace, environ, package="./none.whl", config=SUITE)
        assert done.code not in (0, 7, 8)
        assert not (workspace / "milabench-reports").exists()
