"""A run on other machines that leaves its terminal: its connections are those of the process that goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.commands import Said
from tests.ssh.hosts import Hosts

pytestmark = [pytest.mark.e2e, pytest.mark.long]


def test_a_run_on_nodes_goes_on_without_its_terminal(
    hosts: Hosts, system: Callable[[dict[str, Any]], Path], milabench: Callable[..., Said]
) -> None:
    system(hosts.system())
    assert milabench("prepare", "--select", "good").code == 0
    said = milabench("run", "--select", "good", "--detach")
    assert (said.code, "continues without this terminal" in said.err) == (0, True), said.err
    watched = milabench("resume")  # it may be over by now, and is told to be finished then
    assert watched.code == 0, watched.err
    assert json.loads(milabench("status", "--json").out)["counts"] == {"passed": 2}
