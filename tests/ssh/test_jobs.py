"""Jobs of several steps on two machines: a server and its client, ranks that somebody else would have to start, a barrier."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.commands import ROOT, Said
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
        "swept.server.node0": "h0",
        "swept.client.node1": "h1",
        "ranks.D0.node0": "h0",
        "ranks.D0.node1": "h1",
    }
    said = [(run / f"ranks.D0.node{number}.stdout").read_text().split() for number in (0, 1)]
    assert [words[:5] for words in said] == [["0", "of", "2,", "here", "0;"], ["1", "of", "2,", "here", "0;"]]
    assert said[0][5] == said[1][5]
    assert said[0][5].startswith(made["system"]["nodes"][0]["ip"])
    benches = {each["bench"]: each for each in json.loads(milabench("report", "--json").out)["benchmarks"]}
    assert (benches["web"]["outcome"], benches["web"]["units"]) == ("passed", "requests/s")
    data = [json.loads(line)["data"] for line in (run / "swept.client.node1.data").read_text().splitlines()]
    (about,) = (one["serving"] for one in data if "serving" in one)
    assert about["url"].startswith(f"http://{made['system']['nodes'][0]['ip']}:")
    tokens = [one["request"]["output_tokens"] for one in data if "request" in one]
    assert tokens == [3, 2, 3, 2] * 2


def unlike(hosts: Hosts, tmp_path: Path) -> dict[str, Any]:
    """A system of one slot on the first machine and two on the second."""
    made: dict[str, Any] = hosts.system(arch="cpu")
    for number, entry in enumerate(made["system"]["nodes"]):
        entry |= {"base": str(tmp_path / f"base{number}"), "gpu": {"count": number + 1}}
    return made


def test_instances_on_two_machines_measure_at_the_same_time(
    hosts: Hosts, system: Callable[[dict[str, Any]], Path], milabench: Callable[..., Said], tmp_path: Path
) -> None:
    """The second instance of the second machine is half as fast as the others."""
    system(unlike(hosts, tmp_path))
    assert milabench("prepare", "--select", "beside").code == 0
    ran = milabench("run", "--select", "beside")
    assert ran.code == 0, ran.err
    (run,) = (tmp_path / "base" / "runs").glob("run.*")
    windows, goes = [], []
    for name in ("beside.D0.node0", "beside.D0.node1", "beside.D1.node1"):
        data = [json.loads(line)["data"] for line in (run / f"{name}.data").read_text().splitlines()]
        windows += [one["window"] for one in data if "window" in one]
        goes += [one["go"] for one in data if "go" in one]
    assert len(windows) == len(goes) == 3
    # Both machines have this one's clock: nobody measures before all are ready, nor stops before all have measured.
    assert max(goes) <= min(window["start"] for window in windows)
    journal = [json.loads(line) for line in (run / "journal.jsonl").read_text().splitlines()]
    (released,) = [entry for entry in journal if entry.get("state") == "released"]
    assert set(released["clocks"]) == {"h0", "h1"}
    (bench,) = json.loads(milabench("report", "--json").out)["benchmarks"]
    assert bench["overlap"] > 0.8


@pytest.mark.e2e
@pytest.mark.long
def test_an_instance_that_is_late_fails_those_on_other_machines_too(
    hosts: Hosts, system: Callable[[dict[str, Any]], Path], milabench: Callable[..., Said], tmp_path: Path
) -> None:
    system(unlike(hosts, tmp_path))
    assert milabench("prepare", "--select", "late").code == 0
    assert milabench("run", "--select", "late").code == 1
    (bench,) = json.loads(milabench("report", "--json").out)["benchmarks"]
    assert {each["step"]: each["detail"].partition("; ")[0] for each in bench["failures"]} == {
        "late.D0.node0": "waited at the start barrier for late.D1.node1, which was not ready within 3 s",
        "late.D0.node1": "waited at the start barrier for late.D1.node1, which was not ready within 3 s",
        "late.D1.node1": "not ready within 3 s of the first of its group",
    }
