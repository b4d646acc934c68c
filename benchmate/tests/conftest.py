"""What the tests share: no inherited configuration, and an agent that listens."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from agent import Agent


@pytest.fixture(autouse=True)
def _no_inherited_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("MILABENCH_", "CUDA_", "SLURM_", "DATA_FD", "VOIR")) or name in (
            "RANK",
            "LOCAL_RANK",
            "WORLD_SIZE",
        ):
            monkeypatch.delenv(name)


@pytest.fixture
def agent() -> Iterator[Agent]:
    with Agent() as agent:
        yield agent
