"""The files of a program, and what it imports."""

from __future__ import annotations

from pathlib import Path

import pytest

from milabench.errors import UsageError
from milabench.own_program.reading import read_source


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "train.py"


def test_modules_beside_the_script_are_its_files_and_no_packages(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        train="import torch, net\nfrom data.images import load\n",
        net="import numpy, other\n",
        other="import json\n",
        data__images="import PIL\n",
        unused="import pandas\n",
    )
    (tmp_path / "data" / "__init__.py").touch()
    reading = read_source(script)
    assert {each.module for each in reading.scripts} == {"__main__", "net", "other", "data", "data.images"}
    assert set(reading.imports) == {"torch", "numpy", "json", "PIL"}
    assert reading.needed == {"torch": 1}


def test_a_package_that_is_imported_in_a_try_or_a_function_is_not_needed(tmp_path: Path) -> None:
    text = "try:\n    import wandb\nexcept ImportError:\n    wandb = None\ndef main():\n    import pandas\n"
    reading = read_source(write(tmp_path, train=text))
    assert set(reading.imports) == {"wandb", "pandas"}
    assert reading.needed == {}


def test_what_is_no_python_is_refused_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"train\.py:2: is no Python: "):
        read_source(write(tmp_path, train="x = 1\ny = = 2\n"))


def test_a_folder_is_no_script(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a folder"):
        read_source(tmp_path)
