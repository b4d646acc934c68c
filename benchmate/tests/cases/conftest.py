"""What the tests of cases share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from programs import Program


@pytest.fixture
def program(tmp_path: Path) -> Callable[[str], Program]:
    """Makes a program of cases from what stands between its import and `main()`."""
    return lambda body: Program(tmp_path, body)
