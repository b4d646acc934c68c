"""Which devices a program may use: the agent and the instruments give the same answer, for it is one function."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from benchmate.devices.api import Device
from benchmate.devices.detect import visible
from milabench.devices.registry import ARCHS, VENDORS
from milabench.execute.agent.host_facts import usable_accelerators

ROOT = Path(__file__).resolve().parents[2]
UUIDS = ("GPU-a0", "GPU-b1", "GPU-c2", "GPU-d3")
SLICES = {1: ("MIG-x", "MIG-y")}

# arch, what is set, which of four devices are usable; a slice is (device, slice). Device 1 stands for its slices: it is cut up
CASES = [
    ("cuda", {}, [0, 1, 2, 3]),
    ("cuda", {"CUDA_VISIBLE_DEVICES": "1"}, [1]),
    ("cuda", {"CUDA_VISIBLE_DEVICES": " 3 , 0 "}, [3, 0]),
    ("cuda", {"CUDA_VISIBLE_DEVICES": "2,2"}, [2]),
    ("cuda", {"CUDA_VISIBLE_DEVICES": ""}, []),
    ("cuda", {"CUDA_VISIBLE_DEVICES": "-1"}, []),
    ("cuda", {"CUDA_VISIBLE_DEVICES": "0,-1,1"}, [0]),
    ("cuda", {"CUDA_VISIBLE_DEVICES": "0,9,1"}, [0]),
    ("cuda", {"CUDA_VISIBLE_DEVICES": "0.1"}, []),
    ("cuda", {"CUDA_VISIBLE_DEVICES": "all"}, [0, 1, 2, 3]),
    ("cuda", {"CUDA_VISIBLE_DEVICES": "GPU-c,GPU-a0"}, [2, 0]),
    ("cuda", {"CUDA_VISIBLE_DEVICES": "MIG-y,MIG-x"}, [(1, 1), (1, 0)]),
    ("cuda", {"HIP_VISIBLE_DEVICES": "1"}, [0, 1, 2, 3]),
    ("rocm", {"CUDA_VISIBLE_DEVICES": "1"}, [1]),
    ("rocm", {"HIP_VISIBLE_DEVICES": "2", "CUDA_VISIBLE_DEVICES": "1"}, [2]),
    ("rocm", {"ROCR_VISIBLE_DEVICES": "1,3", "HIP_VISIBLE_DEVICES": "1"}, [3]),
    ("rocm", {"ROCR_VISIBLE_DEVICES": "1,3", "CUDA_VISIBLE_DEVICES": "1"}, [3]),
    ("rocm", {"ROCR_VISIBLE_DEVICES": "1,3", "HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "9"}, [1]),
    ("xpu", {"ZE_AFFINITY_MASK": "0.1"}, [0]),
    ("xpu", {"ZE_AFFINITY_MASK": "2.0,2.1,0"}, [2, 0]),
    ("xpu", {"ONEAPI_DEVICE_SELECTOR": "level_zero:1,2"}, [1, 2]),
    ("xpu", {"ONEAPI_DEVICE_SELECTOR": "level_zero:*"}, [0, 1, 2, 3]),
    ("xpu", {"ONEAPI_DEVICE_SELECTOR": "*:1.0"}, [1]),
    ("xpu", {"ZE_AFFINITY_MASK": "1,3", "ONEAPI_DEVICE_SELECTOR": "level_zero:1"}, [3]),
    ("hpu", {"HABANA_VISIBLE_MODULES": "1,0"}, [1, 0]),
    ("hpu", {"HABANA_VISIBLE_DEVICES": "all", "HABANA_VISIBLE_MODULES": "2"}, [2]),
    # Slurm says it by the vendor's variable; by its own, where that was switched off.
    ("cuda", {"CUDA_VISIBLE_DEVICES": "MIG-x", "SLURM_STEP_GPUS": "1"}, [(1, 0)]),
    ("cuda", {"CUDA_VISIBLE_DEVICES": "0", "SLURM_STEP_GPUS": "3"}, [0]),
    ("cuda", {"SLURM_STEP_GPUS": "2,3", "SLURM_JOB_GPUS": "1,2,3"}, [2, 3]),
    ("hpu", {"SLURM_JOB_GPUS": "1"}, [1]),
    ("cuda", {"SLURM_STEP_GPUS": "4,5,6,7"}, [0, 1, 2, 3]),
    ("cuda", {"SLURM_STEP_GPUS": "g0"}, [0, 1, 2, 3]),
]


def by_agent(arch: str, env: Mapping[str, str]) -> list[Any]:
    """What the agent tells, by number or by (number, slice)."""
    devices = [
        {
            "index": index,
            "arch": arch,
            "uuid": uuid,
            **({"slices": [{"uuid": piece} for piece in SLICES[index]]} if index in SLICES else {}),
        }
        for index, uuid in enumerate(UUIDS)
    ]
    usable, _ = usable_accelerators(devices, env)
    return [place(device["uuid"]) for device in usable]


def by_instruments(arch: str, env: Mapping[str, str]) -> list[Any]:
    """What the instruments tell."""
    devices = [
        SimpleNamespace(
            uuid=uuid,
            aliases=(),
            slices=[SimpleNamespace(uuid=piece, aliases=(), slices=()) for piece in SLICES.get(index, ())],
        )
        for index, uuid in enumerate(UUIDS)
    ]
    return [place(device.uuid) for device in visible(cast("list[Device]", devices), env, arch)]


def place(uuid: str) -> int | tuple[int, int]:
    """Where a UUID stands in the table above."""
    if uuid in UUIDS:
        return UUIDS.index(uuid)
    return next((index, slices.index(uuid)) for index, slices in SLICES.items() if uuid in slices)


@pytest.mark.parametrize(("arch", "env", "usable"), CASES)
def test_the_agent_and_the_instruments_agree_on_what_is_visible(
    arch: str, env: Mapping[str, str], usable: list[Any]
) -> None:
    pieces = [piece for place in usable for piece in ([(1, 0), (1, 1)] if place == 1 else [place])]
    assert by_agent(arch, env) == pieces
    assert by_instruments(arch, env) == pieces


@pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.arch)
def test_what_a_plan_assigns_is_what_its_vendor_reads(vendor: Any) -> None:
    env = vendor.assigned_environment(["2", "0"])
    assert vendor.assigned_variable in vendor.visible_variables
    assert by_instruments(vendor.arch, env) == [2, 0]


def test_both_trees_have_the_same_vendors() -> None:
    there = ROOT / "benchmate" / "src" / "benchmate" / "devices" / "vendors"
    assert (ROOT / "orchestrator" / "milabench" / "devices").resolve() == there.resolve()
    assert len(set(ARCHS)) == len(ARCHS) == len(VENDORS) + 1


NEW_VENDOR = '''"""A vendor that nobody has heard of."""
from .vendor import Reading, Sample, Vendor


DEVICES = [{"index": n, "uuid": "A%d" % n, "name": "Acme One", "memory_mib": 1} for n in range(3)]


class Acme(Vendor):
    arch = "acme"
    inventories = (("acme by test", lambda: DEVICES),)
    readers = (lambda: lambda: [Reading(n, "A%d" % n, "Acme One", Sample(load=0.5)) for n in range(3)],)
    visible_variables = ("ACME_VISIBLE",)
    assigned_variable = "ACME_VISIBLE"
    collective = "acmecl"

    def container_options(self, engine, ids):
        return ("--device=/dev/acme",)


VENDOR = Acme()
'''
USES = """
import json, subprocess
from milabench.devices.registry import ARCHS
from milabench.execute.agent_bootstrap import agent_files
from milabench.facts.model import Node
from milabench.facts.probe import agent_command, parse_facts
from milabench.plan.environ import placed_environment
from milabench.plan.method import Placement
from benchmate.devices.detect import open_vendor, visible

node = parse_facts(json.loads(subprocess.run(agent_command("facts"), capture_output=True, check=True).stdout))
assert [device.uuid for device in node.devices] == ["A2", "A0"], node.devices
place = Placement(node=node, node_rank=0, devices=node.devices[:1], tag="D2")
assert placed_environment(place, arch="acme", threads=1)["ACME_VISIBLE"] == "2"
assert "acme" in ARCHS
assert any(name == "milabench/devices/acme.py" for name, _ in agent_files())
vendor, trouble = open_vendor("auto", {})
assert (vendor.arch, trouble, [device.sample().load for device in vendor.devices]) == ("acme", "", [0.5] * 3)
assert [device.uuid for device in visible(vendor.devices, {"ACME_VISIBLE": "1"}, "acme")] == ["A1"]
"""


def test_a_vendor_is_added_by_one_file_and_one_line(tmp_path: Path) -> None:
    for part in ("orchestrator", "benchmate/src"):
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / part, tmp_path / part, symlinks=True, ignore=ignored)
    vendors = tmp_path / "benchmate" / "src" / "benchmate" / "devices" / "vendors"
    (vendors / "acme.py").write_text(NEW_VENDOR)
    registry = (vendors / "registry.py").read_text()
    registry = registry.replace('    "nvidia",\n', '    "acme",\n    "nvidia",\n')
    (vendors / "registry.py").write_text(registry)
    done = subprocess.run(
        [sys.executable, "-c", USES],
        env={
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": f"{tmp_path}/orchestrator:{tmp_path}/benchmate/src",
            "ACME_VISIBLE": "2,0",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
