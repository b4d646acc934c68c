"""The machines that a plan is made for: what the system file says of them, completed by what is found here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from milabench.config.read import read_suite
from milabench.config.schema import SystemConfig
from milabench.errors import ConfigError
from milabench.facts.allocated_nodes import AllocatedNode, Allocation
from milabench.facts.model import Arch, Device, Node, SystemFacts
from milabench.plan.environ import placed_environment
from milabench.plan.method import Placement
from milabench.plan.system import allocated_facts, stated_allocation, stated_devices, system_facts

HERE = Node(
    hostname="host",
    ip="127.0.0.1",
    cpu_model="processor model",
    cpu_count=12,
    memory_mib=4000,
    devices=(Device(index=0, uuid="GPU-1", name="X9", arch="cuda", memory_mib=900),),
    details={"addresses": ("10.0.0.1",)},
)


def facts(tmp_path: Path, system: str, arch: Arch = "cuda", local: Node = HERE) -> SystemFacts:
    path = tmp_path / "system.yaml"
    path.write_text(f"system: {system}")
    return system_facts(read_suite([], path).system, local, arch)


def test_without_a_system_file_the_machine_is_what_was_found(tmp_path: Path) -> None:
    assert facts(tmp_path, "{}").nodes == (HERE,)


def test_stated_accelerators_come_on_top_of_those_found(tmp_path: Path) -> None:
    devices = facts(tmp_path, "{gpu: {count: 3, capacity: 80 GiB, name: Y1}}").main.devices
    assert [(device.index, device.uuid, device.name, device.memory_mib) for device in devices] == [
        (0, "GPU-1", "X9", 81920),
        (1, "cuda-host-1", "Y1", 81920),
        (2, "cuda-host-2", "Y1", 81920),
    ]


def test_fewer_than_were_found_is_also_an_answer(tmp_path: Path) -> None:
    assert facts(tmp_path, "{gpu: {count: 0}}").main.devices == ()


@pytest.mark.parametrize(("system", "slots"), [("{}", 1), ("{gpu: {count: 0}}", 1), ("{gpu: {count: 4}}", 4)])
def test_without_accelerators_slots_of_the_processor_stand_in(tmp_path: Path, system: str, slots: int) -> None:
    devices = facts(tmp_path, system, arch="cpu").main.devices
    assert [(device.index, device.name, device.arch) for device in devices] == [
        (index, "processor model", "cpu") for index in range(slots)
    ]


def test_nodes_that_are_not_here_are_what_the_file_says(tmp_path: Path) -> None:
    text = """
  gpu: {count: 2, capacity: 1 GiB}
  cpu_count: 8
  nodes:
    - {name: far, ip: 10.0.0.9, port: 2200, user: me, memory: 2 GiB, cpu_count: 64, gpu: {count: 1}}
    - {name: mine, ip: 10.0.0.1, main: true}
"""
    found = facts(tmp_path, text)
    assert [(node.name, node.local, node.cpu_count, len(node.devices)) for node in found.nodes] == [
        ("mine", True, 8, 2),
        ("far", False, 64, 1),
    ]
    far = found.nodes[1]
    assert (far.ip, far.port, far.user, far.memory_mib, far.hostname) == ("10.0.0.9", 2200, "me", 2048, "")
    assert found.main.hostname == "host"


@pytest.mark.parametrize(
    ("node", "is_here"),
    [
        ("{ip: 127.0.0.1}", True),
        ("{ip: 10.0.0.1}", True),
        ("{ip: host.example.org, hostname: host}", True),
        ("{ip: 127.0.0.1, port: 2292}", False),
        ("{ip: 10.0.0.9, hostname: host, port: 2292}", False),
        ("{name: host, ip: 10.0.0.9}", False),
        ("{ip: 127.0.0.1, proxy_jump: login}", False),
    ],
)
def test_a_node_behind_a_tunnel_or_of_our_name_alone_is_not_this_machine(
    tmp_path: Path, node: str, is_here: bool
) -> None:
    assert facts(tmp_path, f"{{nodes: [{node}]}}").main.local is is_here


def test_the_processors_of_this_machine_can_be_stated_too(tmp_path: Path) -> None:
    assert facts(tmp_path, "{cpu_count: 3}").main.cpu_count == 3


def test_stated_accelerators_take_numbers_that_nobody_has(tmp_path: Path) -> None:
    local = replace(HERE, devices=tuple(Device(index=n, uuid=f"GPU-{n}", name="X9", arch="cuda") for n in (1, 3)))
    assert [device.index for device in facts(tmp_path, "{gpu: {count: 3}}", local=local).main.devices] == [1, 3, 4]


def test_a_slice_is_made_visible_by_its_uuid() -> None:
    devices = (
        Device(index=0, uuid="MIG-a", name="X9", arch="cuda", details={"visible_as": "MIG-a"}),
        Device(index=1, uuid="MIG-b", name="X9", arch="cuda", details={"visible_as": "MIG-b"}),
    )
    place = Placement(node=HERE, node_rank=0, devices=devices, tag="")
    assert placed_environment(place, arch="cuda", threads=1)["CUDA_VISIBLE_DEVICES"] == "MIG-a,MIG-b"


def system_of(tmp_path: Path, text: str) -> SystemConfig:
    path = tmp_path / "system.yaml"
    path.write_text(f"system: {text}")
    return read_suite([], path).system


def allocated(*names: str, here: str = "") -> Allocation:
    return Allocation(job="7", nodes=tuple(AllocatedNode(name=name, job="7", cpus=8) for name in names), here=here)


def test_nodes_of_an_allocation_are_what_they_report_and_the_one_we_are_on_is_this_machine(tmp_path: Path) -> None:
    device = Device(index=0, uuid="GPU-9", name="X9", arch="cuda", memory_mib=900)
    reported = {"n2": Node(hostname="other", ip="10.0.0.2", cpu_count=6, devices=(device,), local=False)}
    made = allocated_facts(system_of(tmp_path, "{}"), HERE, "cuda", allocated("n1", "n2", here="n1"), reported)
    assert [(node.name, node.ip, node.local, node.main, node.storage) for node in made.nodes] == [
        ("n1", "127.0.0.1", True, True, ""),
        ("n2", "10.0.0.2", False, False, ""),
    ]
    assert [node.devices[0].uuid for node in made.nodes] == ["GPU-1", "GPU-9"]


@pytest.mark.parametrize(
    ("slurm", "names", "devices"),
    [
        ("{}", ["node1"], 1),
        ("{nodes: 2, gpus_per_node: 4}", ["node1", "node2"], 4),
        ("{nodelist: 'n[1-3]', gpus_per_node: 'a100:2'}", ["n1", "n2", "n3"], 2),
        ("{nodelist: 'n[1-3]', nodes: 4}", ["node1", "node2", "node3", "node4"], 1),
    ],
)
def test_nodes_of_a_later_job_have_the_devices_that_it_asks_for(
    tmp_path: Path, slurm: str, names: list[str], devices: int
) -> None:
    system = system_of(tmp_path, f"{{slurm: {slurm}}}")
    made = allocated_facts(system, Node(), "cuda", stated_allocation(system), {})
    assert [node.name for node in made.nodes] == names
    assert {len(node.devices) for node in made.nodes} == {devices}
    assert not any(node.local or node.storage for node in made.nodes)


def test_slots_of_a_processor_are_as_many_in_the_job_as_in_its_plan(tmp_path: Path) -> None:
    system = system_of(tmp_path, "{arch: cpu, slurm: {nodes: 2, gpus_per_node: 2}}")
    planned = allocated_facts(system, Node(), "cpu", stated_allocation(system), {})
    given = allocated("n1", "n2", here="n1")
    made = allocated_facts(system, Node(), "cpu", given, {"n2": Node(hostname="other", cpu_count=6)})
    slots = [[device.index for device in node.devices] for node in made.nodes]
    assert slots == [[device.index for device in node.devices] for node in planned.nodes] == [[0, 1], [0, 1]]
    # Devices that are detected are what there is, whatever was stated.
    real = allocated_facts(replace(system, arch=None), HERE, "cuda", allocated("n1", here="n1"), {})
    assert len(real.nodes[0].devices) == len(HERE.devices) != 2


@pytest.mark.parametrize(("text", "count"), [("", None), ("4", 4), ("a100:4", 4), ("a100:2,h100:1", 3)])
def test_devices_that_a_job_asks_for_are_counted(tmp_path: Path, text: str, count: int | None) -> None:
    assert stated_devices(system_of(tmp_path, f"{{slurm: {{gpus_per_node: '{text}'}}}}")) == count


@pytest.mark.parametrize("text", ["many", "a100", "-1", "4:a100"])
def test_devices_that_cannot_be_counted_are_named_in_one_line(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=f"gpus_per_node: '{text}'"):
        stated_devices(system_of(tmp_path, f"{{slurm: {{gpus_per_node: '{text}'}}}}"))
