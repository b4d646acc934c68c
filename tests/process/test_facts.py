"""What a machine says of itself, with a vendor's library or tool put in the agent's way."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

AGENT = Path(__file__).resolve().parents[2] / "orchestrator" / "execute" / "agent.py"

NVML = r"""
#include <string.h>
typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { char legacy[16]; unsigned numbers[5]; char bus_id[32]; } pci_t;
typedef struct { unsigned pid; unsigned long long used; unsigned instance, compute; } process_t;
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char *s, unsigned n) { strncpy(s, "555.42", n); return 0; }
int nvmlSystemGetCudaDriverVersion_v2(int *v) { *v = 12050; return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { *d = (void *)(0x700000000000UL + i); return 0; }
int nvmlDeviceGetUUID(void *d, char *s, unsigned n) {
    strncpy(s, (unsigned long)d & 1 ? "GPU-1" : "GPU-0", n); return 0;
}
int nvmlDeviceGetName(void *d, char *s, unsigned n) { strncpy(s, "NVIDIA H100", n); return 0; }
int nvmlDeviceGetMemoryInfo(void *d, memory_t *m) {
    m->total = 80UL << 30; m->free = 79UL << 30; m->used = 1UL << 30; return 0;
}
int nvmlDeviceGetPciInfo_v3(void *d, pci_t *p) { strcpy(p->bus_id, "00000000:3B:00.0"); return 0; }
int nvmlDeviceGetPowerManagementLimit(void *d, unsigned *v) { *v = 600000; return 0; }
int nvmlDeviceGetPowerManagementDefaultLimit(void *d, unsigned *v) { *v = 700000; return 0; }
int nvmlDeviceGetMaxClockInfo(void *d, unsigned kind, unsigned *v) { *v = kind == 1 ? 1980 : 2619; return 0; }
int nvmlDeviceGetEccMode(void *d, unsigned *now, unsigned *later) { *now = 1; *later = 1; return 0; }
int nvmlDeviceGetMigMode(void *d, unsigned *now, unsigned *later) { return 3; }
int nvmlDeviceGetComputeRunningProcesses_v3(void *d, unsigned *n, process_t *p) {
    *n = 1; p[0].pid = 42; p[0].used = 512UL << 20; return 0;
}
"""


def facts(*words: str, **env: str) -> dict[str, Any]:
    command = [sys.executable, "-I", str(AGENT), "facts", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **env})
    return json.loads(done.stdout)


def test_a_vendor_library_tells_the_devices(tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler for a stand-in of the vendor's library")
    (tmp_path / "nvml.c").write_text(NVML)
    command = [compiler, "-shared", "-fPIC", "-o", str(tmp_path / "libnvidia-ml.so.1"), str(tmp_path / "nvml.c")]
    subprocess.run(command, check=True)
    found = facts(LD_LIBRARY_PATH=str(tmp_path))
    assert (found["driver"], found["cuda"]) == ("555.42", "12.5")
    assert [device["uuid"] for device in found["devices"]] == ["GPU-0", "GPU-1"]
    assert found["devices"][1] == {
        "index": 1,
        "arch": "cuda",
        "uuid": "GPU-1",
        "name": "NVIDIA H100",
        "memory_mib": 81920,
        "memory_used_mib": 1024,
        "pci": "00000000:3B:00.0",
        "power_limit_w": 600.0,
        "power_limit_default_w": 700.0,
        "sm_clock_max_mhz": 1980,
        "mem_clock_max_mhz": 2619,
        "ecc": True,
        "mig": None,
        "processes": [{"pid": 42, "memory_mib": 512}],
        "driver": "555.42",
        "cuda": "12.5",
    }


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


def test_what_is_not_known_has_a_reason(tmp_path: Path) -> None:
    found = facts("--disk", str(tmp_path))
    cpu = found["cpu"]
    assert 1 <= cpu["count"] <= cpu["affinity"] <= cpu["online"]
    for name in ("model", "cores"):
        assert cpu[name] is not None or f"cpu.{name}" in found["absent"]
    assert found["devices"] or found["absent"]["devices"]
    assert found["disk"][str(tmp_path)]["free_mib"] > 0


def test_only_the_processors_that_we_may_use_count() -> None:
    one = min(os.sched_getaffinity(0))
    command = [sys.executable, "-I", str(AGENT), "facts"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, preexec_fn=lambda: os.sched_setaffinity(0, {one})
    )
    assert json.loads(done.stdout)["cpu"]["count"] == 1
