"""What the tests share: no inherited configuration, and an agent that listens."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from agent import Agent
from hypothesis import settings

# The same examples everywhere, and none is wrong because the machine does other things meanwhile.
settings.register_profile("benchmate", deadline=None, derandomize=True)
settings.load_profile("benchmate")

# A job in the background of a script ignores Ctrl-C, and so would every program that the tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


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
