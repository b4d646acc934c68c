"""What a machine says of itself, with a vendor's library or tool put in the agent's way."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from milabench.execute.agent_client import local_node
from milabench.execute.api import Frame, Progress, StepRequest
from milabench.plan.model import Step

ROOT = Path(__file__).resolve().parents[2]
AGENT = ROOT / "orchestrator" / "milabench" / "execute" / "agent" / "__main__.py"

NVML = r"""
#include <stdlib.h>
#include <string.h>
typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_v2_t;
typedef struct { char legacy[16]; unsigned numbers[5]; char bus_id[32]; } pci_t;
typedef struct { unsigned pid; unsigned long long used; unsigned instance, compute; } process_t;
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char *s, unsigned n) { strncpy(s, "555.42", n); return 0; }
int nvmlSystemGetCudaDriverVersion_v2(int *v) { *v = 12050; return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 2; return 0; }
static int is_set(const char *name, unsigned i) {
    const char *text = getenv(name); return text && (unsigned)atoi(text) == i;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) {
    *d = (void *)(0x700000000000UL + i); return is_set("FORBIDDEN", i) ? 4 : is_set("LOST", i) ? 15 : 0;
}
const char *nvmlErrorString(int code) { return code == 15 ? "GPU is lost" : "?"; }
int nvmlDeviceGetUUID(void *d, char *s, unsigned n) {
    if ((unsigned long)d & 0x100) strncpy(s, (unsigned long)d & 0x10 ? "MIG-b" : "MIG-a", n);
    else strncpy(s, (unsigned long)d & 1 ? "GPU-1" : "GPU-0", n);
    return 0;
}
int nvmlDeviceGetName(void *d, char *s, unsigned n) { strncpy(s, "NVIDIA H100", n); return 0; }
int nvmlDeviceGetMemoryInfo(void *d, memory_t *m) {
    m->total = 80UL << 30; m->free = 79UL << 30; m->used = 1UL << 30; return 0;
}
int nvmlDeviceGetMemoryInfo_v2(void *d, memory_v2_t *m) {
    if (getenv("OLD_DRIVER") || m->version != 0x02000028) return 25;
    m->total = 80UL << 30; m->free = 79UL << 30; m->reserved = 600UL << 20; m->used = 424UL << 20; return 0;
}
int nvmlDeviceGetPciInfo_v3(void *d, pci_t *p) { strcpy(p->bus_id, "00000000:3B:00.0"); return 0; }
int nvmlDeviceGetPowerManagementLimit(void *d, unsigned *v) { *v = 600000; return 0; }
int nvmlDeviceGetPowerManagementDefaultLimit(void *d, unsigned *v) { *v = 700000; return 0; }
int nvmlDeviceGetMaxClockInfo(void *d, unsigned kind, unsigned *v) { *v = kind == 1 ? 1980 : 2619; return 0; }
int nvmlDeviceGetEccMode(void *d, unsigned *now, unsigned *later) { *now = 1; *later = 1; return 0; }
int nvmlDeviceGetMigMode(void *d, unsigned *now, unsigned *later) {
    *now = *later = 1; return is_set("MIG", (unsigned long)d & 1) ? 0 : 3;
}
int nvmlDeviceGetMaxMigDeviceCount(void *d, unsigned *n) { *n = 7; return 0; }
int nvmlDeviceGetMigDeviceHandleByIndex(void *d, unsigned i, void **piece) {
    *piece = (void *)((unsigned long)d + 0x100 + 0x10 * i); return i < 2 ? 0 : 6;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *d, unsigned *n, process_t *p) {
    *n = 1; p[0].pid = 42; p[0].used = 512UL << 20; return 0;
}
"""


def facts(**env: str) -> dict[str, Any]:
    command = [sys.executable, "-I", str(AGENT), "facts"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **env})
    return json.loads(done.stdout)


def test_a_busy_loop_of_others_is_a_runnable_thread() -> None:
    loop = subprocess.Popen(
        [sys.executable, "-S", "-c", "print(1, flush=True)\nwhile True: pass"], stdout=subprocess.PIPE
    )
    assert loop.stdout is not None
    try:
        loop.stdout.readline()
        assert facts()["runnable"] >= 1
    finally:
        loop.kill()
        loop.wait()
        loop.stdout.close()


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder with a stand-in of NVIDIA's library: two GPUs, of which `LOST` names a lost one and `MIG` one cut up."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("not installed: apt-get install gcc")
    folder = tmp_path_factory.mktemp("nvml")
    (folder / "nvml.c").write_text(NVML)
    command = [compiler, "-shared", "-fPIC", "-o", str(folder / "libnvidia-ml.so.1"), str(folder / "nvml.c")]
    subprocess.run(command, check=True)
    return str(folder)


def test_a_vendor_library_tells_the_devices(library: str) -> None:
    found = facts(LD_LIBRARY_PATH=library)
    assert (found["driver"], found["cuda"]) == ("555.42", "12.5")
    assert [device["uuid"] for device in found["devices"]] == ["GPU-0", "GPU-1"]
    assert found["devices"][1] == {
        "index": 1,
        "arch": "cuda",
        "uuid": "GPU-1",
        "name": "NVIDIA H100",
        "memory_mib": 81920,
        "memory_used_mib": 424,
        "pci": "00000000:3B:00.0",
        "power_limit_w": 600.0,
        "power_limit_default_w": 700.0,
        "sm_clock_max_mhz": 1980,
        "mem_clock_max_mhz": 2619,
        "ecc": True,
        "mig": None,
        "persistence": None,
        "processes": [{"pid": 42, "memory_mib": 512}],
        "driver": "555.42",
        "cuda": "12.5",
    }


def test_a_lost_device_is_named_and_the_others_keep_their_numbers(library: str) -> None:
    found = facts(LD_LIBRARY_PATH=library, LOST="0")
    assert [(device["index"], device["uuid"]) for device in found["devices"]] == [(1, "GPU-1")]
    assert found["devices"][0]["visible_as"] == "GPU-1"  # CUDA does not count the lost one
    assert found["lost"] == [
        {"index": 0, "arch": "cuda", "lost": "GPU is lost (NVML error 15)", "driver": "555.42", "cuda": "12.5"}
    ]


def test_a_device_that_a_control_group_forbids_is_not_lost(library: str) -> None:
    found = facts(LD_LIBRARY_PATH=library, FORBIDDEN="0")
    assert [(device["index"], device["visible_as"]) for device in found["devices"]] == [(1, "GPU-1")]
    assert found["lost"] == []


def test_an_older_driver_tells_the_memory_with_its_own(library: str) -> None:
    assert facts(LD_LIBRARY_PATH=library, OLD_DRIVER="1")["devices"][0]["memory_used_mib"] == 1024


def test_a_device_that_is_cut_up_is_its_slices(library: str) -> None:
    found = facts(LD_LIBRARY_PATH=library, MIG="1")
    assert [(device["index"], device["visible_as"]) for device in found["devices"]] == [
        (0, "GPU-0"), (1, "MIG-a"), (2, "MIG-b"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("1", [(1, "GPU-1")]),
        ("1,0", [(1, "GPU-1"), (0, "GPU-0")]),
        ("GPU-1", [(1, "GPU-1")]),
        ("0,-1,1", [(0, "GPU-0")]),
        ("5", []),
        ("", []),
    ],
)
def test_devices_that_are_hidden_from_us_are_left_out(
    library: str, value: str, expected: list[tuple[int, str]]
) -> None:
    found = facts(LD_LIBRARY_PATH=library, CUDA_VISIBLE_DEVICES=value)
    assert [(device["index"], device["uuid"]) for device in found["devices"]] == expected
    assert found["hidden_by"] == {"CUDA_VISIBLE_DEVICES": value}
    assert ("leaves none of 2" in found["absent"].get("devices", "")) == (not expected)


def test_slices_are_chosen_by_their_uuid(library: str) -> None:
    found = facts(LD_LIBRARY_PATH=library, MIG="1", CUDA_VISIBLE_DEVICES="MIG-b,MIG-a")
    assert [(one["index"], one["uuid"], one["slice_of"], one["visible_as"]) for one in found["devices"]] == [
        (0, "MIG-b", "GPU-1", "MIG-b"),
        (1, "MIG-a", "GPU-1", "MIG-a"),
    ]


def test_both_of_amds_variables_are_respected_the_second_counting_from_the_first(tmp_path: Path) -> None:
    answer = {f"card{n}": {"Unique ID": f"0x{n}", "VRAM Total Memory (B)": str(1 << 30)} for n in range(4)}
    path = tool(tmp_path, "rocm-smi", json.dumps(answer))
    found = facts(PATH=path, ROCR_VISIBLE_DEVICES="1,2,3", HIP_VISIBLE_DEVICES="2,0", CUDA_VISIBLE_DEVICES="1")
    assert [device["index"] for device in found["devices"]] == [3, 1]
    assert found["hidden_by"] == {"ROCR_VISIBLE_DEVICES": "1,2,3", "HIP_VISIBLE_DEVICES": "2,0"}


def test_intels_tiles_count_as_their_device(tmp_path: Path) -> None:
    script = tmp_path / "xpu-smi"
    devices = json.dumps({"device_list": [{"device_id": n, "uuid": f"u{n}", "device_name": "Max"} for n in range(3)]})
    script.write_text(f"#!/bin/sh\n[ \"$2\" = -j ] && echo '{devices}' || echo '{{}}'\n")
    script.chmod(0o755)
    found = facts(PATH=f"{tmp_path}{os.pathsep}{os.environ['PATH']}", ZE_AFFINITY_MASK="2.0,2.1,0")
    assert [device["index"] for device in found["devices"]] == [2, 0]


def tool(folder: Path, name: str, text: str) -> str:
    """The PATH on which a vendor's tool prints this."""
    script = folder / name
    script.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\n")
    script.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def test_a_vendor_tool_tells_the_devices_where_there_is_no_library(tmp_path: Path) -> None:
    line = "0, GPU-7, NVIDIA T4, 15360, 550.1, 70.00, [N/A], 00000000:00:04.0, Disabled"
    found = facts(PATH=tool(tmp_path, "nvidia-smi", line))
    (device,) = found["devices"]
    assert device == {
        "index": 0,
        "arch": "cuda",
        "uuid": "GPU-7",
        "name": "NVIDIA T4",
        "memory_mib": 15360,
        "driver": "550.1",
        "power_limit_w": 70.0,
        "power_limit_default_w": None,
        "pci": "00000000:00:04.0",
        "ecc": False,
    }


def test_amd_devices_are_told(tmp_path: Path) -> None:
    answer = {
        "card1": {"Unique ID": "0x2", "Card Series": "MI300X", "VRAM Total Memory (B)": str(192 << 30)},
        "card0": {"Unique ID": "0x1", "Card Series": "MI300X", "VRAM Total Memory (B)": str(192 << 30)},
        "system": {"Driver version": "6.8"},
    }
    found = facts(PATH=tool(tmp_path, "rocm-smi", json.dumps(answer)))
    assert [(device["index"], device["uuid"], device["memory_mib"]) for device in found["devices"]] == [
        (0, "0x1", 196608),
        (1, "0x2", 196608),
    ]
    assert found["driver"] == "6.8"


def test_a_tool_that_talks_nonsense_is_no_device(tmp_path: Path) -> None:
    found = facts(PATH=tool(tmp_path, "nvidia-smi", "NVIDIA-SMI has failed because it could not talk to the driver"))
    assert found["devices"] == []
    assert "nvidia by command" in found["absent"]["devices"]


def test_what_is_not_known_has_a_reason() -> None:
    found = facts()
    cpu = found["cpu"]
    assert 1 <= cpu["count"] <= cpu["affinity"] <= cpu["online"]
    for name in ("model", "cores"):
        assert cpu[name] is not None or f"cpu.{name}" in found["absent"]
    assert found["devices"] or found["absent"]["devices"]


def test_a_file_server_tells_the_space_on_a_disk(tmp_path: Path) -> None:
    request = json.dumps({"do": "facts", "disks": [str(tmp_path)]}) + "\n"
    command = [sys.executable, "-I", str(AGENT), "files"]
    done = subprocess.run(command, input=request, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["facts"]["disk"][str(tmp_path)]["free_mib"] > 0


def test_only_the_processors_that_we_may_use_count() -> None:
    one = min(os.sched_getaffinity(0))
    command = [sys.executable, "-I", str(AGENT), "facts"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, preexec_fn=lambda: os.sched_setaffinity(0, {one})
    )
    assert json.loads(done.stdout)["cpu"]["count"] == 1


def test_a_step_sees_the_devices_of_its_plan_whatever_was_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "1")
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "1,3")
    monkeypatch.setenv("ZE_AFFINITY_MASK", "2")
    script = "import os; print({n: v for n, v in sorted(os.environ.items()) if 'VISIBLE' in n or 'AFFINITY' in n})"
    env = {"ROCR_VISIBLE_DEVICES": "3"}
    step = Step(id="s", bench="s", phase="run", argv=(sys.executable, "-c", script), env=env, needs_data=False)
    seen: list[Progress] = []

    async def run() -> None:
        async with local_node(f"visible-{time.monotonic_ns()}") as node:
            await node.run(StepRequest(step=step), seen.append)

    asyncio.run(run())
    records = b"".join(each.payload for each in seen if isinstance(each, Frame)).splitlines()
    (line,) = [record["data"] for record in map(json.loads, records) if record["event"] == "line"]
    assert line.strip() == "{'ROCR_VISIBLE_DEVICES': '3', 'ZE_AFFINITY_MASK': '2'}"


def test_doctor_names_a_lost_device(library: str) -> None:
    command = [sys.executable, "-m", "milabench", "doctor", "--use-current-env", "--json"]
    suite = ["--config", str(ROOT / "tests" / "suite" / "odd.yaml"), "--select", "good"]
    done = subprocess.run(
        [*command, *suite],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LD_LIBRARY_PATH": library, "LOST": "0", "CUDA_VISIBLE_DEVICES": "0,1"},
    )
    said = {one["what"]: one for one in json.loads(done.stdout)["findings"]}
    assert (done.returncode, said["cuda 0"]["state"]) == (1, "bad")
    assert said["cuda 0"]["says"].startswith("does not answer: GPU is lost (NVML error 15)")
    assert said["cuda 1"]["state"] == "ok"
    assert said["CUDA_VISIBLE_DEVICES"]["state"] == "note"
