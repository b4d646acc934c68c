"""`milabench run` with two simulated devices: instances that measure together, what is read of them, what checks find."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.commands import ROOT, Said

from .conftest import HERE

TWO = (*HERE, "--override", "system.gpu.count=2")
BUSY = {"memory_MiB": [512, 1024], "load": 0.9, "power_W": 300, "throttle": 4, "temperature": 55, "sm_clock_MHz": 1500}


@pytest.fixture
def devices(tmp_path: Path) -> Callable[..., dict[str, str]]:
    """The variable that puts two scripted devices in place, the second with readings of its own."""

    def script(**second: Any) -> dict[str, str]:
        file = tmp_path / "devices.json"
        readings = [BUSY, {**BUSY, **second}]
        said = {"devices": [{"uuid": f"SIM-{n}", "readings": [one]} for n, one in enumerate(readings)]}
        file.write_text(json.dumps(said))
        return {"MILABENCH_SIMULATED_DEVICES": os.path.relpath(file, ROOT)}  # where the command is given

    return script


def bench(milabench: Callable[..., Said], name: str, *words: str) -> dict[str, Any]:
    said = milabench("report", "--json", *words)
    assert said.code == 0, said.err
    (found,) = [one for one in json.loads(said.out)["benchmarks"] if one["bench"] == name]
    return found


def records(environ: dict[str, str], stem: str) -> list[dict[str, Any]]:
    (file,) = Path(environ["MILABENCH_BASE"], "runs").glob(f"run.*/{stem}.data")
    return [json.loads(line) for line in file.read_bytes().splitlines()]


def test_instances_of_unlike_speed_measure_at_the_same_time(
    prepared: Callable[..., Said], environ: dict[str, str], devices: Any
) -> None:
    said = prepared("run", *TWO, "--select", "beside", **devices())
    assert said.code == 0, said.err
    found = bench(prepared, "beside")
    assert found["overlap"] >= 0.95
    assert set(found["reasons"]) == {"short"}
    assert found["energy_J"] == pytest.approx(2 * 300 * 3, rel=0.2)
    for step in ("beside.D0", "beside.D1"):
        seen = records(environ, step)
        data = [record["data"] for record in seen if record["event"] == "data"]
        assert any(one.get("warmup") for one in data)
        assert any(one.get("ready") for one in data)
        (key,) = {key for one in data for key in one.get("gpudata", ())}
        assert key == step[-1]
        assert seen[-1]["event"] == "end"
        checks = {one["check"]: one["verdict"] for one in found["validations"] if one["step"] == step}
        assert checks.pop("contended") in ("pass", "warn")
        assert set(checks.values()) == {"pass"}
        assert {"usage", "throttle", "foreign", "energy", "placement"} <= set(checks)
    text = prepared("report", "--full").out
    assert "validations\n  beside.D0: " in text
    assert "beside: overlap of the instances' windows" in text


def test_what_checks_find_is_said_at_once_and_marks_the_number(prepared: Callable[..., Said], devices: Any) -> None:
    said = prepared("run", *TWO, "--select", "beside", **devices(load=0.1, throttle=0x40))
    assert said.code == 0, said.err
    assert "beside.D1: usage: fail: load of device 1 is 10.0%, below 50.0%" in said.err
    found = bench(prepared, "beside")
    assert found["validity"] == "suspect"
    assert set(found["reasons"]) == {"short", "throttled", "validation"}


def test_only_the_checks_that_are_asked_for_are_made(prepared: Callable[..., Said], devices: Any) -> None:
    said = prepared("run", *TWO, "--select", "good", "--validations", "none", **devices(load=0.0))
    assert said.code == 0, said.err
    assert bench(prepared, "good")["validations"] == []
    again = bench(prepared, "good", "--validations", "usage")
    assert {one["check"] for one in again["validations"]} == {"usage"}


def test_an_unknown_check_is_named(milabench: Callable[..., Said]) -> None:
    said = milabench("run", *HERE, "--select", "good", "--validations", "usag")
    assert (said.code, "unknown check 'usag'" in said.err) == (2, True)


def test_an_instance_that_is_never_ready_fails_the_group_by_its_name(prepared: Callable[..., Said]) -> None:
    said = prepared("run", *TWO, "--select", "late")
    assert said.code == 1
    details = {one["step"]: one["detail"] for one in bench(prepared, "late")["failures"]}
    assert details["late.D1"].startswith("not ready within 3 s of the first of its group")
    assert "waited at the start barrier for late.D1" in details["late.D0"]
