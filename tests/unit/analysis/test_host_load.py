from __future__ import annotations

from typing import Any

import pytest

from milabench.analysis.host_load import busy_text


def node(**details: Any) -> dict[str, Any]:
    return {"cpu": {"count": 8}, "details": details}


def test_a_busy_machine_is_named_with_its_figures() -> None:
    assert busy_text(node(load=[3.14, 1, 1], runnable=4)) == "4 threads of others run on 8 processors (load 3.14)"
    assert busy_text(node(load=[0.9, 1, 1], runnable=1)) == "1 thread of others runs on 8 processors (load 0.90)"


@pytest.mark.parametrize(
    "details",
    [
        {},
        {"load": [2.0, 1, 1], "runnable": 0},  # an installation has just ended
        {"load": [0.1, 1, 1], "runnable": 3},  # a blink
        {"load": [9.0, 9, 9]},  # an agent that did not look
        {"load": "x", "runnable": None},
        {"load": [None], "runnable": 5},
    ],
)
def test_an_idle_machine_is_not(details: dict[str, Any]) -> None:
    assert busy_text(node(**details)) == ""
