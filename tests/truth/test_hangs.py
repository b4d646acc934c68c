"""A hang of each class is explained right: the program hangs.py, with one injection of each."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import ROOT, milabench_in
from tests.common_folders import common_environments

from .hangs import FAULTS

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with torch: the environment of the digits."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MILABENCH_")}
    venvs = common_environments(tmp_path_factory)
    base = str(tmp_path_factory.mktemp("base"))
    milabench = milabench_in({**kept, "MILABENCH_BASE": base, "MILABENCH_DIRS_VENV": str(venvs)})
    installed = milabench("install", "--config", "config/quickstart.yaml", "--select", "digits")
    assert installed.code == 0, installed.err
    return Path(venvs) / "torch" / "bin" / "python"


@pytest.mark.parametrize("fault", FAULTS)
def test_the_rank_that_the_others_wait_for_is_named(fault: str, python: Path) -> None:
    words = [sys.executable, "tests/truth/hangs.py", "--python", str(python), "--each", "1", "--faults", fault]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(rf"^{fault} +1/1 ", done.stdout, re.M)
