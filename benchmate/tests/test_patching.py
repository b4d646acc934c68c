"""Attributes that are replaced as soon as their module has been imported."""

from __future__ import annotations

import functools
import importlib
import sys
from pathlib import Path
from types import ModuleType

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


def test_a_method_of_an_object_stays_bound_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Trainer:
        def step(self, batch: int) -> tuple[object, int]:
            return self, batch

        kind = classmethod(lambda cls: cls)

    module = ModuleType("program_with_an_object")
    trainer = vars(module)["trainer"] = Trainer()
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for name in ("step", "kind"):
        assert Patch(f"{module.__name__}.trainer.{name}", functools.partial).apply()
    assert trainer.step(3) == (trainer, 3)
    assert trainer.kind() is Trainer
    assert "step" not in vars(Trainer()), "other objects are as they were"
