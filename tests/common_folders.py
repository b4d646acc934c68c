"""Folders that all tests of one run of pytest have in common, whichever of its workers they are on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def common_folder(factory: pytest.TempPathFactory) -> Path:
    """The folder above those of the workers, or the only one where there are none."""
    own = factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


def quickstart_base(factory: pytest.TempPathFactory) -> Path:
    """The base into which config/quickstart.yaml is installed."""
    return common_folder(factory) / "quickstart" / "base"


def common_environments(factory: pytest.TempPathFactory) -> Path:
    """Where its environments are; `milabench install` locks each that it makes, so that others wait for it, and use it."""
    return quickstart_base(factory) / "venv"
