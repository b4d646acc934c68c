"""Attributes that are replaced as soon as their module has been imported."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from benchmate.patching import Patch, apply_when_imported

# As torch does: a module of the package is imported before the function that the package defines can be called.
PACKAGE = """
def seed(number):
    seeds.append(number)

import {name}.data
seeds = []
"""


@pytest.mark.parametrize("after_import", [True, False])
def test_a_patch_that_calls_the_original_waits_for_the_whole_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after_import: bool
) -> None:
    name = f"package_{after_import}"
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text(PACKAGE.format(name=name))
    (tmp_path / name / "data.py").write_text("def load(): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    apply_when_imported(Patch(f"{name}.data.load", lambda load: load))
    complete = []

    def seeded(seed: object) -> object:
        complete.append(hasattr(sys.modules[name], "seeds"))
        return seed

    apply_when_imported(Patch(f"{name}.seed", seeded, after_import=after_import))
    importlib.import_module(name)
    assert complete == [after_import]
