"""What `milabench check` says of a machine with accelerators."""

from __future__ import annotations

from pathlib import Path

from milabench.facts.model import Node
from milabench.workflow.doctor import TORCH_CUDA, check_accelerated

ROOT = Path(__file__).resolve().parents[3]


def said(tmp_path: Path, **details: str) -> list[tuple[str, str]]:
    return [(finding.what, finding.state) for finding in check_accelerated(Node(details=details), str(tmp_path))]


def test_a_python_without_headers_is_noted(tmp_path: Path) -> None:
    assert said(tmp_path) == [("headers", "note")]
    (tmp_path / "Python.h").touch()
    assert said(tmp_path) == []


def test_a_driver_that_is_older_than_torch_is_bad(tmp_path: Path) -> None:
    (tmp_path / "Python.h").touch()
    assert said(tmp_path, driver="555.42", cuda="12.5") == [("driver", "bad")]
    assert said(tmp_path, driver="580.65", cuda="13.0") == []


def test_the_cuda_of_torch_is_that_of_its_constraints() -> None:
    assert f"is for CUDA {TORCH_CUDA}." in (ROOT / "constraints" / "cuda.txt").read_text()
