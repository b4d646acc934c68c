"""The driver of RecBole's recommenders, with a package in RecBole's place that prints what it is asked for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

DRIVER = Path(__file__).resolve().parents[2] / "benchmarks" / "recbole" / "main.py"
STAND_IN = "import json\ndef run_recbole(model, dataset, config_dict, saved): print(json.dumps(config_dict))\n"


@pytest.mark.parametrize(("visible", "device"), [("3", "3"), ("GPU-8f1c", "GPU-8f1c"), ("", ""), (None, "0")])
def test_recbole_is_told_the_device_that_the_process_was_given(
    tmp_path: Path, visible: str | None, device: str
) -> None:
    package = tmp_path / "recbole"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "quick_start.py").write_text(STAND_IN)
    env = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    env |= {"PYTHONPATH": str(tmp_path)} | ({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})
    command = [sys.executable, str(DRIVER), "--model", "BPR", "--dataset", "ml-100k", "--epochs", "7"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {"epochs": 7, "gpu_id": device}
