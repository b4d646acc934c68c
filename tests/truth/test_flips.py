"""Wrong bits are found, and right results are not called wrong: the program flips.py, with fewer trials than by hand."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.commands import ROOT, milabench_in
from tests.common_folders import common_environments

pytestmark = pytest.mark.e2e

FLOATS = ("fp64", "fp32", "bf16", "fp16")


def test_wrong_bits_of_products_copies_and_sums_are_found_and_good_products_are_not_called_wrong(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MILABENCH_")}
    venvs = common_environments(tmp_path_factory)
    milabench = milabench_in({**kept, "MILABENCH_BASE": str(tmp_path), "MILABENCH_DIRS_VENV": str(venvs)})
    installed = milabench("install", "--config", "config/quickstart.yaml", "--select", "digits")
    assert installed.code == 0, installed.err
    words = ("tests/truth/flips.py", "--trials", "100", "--good", "4000", "--programs", "1")
    done = subprocess.run(
        [venvs / "torch" / "bin" / "python", *words], env=kept, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^good products called wrong: 0 of [34]\d{3}$", done.stdout, re.M)
    for name in FLOATS:
        assert re.search(rf"^{name}: one bit of one element +100 +100\.00%, named rightly 100\.00%", done.stdout, re.M)
