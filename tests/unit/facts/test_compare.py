"""What is said of machines that are to measure together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from milabench.facts.compare import NodeFinding, compare_nodes
from milabench.facts.model import Device, Node

ROOM = {"free_mib": 100 * 1024, "total_mib": 200 * 1024}


def node(name: str, **more: Any) -> Node:
    details = {"disk": {"/base": ROOM}, "shm_mib": ROOM, "behind_s": 0.0, "driver": "555.42", **more.pop("details", {})}
    known = {"hostname": name, "os": "Debian 12", "kernel": "6.1", "python": "3.11.2", "memory_mib": 1000}
    return Node(**{"name": name, **known, "details": details, **more})


def device(**details: Any) -> Device:
    return Device(index=0, uuid="GPU-0", name="H100", arch="cuda", memory_mib=80_000, details=details)


def worth_knowing(*nodes: Node) -> list[tuple[str, str, str]]:
    return [(each.node, each.what, each.state) for each in compare_nodes(nodes, base="/base") if each.state != "ok"]


def test_equal_machines_are_nothing_to_speak_of() -> None:
    assert worth_knowing(node("a"), node("b", memory_mib=990)) == []


def test_what_differs_between_machines_is_noted_between_them() -> None:
    found = compare_nodes([node("a"), node("b", kernel="6.2", memory_mib=500)], base="/base")
    assert [each for each in found if not each.node] == [
        NodeFinding(node="", what="kernel", state="note", says="differs: a 6.1, b 6.2"),
        NodeFinding(node="", what="memory", state="note", says="differs: a 1 GiB, b 0 GiB"),
    ]


def test_a_clock_that_is_far_off_is_in_the_way_and_one_that_is_a_little_off_is_noted() -> None:
    found = worth_knowing(node("a", details={"behind_s": 100.0}), node("b", details={"behind_s": -3.0}))
    assert found == [("a", "clock", "bad"), ("b", "clock", "note")]
    (says,) = [
        each.says
        for each in compare_nodes([node("b", details={"behind_s": -3.0})], base="/base")
        if each.what == "clock"
    ]
    assert says == "its clock is 3.0 s ahead. Set both by NTP"


def test_little_room_is_noted_and_none_is_in_the_way() -> None:
    little, none = {"/base": {"free_mib": 1000, "total_mib": 2000}}, {"/base": {"free_mib": 3, "total_mib": 2000}}
    found = worth_knowing(node("a", details={"disk": little}), node("b", details={"disk": none}))
    assert found == [("a", "disk", "note"), ("b", "disk", "bad")]


def test_somebody_elses_process_on_a_device_is_in_the_way() -> None:
    busy = node("a", devices=(device(processes=[{"pid": 7, "memory_mib": 10}]),))
    assert worth_knowing(busy) == [("a", "processes", "bad")]
    (found,) = [each for each in compare_nodes([busy], base="/base") if each.what == "processes"]
    assert str(found) == "a: processes: other processes use its devices: pid 7 on device 0"


def test_two_names_of_one_machine_are_refused_where_they_would_measure_on_the_same_devices() -> None:
    one = {"boot": "b1"}

    def found(*devices: str, **more: Any) -> list[tuple[str, str, str]]:
        named = zip("ab", devices, strict=True)
        nodes = [
            node(name, hostname="x", devices=(replace(device(), uuid=uuid),), details=one, **more)
            for name, uuid in named
        ]
        return worth_knowing(*nodes)

    assert worth_knowing(node("a", hostname="x", details=one), node("b", hostname="x", details=one)) == [
        ("b", "machine", "bad")
    ]
    assert found("GPU-1", "GPU-1") == [("b", "machine", "bad")]
    assert found("GPU-1", "GPU-2") == [("b", "machine", "note")]
    elsewhere = node("b", hostname="x", details={**one, "lock_folder": "/other"})
    assert worth_knowing(node("a", hostname="x", details=one), elsewhere) == []
    both = [node(name, hostname="x", details=one) for name in "ab"]
    assert all(each.state == "ok" for each in compare_nodes(both, base="/base", is_allocated=True))


def test_a_base_elsewhere_is_what_is_looked_at() -> None:
    elsewhere = node("a", base="/there", details={"disk": {"/there": {"free_mib": 3, "total_mib": 10}}})
    assert worth_knowing(elsewhere) == [("a", "disk", "bad")]
