"""`install` and a lock that was made from other requirements than those beside it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from milabench.plan.pin import inputs_digest
from milabench.scaffold.new_benchmark import create_benchmark

Milabench = Callable[..., Any]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return create_benchmark("mine", tmp_path)


def test_what_a_lock_is_made_from_is_told_from_its_comments_and_order() -> None:
    digest = inputs_digest("numpy\nscipy>=1  # fast\n", "torch==2.13.0\n")
    assert digest == inputs_digest("# two of them\nscipy>=1\n\nnumpy\n", "# one\ntorch==2.13.0\n")
    others = [
        ("numpy\n", "torch==2.13.0\n"),
        ("numpy\nscipy>=1\n", "torch==2.12.0\n"),
        ("numpy\n", "scipy>=1\n"),
        ("", ""),
        ("# exclude: pillow\nnumpy\nscipy>=1\n", "torch==2.13.0\n"),
    ]
    assert len({digest, *(inputs_digest(*other) for other in others)}) == 6


def test_the_locks_of_the_template_are_current(milabench: Milabench, folder: Path) -> None:
    assert milabench("plan", "install", "--config", str(folder / "suite.yaml")).code == 0


@pytest.mark.parametrize("command", [("install",), ("plan", "install")])
def test_requirements_that_changed_after_the_lock_are_refused_with_the_command_that_mends_it(
    milabench: Milabench, folder: Path, command: tuple[str, ...]
) -> None:
    suite = str(folder / "suite.yaml")
    with (folder / "requirements.in").open("a") as requirements:
        requirements.write("einops\n")
    said = milabench(*command, "--config", suite)
    assert said.code == 4
    assert "mine/requirements.cpu.txt: was not made from mine/requirements.in or " in said.err
    assert f"milabench pin --config {suite}" in said.err
    assert "--select mine`, or install it as it is with --frozen" in said.err


def test_frozen_installs_from_the_lock_as_it_is(milabench: Milabench, folder: Path) -> None:
    with (folder / "requirements.in").open("a") as requirements:
        requirements.write("einops\n")
    assert milabench("plan", "install", "--frozen", "--config", str(folder / "suite.yaml")).code == 0


def test_a_lock_that_does_not_tell_its_inputs_is_believed(milabench: Milabench, folder: Path) -> None:
    for lock in folder.glob("requirements.*.txt"):
        lock.write_text(
            "".join(line for line in lock.read_text().splitlines(keepends=True) if not line.startswith("# inputs:"))
        )
    (folder / "requirements.in").write_text("einops\n")
    assert milabench("plan", "install", "--config", str(folder / "suite.yaml")).code == 0
