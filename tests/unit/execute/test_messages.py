"""What an agent sends of its own passes what is declared for it."""

from __future__ import annotations

import json

import pytest

from milabench.execute.agent.slots import measured_span
from milabench.execute.messages import HEADER, header_sums


@pytest.mark.parametrize("more", [{}, {"warmup": True}])
def test_the_header_of_observations_is_read(more: dict[str, bool]) -> None:
    span = measured_span({"n": 10, "host_ns": [1000, 2000], "t0_ns": 5, **more})
    header = {"k": "obs", "n": 12, "step": "a", "last": {"task": "train", "progress": [2, 0], "spans": [span]}}
    read = HEADER.read(json.dumps(header).encode())
    assert header_sums(read)["spans"] == [(5, 3005, 20.0, bool(more))]
