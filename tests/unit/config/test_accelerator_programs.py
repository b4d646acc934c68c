"""What the shipped programs and suites need on machines with accelerators that this machine does not have."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[3]
BENCHMARKS = sorted((ROOT / "benchmarks").rglob("*.py"))
CONFIG = ROOT / "config"


def suite(name: str) -> dict[str, dict[str, object]]:
    text = (CONFIG / name).read_text()
    loaded: dict[str, dict[str, object]] = yaml.safe_load(text)
    return loaded


def test_messages_between_two_ranks_are_batched():
    # NCCL makes a communicator for each pair of ranks that call send() and recv(): 2016 of them on 64 devices.
    calls = [str(path) for path in BENCHMARKS if re.search(r"dist\.(send|recv)\(", path.read_text())]
    assert calls == []


def test_a_program_that_picks_a_device_by_its_rank_makes_it_the_current_one():
    # Else torch puts what names no device, events among it, on the first one.
    picking = [path for path in BENCHMARKS if re.search(r'device\("cuda", \w*local', path.read_text())]
    assert picking
    assert [path for path in picking if "set_device(" not in path.read_text()] == []


def test_no_program_is_given_the_name_of_a_vendor_as_its_device():
    # torch calls AMD's devices "cuda".
    assert [path for path in CONFIG.rglob("*.yaml") if re.search(r'device\S*: "?\{arch\}', path.read_text())] == []


def test_instances_that_use_one_device_are_given_one():
    assert suite("quickstart.yaml")["ppo"]["plan"] == {"method": "njobs", "n": 1, "devices": 1}
    assert suite("suite/vision.yaml")["_ignite"]["plan"] == {"method": "njobs", "n": 1, "devices": 1}


def test_programs_that_mostly_copy_need_no_load():
    machine = suite("suite/machine.yaml")
    for name in ("memory-copies", "checkpoint", "links"):
        assert machine[name]["validation"] == {"usage": {"gpu_load_threshold": 0}}


def test_products_of_the_quickstart_take_longer_than_their_launch():
    # 2 n^3 operations: 1 ms on a device of 1e15 a second, of which a launch takes 8 us.
    argv = suite("quickstart.yaml")["flops"]["argv"]
    assert isinstance(argv, dict)
    assert 2 * argv["--accelerator-size"] ** 3 > 1e12
