"""The instruments' own tests, with the frameworks in the environments of config/quickstart.yaml."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import ROOT, milabench_in
from tests.common_folders import common_environments

# Beside test_quickstart.py, so that another worker may have them.
pytestmark = pytest.mark.e2e


def kept() -> dict[str, str]:
    """The user's variables but for our own."""
    return {name: value for name, value in os.environ.items() if not name.startswith("MILABENCH_")}


@pytest.fixture(scope="module")
def environments(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the environments, by their names."""
    folder = common_environments(tmp_path_factory)
    own = {"MILABENCH_BASE": str(tmp_path_factory.mktemp("base")), "MILABENCH_DIRS_VENV": str(folder)}
    installed = milabench_in({**kept(), **own})("install", "--config", "config/quickstart.yaml")
    assert installed.code == 0, installed.err
    return folder


@pytest.mark.parametrize(
    ("venv", "folder", "files"),
    [
        # In CI tests/truth/test_own_clocks.py shows torch's loops, loaders and ranks, under the agent.
        pytest.param(
            "torch",
            "benchmate",
            ["test_steps_in_torch", "test_rank_consensus", "test_probes", "test_bad_input", "test_readme"],
            marks=pytest.mark.long,
        ),
        pytest.param("torch", "benchmate", ["ops/test_operators"], marks=pytest.mark.long),
        pytest.param("trl", "benchmate", ["test_trainer"], marks=pytest.mark.long),
        pytest.param("trl", "benchmate", ["test_accelerate"], marks=pytest.mark.long),
        ("jax", "benchmate", ["test_jax"]),
        ("torch", "", ["contract/test_instruments_and_agent"]),
    ],
)
def test_the_instruments_tests_pass_with_the_frameworks_that_benchmarks_use(
    environments: Path, venv: str, folder: str, files: list[str]
) -> None:
    (packages,) = (environments / venv / "lib").glob("python*/site-packages")
    if packages.parent.name != f"python{sys.version_info.major}.{sys.version_info.minor}":
        pytest.skip(f"the locks are for {packages.parent.name}, this is another Python")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *(f"tests/{file}.py" for file in files)],
        # The checkout's own instruments, not those installed beside the framework.
        env={**kept(), "PYTHONPATH": f"{ROOT / 'benchmate' / 'src'}:{packages}"},
        cwd=ROOT / folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert "skipped" not in done.stdout
