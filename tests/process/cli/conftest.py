"""Runs the command as a user does: a process of its own, with a home and a base of its own."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands import ROOT, Said, milabench_in

from .installable import Pair, installable, sharing

SUITE = ROOT / "tests" / "suite" / "odd.yaml"
HERE = ("--use-current-env", "--config", str(SUITE))


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """The user's variables: an empty home, and a base that is new."""
    home = tmp_path / "home"
    home.mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MILABENCH_")}
    base = str(tmp_path / "base")
    # Somebody else's run may hold this machine's devices: these tests are not about who measures first.
    return {
        **kept,
        "HOME": str(home),
        "MILABENCH_BASE": base,
        "XDG_CACHE_HOME": str(home / "cache"),
        "MILABENCH_WAIT": "1",
        "MILABENCH_LOCK_DIR": str(tmp_path / "locks"),
    }


@pytest.fixture
def milabench(environ: dict[str, str]) -> Callable[..., Said]:
    """Runs `milabench ARGUMENTS` to its end."""
    return milabench_in(environ)


@pytest.fixture
def prepared(milabench: Callable[..., Said]) -> Callable[..., Said]:
    """`milabench`, with the data of the odd suite made."""
    said = milabench("prepare", *HERE, "--exclude", "unprepared")
    assert said.code == 0, said.err
    return milabench


@pytest.fixture
def timed(milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path) -> tuple[tuple[str, ...], Path]:
    """A suite that is installed, the folder through which its programs wait; the environment knows where packages are."""
    here, variables, flags = installable(tmp_path, environ["MILABENCH_BASE"])
    environ.update(variables)
    said = milabench("install", *here)
    assert said.code == 0, said.err
    return here, flags


@pytest.fixture
def pair(tmp_path: Path, environ: dict[str, str]) -> Pair:
    """Two suites with environments of one name, which can be installed."""
    pair, variables = sharing(tmp_path, environ["MILABENCH_BASE"])
    environ.update(variables)
    return pair
