"""Jobs of several steps on two machines: a server and its client, and ranks that somebody else would have to start."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.ssh.conftest import ROOT, Said
from tests.ssh.hosts import Hosts

SUITE = str(ROOT / "tests" / "suite" / "jobs_on_two_nodes.yaml")


def test_a_server_and_its_client_and_ranks_span_two_machines(
    hosts: Hosts,
    system: Callable[[dict[str, Any]], Path],
    milabench: Callable[..., Said],
    tmp_path: Path,
) -> None:
    made: dict[str, Any] = hosts.system()
    for number, entry in enumerate(made["system"]["nodes"]):
        entry["base"] = str(tmp_path / f"base{number}")
    system(made)
    ran = milabench("run", MILABENCH_CONFIG=SUITE)
    assert ran.code == 0, ran.err
    (run,) = (tmp_path / "base" / "runs").glob("run.*")
    steps = {step["id"]: step for step in json.loads((run / "manifest.json").read_text())["plan"]["steps"]}
    assert {name: step["node"] for name, step in steps.items()} == {
        "web.server.node0": "h0",
        "web.client.node1": "h1",
        "ranks.D0.node0": "h0",
        "ranks.D0.node1": "h1",
    }
    said = [(run / f"ranks.D0.node{number}.stdout").read_text().split() for number in (0, 1)]
    assert [words[:5] for words in said] == [["0", "of", "2,", "here", "0;"], ["1", "of", "2,", "here", "0;"]]
    assert said[0][5] == said[1][5]
    assert said[0][5].startswith(made["system"]["nodes"][0]["ip"])
    benches = {each["bench"]: each for each in json.loads(milabench("report", "--json").out)["benchmarks"]}
    assert (benches["web"]["outcome"], benches["web"]["units"]) == ("passed", "requests/s")
