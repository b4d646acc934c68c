"""`milabench timing-audit` with a model of the user: found in the user's folder, and refused before anything is measured."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from milabench.errors import UsageError
from milabench.plan.model import Step
from milabench.timing_audit.experiment import audit_overrides, model_location, require_model
from tests.commands import Said

MODEL = "import helper\n\n\ndef make(batch, device):\n    return helper.call\n"


def test_a_file_that_is_not_there_is_one_line_and_nothing_is_installed(
    milabench: Callable[..., Said], tmp_path: Path
) -> None:
    folder = tmp_path / "user"
    folder.mkdir()
    ended = milabench("timing-audit", "--model", "onnx:net.onnx", "--base", "base", cwd=folder)
    assert ended == Said(2, "", f"error: --model onnx:net.onnx: no such file in {folder}\n")
    assert list(folder.iterdir()) == []


def test_a_model_is_that_of_the_users_folder_also_for_the_step(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_text("")
    assert model_location(None, tmp_path) == {}
    assert model_location("onnx:net.onnx", tmp_path) == {"folder": str(tmp_path)}
    override, _ = audit_overrides({"model": "mine:make", **model_location("mine:make", tmp_path)}, True)
    assert f'"--folder": "{tmp_path}"' in override


def test_a_model_is_imported_before_the_first_process(tmp_path: Path) -> None:
    folder, other = tmp_path / "user", tmp_path / "data"
    folder.mkdir()
    argv = (sys.executable, "-m", "benchmate.audit", "--folder", str(folder), "--model", "mine:make")
    step = Step(id="timing_audit", bench="timing_audit", phase="run", argv=argv, cwd=str(other))
    (folder / "mine.py").write_text(MODEL)
    with pytest.raises(UsageError, match=r"^model mine:make: No module named 'helper'"):
        require_model(step)
    (folder / "helper.py").write_text("def call(): pass\n")
    require_model(step)
