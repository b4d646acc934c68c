"""What the standard suite starts on machines of several shapes, none of which exists."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.commands import ROOT, Said

Milabench = Callable[..., Said]
MACHINE = "system: {{arch: cuda, gpu: {{count: {count}, capacity: 80 GiB}}, cpu_count: 128, nodes: [{nodes}]}}\n"


@pytest.fixture
def planned(milabench: Milabench, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Plan some benchmarks for devices of 80 GiB, eight of them unless told otherwise."""

    def plan(select: str, size: str = "device", count: int = 8, machines: int = 1) -> dict[str, Any]:
        nodes = ", ".join(f"{{name: n{n}, ip: 10.0.0.{n + 1}, main: {str(n == 0).lower()}}}" for n in range(machines))
        (tmp_path / "system.yaml").write_text(MACHINE.format(count=count, nodes=nodes))
        where = ("--system", str(tmp_path / "system.yaml"), "--size", size, "--select", select, "--json")
        said = milabench("plan", "run", "--config", str(ROOT / "config" / "standard.yaml"), *where)
        assert said.code == 0, said.err
        return json.loads(said.out)

    return plan


def words(plan: dict[str, Any]) -> Iterable[list[str]]:
    return [step["argv"] for step in plan["steps"]]


def test_whisper_gets_files_and_no_other_word_before_its_options(planned: Callable[..., dict[str, Any]]) -> None:
    for line in words(planned("whisper")):
        program = line[line.index("whisper") + 1 :]
        files = program[: next(n for n, word in enumerate(program) if word.startswith("--"))]
        assert [Path(word).name for word in files] == ["sound-360x30s.wav"]


@pytest.mark.parametrize(("name", "workers"), [("data-loading", 64), ("sample-reads", 32), ("sample-reads-npz", 16)])
def test_what_loads_for_a_whole_node_has_the_cores_of_the_node(
    planned: Callable[..., dict[str, Any]], name: str, workers: int
) -> None:
    assert {line[line.index("--workers") + 1] for line in words(planned(name))} == {str(workers)}


LONG = [pytest.mark.e2e, pytest.mark.long]


@pytest.mark.parametrize(
    ("name", "size", "fits"),
    [
        ("torchtitan-tp", "device", {4, 8}),
        pytest.param("torchtitan-pp", "device", {4, 8, 16}, marks=LONG),
        pytest.param("torchtitan-moe", "device", {8, 16}, marks=LONG),
        ("torchtitan", "node", {3, 4, 8, 16}),
        pytest.param("sft-fsdp", "node", {3, 4, 8, 16}, marks=LONG),
    ],
)
def test_what_a_number_of_devices_cannot_hold_or_divide_is_skipped(
    planned: Callable[..., dict[str, Any]], name: str, size: str, fits: set[int]
) -> None:
    plans = {count: planned(f"launch,{name}", size, count) for count in (2, 3, 4, 8, 16)}
    assert {count for count, plan in plans.items() if any(step["bench"] == name for step in plan["steps"])} == fits


@pytest.mark.parametrize(
    ("name", "ranks", "program"),
    [
        ("nccl-tests", ["-np", "16"], "all_reduce_perf -b 8M -e 8G -f 2 -g 1"),
        ("osu-bandwidth", ["--np", "2", "--map-by", "node"], "osu_bw -m 4194304:4194304"),
        ("osu-latency", ["--np", "2", "--map-by", "node"], "osu_latency -m 8:8"),
    ],
)
def test_the_sites_programs_of_mpi_span_the_nodes_of_a_cluster(
    milabench: Milabench, name: str, ranks: list[str], program: str
) -> None:
    system = str(ROOT / "config" / "systems" / "two_nodes_of_8.yaml")
    where = ("--config", str(ROOT / "config" / "standard.yaml"), "--system", system, "--select", name, "--json")
    plans = {size: milabench("plan", "run", *where, "--size", size, "--repeat", "1") for size in ("node", "cluster")}
    assert [said.code for said in plans.values()] == [0, 0]
    steps = {size: json.loads(said.out)["steps"] for size, said in plans.items()}
    assert [step["node"] for step in steps["node"]] == ["node0", "node1"]
    assert not any("--host" in step["argv"] for step in steps["node"])
    (step,) = steps["cluster"]
    assert (step["node"], step["argv"][-len(program.split()) :]) == ("node0", program.split())
    line = step["argv"]
    assert line[0] == "mpirun" and line[line.index("--host") + 1] == "192.0.2.10:8,192.0.2.11:8"
    at = line.index(ranks[0])
    assert line[at : at + len(ranks)] == ranks
    assert sum(word in ("-np", "--np") for word in line) == 1


def test_two_nodes_are_needed_for_what_is_measured_between_them(planned: Callable[..., dict[str, Any]]) -> None:
    plan = planned("launch,osu-latency,nccl-tests", "cluster")
    assert {step["bench"] for step in plan["steps"]} == {"launch", "nccl-tests"}
    assert [(each["bench"], each["why"]) for each in plan["skipped"]] == [
        ("osu-latency", "needs 2 machines, the system has 1")
    ]


SWEEPS = ("serve-llama", "serve-moe", "serve-prefix", "serve-rate", "serve-turns")


def halves(plan: dict[str, Any], role: str) -> dict[str, list[dict[str, Any]]]:
    """The servers or the clients of a plan's sweeps, by benchmark."""
    found: dict[str, list[dict[str, Any]]] = {}
    for step in plan["steps"]:
        if step["config"].get("role") == role:
            found.setdefault(step["bench"], []).append(step)
    return found


@pytest.mark.parametrize(
    ("size", "count", "machines", "pairs", "split"),
    [
        ("tiny", 8, 1, 8, None),
        ("device", 8, 1, 8, None),
        ("node", 8, 1, 1, "8"),
        ("node", 4, 1, 1, "4"),
        ("cluster", 8, 2, 1, "8"),
    ],
)
def test_a_sweep_has_a_server_on_each_device_or_one_over_all_of_a_node(
    planned: Callable[..., dict[str, Any]], size: str, count: int, machines: int, pairs: int, split: str | None
) -> None:
    plan = planned("serving", size, count, machines)
    servers, clients = halves(plan, "server"), halves(plan, "client")
    for name in SWEEPS:
        assert len(servers[name]) == len(clients[name]) == pairs * 3, name
        for server, client in zip(servers[name], clients[name], strict=True):
            line = server["argv"]
            assert "vllm.entrypoints.openai.api_server" in line
            assert (line[line.index("--tensor-parallel-size") + 1] if split else None) == split
            sweep = client["config"]["serve"]
            assert sweep == server["config"]["serve"]
            assert sweep["model"] == line[line.index("--model") + 1]
            assert client["argv"][-4:-1] == ["-m", "benchmate.serving", "--url"]
            # The client has a machine of its own where there are two.
            assert (server["node"] == client["node"]) == (machines == 1)
            assert ("10.0.0.1" if machines > 1 else "127.0.0.1") in client["argv"][-1]


@pytest.mark.parametrize("size", ["tiny", "device", "node", "cluster"])
def test_no_request_of_a_sweep_is_longer_than_its_server_takes(
    planned: Callable[..., dict[str, Any]], size: str
) -> None:
    servers = halves(planned("serving", size, 8, 2 if size == "cluster" else 1), "server")
    assert set(servers) >= set(SWEEPS)
    for name in SWEEPS:
        line, config = servers[name][0]["argv"], servers[name][0]["config"]
        sweep, told = config["serve"], config["options"].get("conversations")
        # Every turn of a conversation comes with all turns before it.
        each = (
            told["turns"] * (told["words"] + told["output_tokens"])
            if told
            else sweep["input_tokens"] + sweep["output_tokens"]
        )
        assert each + 16 * (told["turns"] if told else 1) <= int(line[line.index("--max-model-len") + 1])
        assert len(sweep["concurrency"]) + len(sweep["rate"]) >= (5 if size == "tiny" else 7)


@pytest.mark.parametrize(
    ("name", "data", "batches"),
    [
        ("clip", "--train-data", 9),
        ("timm-train", "--data-dir", 4),
        ("resnet50-input", "--data", 4),
    ],
)
def test_each_of_128_ranks_finds_batches_in_one_pass_over_the_images(
    planned: Callable[..., dict[str, Any]], name: str, data: str, batches: int
) -> None:
    for machines in (2, 16):
        lines = list(words(planned(name, "cluster", machines=machines)))
        assert len(lines) % machines == 0
        for line in lines:
            # The name of the images is their recipe: classes, images of each, pixels, how often each is there.
            classes, each, _, times = map(int, re.findall(r"\d+", Path(line[line.index(data) + 1]).stem))
            at_once = machines * 8 * int(line[line.index("--batch-size") + 1])
            assert classes * each * times // at_once >= batches
