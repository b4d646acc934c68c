"""Asking this machine what it is."""

from __future__ import annotations

import pytest

from milabench.errors import Unreachable
from milabench.facts import probe


def test_a_driver_that_hangs_ends_the_command_with_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "agent_command", lambda *_: ["sleep", "600"])
    monkeypatch.setattr(probe, "ANSWER_S", 0.01)
    hanging = probe.LocalProbe()
    with pytest.raises(Unreachable, match=r"did not answer in 0.01 s. Does the accelerators' driver answer"):
        hanging.answer()
    hanging._process.communicate()
