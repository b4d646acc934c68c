"""`milabench image` with what cannot become an image: one line each, and nothing written."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.pages import ROOT

Milabench = Callable[..., Any]
NAME = "milabench-0.1.0-py3-none-any.whl"


def packed(path: Path, **files: str) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        for name, text in files.items():
            file.writestr(name.replace("__", "/"), text)
    return path


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, f"{NAME}: cannot be read: no such file or directory"),
        (b"<html>", "not a readable zip file"),
        ({"a": ""}, "not a wheel of milabench that knows its dependencies"),
        (
            {"milabench-0.1.0.dist-info__METADATA": "Name: milabench\n"},
            "not a wheel of milabench that knows its dependencies",
        ),
        (
            {
                "milabench-0.1.0.dist-info__METADATA": "Name: milabench\nVersion: 0.1.0\n",
                "milabench__shipped__constraints__milabench.txt": "a==1\n",
                "milabench__shipped__benchmate__pyproject.toml": "other\n",
            },
            "brings another benchmate than this milabench",
        ),
    ],
)
def test_another_file_is_no_wheel(milabench: Milabench, tmp_path: Path, content: Any, why: str) -> None:
    if isinstance(content, bytes):
        (tmp_path / NAME).write_bytes(content)
    elif content is not None:
        packed(tmp_path / NAME, **content)
    said = milabench("image", "oci", "--wheel", NAME, "-o", "Containerfile")
    assert (said.code, why in said.err, said.err.count("\n")) == (4, True, 1), said.err
    assert not (tmp_path / "Containerfile").exists()


def test_a_wheel_of_another_name_is_refused(milabench: Milabench) -> None:
    said = milabench("image", "oci", "--wheel", "README.md")
    assert (said.code, "not the name of a wheel of milabench" in said.err) == (4, True)


def test_several_environments_are_named(milabench: Milabench) -> None:
    config = str(ROOT / "config" / "quickstart.yaml")
    said = milabench("image", "apptainer", "--wheel", NAME, "--config", config, "--arch", "cpu")
    assert said.code == 2
    assert "an image has a single environment, and --select names 5" in said.err
    assert "torch for digits, flops" in said.err


def test_the_wheel_is_asked_for(milabench: Milabench) -> None:
    said = milabench("image", "oci")
    assert (said.code, "'--wheel'" in said.err) == (2, True)
