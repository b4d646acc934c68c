"""The verbs with a system file: the same suite on every node, and one line for whatever is wrong with one of them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.commands import Said
from tests.ssh.hosts import Hosts

System = Callable[[dict[str, Any]], Path]
Milabench = Callable[..., Said]


def with_bases(hosts: Hosts, tmp_path: Path, *names: str) -> dict[str, Any]:
    """A system file whose nodes have bases of this test."""
    made = hosts.system()
    for entry, name in zip(made["system"]["nodes"], names, strict=True):  # type: ignore[index]
        entry["base"] = str(tmp_path / name)
    return made


def test_a_suite_is_prepared_and_run_on_every_node(
    hosts: Hosts, system: System, milabench: Milabench, tmp_path: Path
) -> None:
    system(with_bases(hosts, tmp_path, "base0", "base1"))
    before = [host.logins for host in hosts.hosts]
    prepared = milabench("prepare", "--select", "good", "--display", "plain")
    assert prepared.code == 0, prepared.err
    assert "good.node0: passed" in prepared.err
    assert "good.node1: passed" in prepared.err
    # All that the command did there, it did over one connection.
    assert [host.logins for host in hosts.hosts] == [number + 1 for number in before]
    assert "nothing to do" in milabench("prepare", "--select", "good").err
    before = [host.logins for host in hosts.hosts]
    ran = milabench("run", "--select", "good", "--display", "plain")
    assert ran.code == 0, ran.err
    assert [host.logins for host in hosts.hosts] == [number + 1 for number in before]
    (run,) = (tmp_path / "base" / "runs").glob("run.*")
    assert {path.name for path in run.glob("*.data")} == {"good.D0.node0.data", "good.D0.node1.data"}
    manifest = json.loads((run / "manifest.json").read_text())
    steps = {step["id"]: step for step in manifest["plan"]["steps"]}
    for number in (0, 1):
        step = steps[f"good.D0.node{number}"]
        assert step["node"] == f"h{number}"
        # Everything that it reads and writes is below the node's own base.
        base = tmp_path / f"base{number}"
        start = next(
            json.loads(line)["data"]
            for line in (run / f"good.D0.node{number}.data").read_text().splitlines()
            if json.loads(line)["event"] == "start"
        )
        assert start["env"]["MILABENCH_DIR_DATA"] == str(base / "data")
        assert start["cwd"] == str(base / "runs" / run.name / "steps" / f"good.D0.node{number}")
        # Of a launch that passed nothing is left there, and no folder of a run without records.
        assert list((base / "runs").iterdir()) == []
    assert [node["hostname"] for node in manifest["plan"]["system"]["nodes"]] == [os.uname().nodename] * 2
    report = milabench("report")
    assert report.code == 0, report.err
    assert "good" in report.out


def test_modules_that_definitions_share_go_to_every_node(
    hosts: Hosts, system: System, milabench: Milabench, tmp_path: Path
) -> None:
    shared = tmp_path / "_environments" / "shared"
    shared.mkdir(parents=True)
    (shared / "requirements.in").write_text("")
    (shared / "making.py").write_text("")
    assert milabench("new", "mine", "--into", str(tmp_path)).code == 0
    folder = tmp_path / "mine"
    benchfile = (folder / "benchfile.py").read_text()
    (folder / "benchfile.py").write_text(
        benchfile.replace("Benchmark(", "Benchmark(requirements='../_environments/shared',")
    )
    (folder / "prepare.py").write_text("import making\n")
    system(with_bases(hosts, tmp_path, "base0", "base1"))
    said = milabench("prepare", "--config", str(folder / "suite.yaml"), "--display", "plain")
    assert said.code == 0, said.err
    for number in (0, 1):
        assert (tmp_path / f"base{number}" / "definitions" / "_environments-shared" / "making.py").is_file()
    again = milabench("prepare", "--config", str(folder / "suite.yaml"))
    assert "nothing to do" in again.err


@pytest.mark.e2e
@pytest.mark.long
def test_what_is_shared_is_prepared_once(hosts: Hosts, system: System, milabench: Milabench, tmp_path: Path) -> None:
    system(with_bases(hosts, tmp_path, "base", "base"))
    said = milabench("prepare", "--select", "good", "--display", "plain")
    assert said.code == 0, said.err
    assert "good.node0: passed" in said.err
    assert "node1" not in said.err


@pytest.mark.e2e
@pytest.mark.long
def test_data_is_copied_where_that_is_asked_for(
    hosts: Hosts, system: System, milabench: Milabench, tmp_path: Path
) -> None:
    ours = tmp_path / "base" / "data" / "some" / "file"
    ours.parent.mkdir(parents=True)
    ours.write_text("data")
    made = with_bases(hosts, tmp_path, "base0", "base1")
    made["system"]["sync"] = "data"
    system(made)
    (tmp_path / "base0" / "data").mkdir(parents=True)
    (tmp_path / "base0" / "data" / "own").touch()
    assert milabench("prepare", "--select", "good").code == 0
    for number in (0, 1):
        assert (tmp_path / f"base{number}" / "data" / "some" / "file").read_text() == "data"
    assert (tmp_path / "base0" / "data" / "own").exists()


def test_a_run_that_is_not_prepared_on_a_node_is_refused_or_prepared_there(
    hosts: Hosts, system: System, milabench: Milabench, tmp_path: Path
) -> None:
    system(with_bases(hosts, tmp_path, "base0", "base1"))
    said = milabench("run", "--select", "good", "--no-prepare")
    assert said.code == 4
    assert "not prepared: good on h0, good on h1. Run `milabench prepare" in said.err
    said = milabench("run", "--select", "good")
    assert said.code == 0, said.err
    assert "run: preparing good first" in said.err
    assert "prepare: nothing to do" in milabench("prepare", "--select", "good").err


@pytest.mark.e2e
@pytest.mark.long
def test_a_failed_step_can_be_resumed_on_its_node(
    hosts: Hosts, system: System, milabench: Milabench, tmp_path: Path
) -> None:
    system(with_bases(hosts, tmp_path, "base0", "base1"))
    assert milabench("prepare", "--select", "crash").code == 0
    assert milabench("run", "--select", "crash").code == 1
    again = milabench("resume", "--display", "plain")
    assert again.code == 1
    assert "crash.D0.node1: failed" in again.err


def test_nodes_check_tells_a_person_and_a_program(hosts: Hosts, system: System, milabench: Milabench) -> None:
    system(hosts.system())
    shown = milabench("nodes", "check", "--no-links")
    assert shown.code == 0, shown.out
    assert "a run is possible" in shown.out
    told = json.loads(milabench("nodes", "check", "--json").out)
    assert [node["name"] for node in told["nodes"]] == ["h0", "h1"]
    assert {each["what"] for each in told["findings"] if each["node"] == "h0"} >= {"clock", "disk", "devices", "system"}
    assert told["links"]["h0 -> h1"]["bytes_per_s"] > 0


def test_a_node_that_cannot_be_reached_is_named_and_nothing_is_started(
    hosts: Hosts, system: System, milabench: Milabench, tmp_path: Path
) -> None:
    made = hosts.system()
    made["system"]["nodes"][1]["port"] = 1  # type: ignore[index]
    system(made)
    checked = milabench("nodes", "check", "--no-links")
    assert checked.code == 5
    assert "a run is not possible yet, 1 problem: reach" in checked.out
    for verb in ("install", "prepare", "run"):
        said = milabench(verb, "--select", "good")
        assert said.code == 5
        (line,) = said.err.splitlines()
        assert line.startswith("error: h1: ")
    assert not (tmp_path / "base" / "runs").exists()


def changed(change: Callable[[list[dict[str, Any]]], object]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def make(made: dict[str, Any]) -> dict[str, Any]:
        change(made["system"]["nodes"])
        return made

    return make


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda nodes: nodes[1].update(name="h0"), "two nodes are named 'h0'"),
        (lambda nodes: nodes[1].update(ip=nodes[0]["ip"], port=nodes[0]["port"]), "'h1' and 'h0' are the same machine"),
        (lambda nodes: [node.update(main=True) for node in nodes], "2 nodes are main"),
        (lambda nodes: nodes[1].pop("ip"), "the key 'ip' is missing"),
    ],
)
def test_a_system_file_that_contradicts_itself_is_one_line(
    hosts: Hosts, system: System, milabench: Milabench, change: Callable[[list[dict[str, Any]]], object], what: str
) -> None:
    path = system(changed(change)(hosts.system()))
    said = milabench("run", "--select", "good")
    assert said.code == 2
    assert what in said.err
    assert f"{path.name}:" in said.err


def test_more_machines_than_there_are_is_said(hosts: Hosts, system: System, milabench: Milabench) -> None:
    system(hosts.system())
    said = milabench("run", "--select", "good", "-s", "good.num_machines=3", "-s", "good.plan.method=multinode")
    assert said.code == 3
    assert "good: needs 3 machines, the system has 2" in said.err


def test_only_the_nodes_that_were_named_are_used(hosts: Hosts, system: System, milabench: Milabench) -> None:
    system(hosts.system())
    said = milabench("plan", "run", "--select", "good", "-s", "good.plan.nodes=[h1]", "--json")
    assert {step["node"] for step in json.loads(said.out)["steps"]} == {"h1"}
    unknown = milabench("run", "--select", "good", "-s", "good.plan.nodes=[h7]")
    assert unknown.code == 3
    assert "unknown node h7. Known: h0, h1" in unknown.err


@pytest.mark.skipif(os.geteuid() != 0, reason="a disk that is full is made by mounting one, which needs root")
def test_a_disk_that_is_full_there_is_said(hosts: Hosts, system: System, milabench: Milabench, tmp_path: Path) -> None:
    full = tmp_path / "base1"
    full.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(full)], check=False)
    if mounted.returncode != 0:
        pytest.skip("mounting is not allowed here")
    try:
        system(with_bases(hosts, tmp_path, "base0", "base1"))
        said = milabench("prepare", "--select", "good")
        assert said.code == 5
        assert "error: h1: disk: 0.0 GiB free" in said.err
        assert "--ignore-node-checks" in said.err
        (full / "filling").write_bytes(bytes(60_000))
        said = milabench("prepare", "--select", "good", "--ignore-node-checks")
        assert said.code == 5
        assert "h1: " in said.err
        assert "no space left" in said.err
    finally:
        subprocess.run(["umount", "-l", str(full)], check=True)
