"""Guards around every test: no inherited settings, a home of its own."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

from milabench.redaction import forget
from tests.examples import ALL

# The same examples everywhere, and none is wrong because the machine does other things meanwhile.
settings.register_profile("milabench", deadline=None, derandomize=True, max_examples=100 if ALL else 40)
settings.load_profile("milabench")

# A script's job in the background ignores Ctrl-C and Ctrl-\\, one under nohup ignores SIGHUP; so would every program that the
# tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
for number in (signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)

pytest_plugins = ["tests.ceiling", "tests.turns"]
# A Python that gets SIGABRT at a test's ceiling writes the stacks of all its threads.
os.environ["PYTHONFAULTHANDLER"] = "1"

# What a test writes need not outlast the machine: to wait for the disk was a seventh of the time of the unit tests.
pytest.MonkeyPatch().setattr(os, "fsync", lambda descriptor: None)

INHERITED = ("MILABENCH_", "CUDA_", "SLURM_", "VOIR", "DATA_FD", "HF_")


@pytest.fixture(autouse=True)
def _a_clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    forget()
    for name in list(os.environ):
        if name.startswith(INHERITED):
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return Path(__file__).resolve().parent.parent
