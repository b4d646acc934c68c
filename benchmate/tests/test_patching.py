"""Attributes that are replaced as soon as their module has been imported."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from benchmate.patching import Patch, apply_when_imported, call_when_imported

# As torch does: a module of the package is imported before the function that the package defines can be called.
PACKAGE = """
def seed(number):
    seeds.append(number)

import {name}.data
seeds = []
"""


def test_a_patch_is_applied_at_once_and_a_function_called_after_the_whole_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "package_with_data"
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text(PACKAGE.format(name=name))
    (tmp_path / name / "data.py").write_text("def load(): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    apply_when_imported(Patch(f"{name}.data.load", lambda load: load))
    complete = []

    def look(seed: object = None) -> object:
        complete.append(hasattr(sys.modules[name], "seeds"))
        return seed

    apply_when_imported(Patch(f"{name}.seed", look))
    call_when_imported(name, look)
    importlib.import_module(name)
    assert complete == [False, True]
    call_when_imported(name, look)
    assert complete == [False, True, True]
