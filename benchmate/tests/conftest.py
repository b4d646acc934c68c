"""What the tests share: no inherited configuration, and an agent that listens."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from agent import Agent
from hypothesis import settings

# The same examples everywhere, and none is wrong because the machine does other things meanwhile. ALL_EXAMPLES: `make e2e`.
EXAMPLES = 100 if os.environ.get("ALL_EXAMPLES") else 40
settings.register_profile("benchmate", deadline=None, derandomize=True, max_examples=EXAMPLES)
settings.load_profile("benchmate")

# A script's job in the background ignores Ctrl-C and Ctrl-\\, one under nohup ignores SIGHUP; so would every program that the
# tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
for number in (signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)


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
