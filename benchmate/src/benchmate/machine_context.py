"""The machine and the program, as Google Benchmark's files carry them. Unreadable values are left out."""

from __future__ import annotations

import datetime
import os
import platform
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import benchmate
from benchmate.kernel_files import read_text

_SIZES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "": 1}


def google_context(executable: str, remarks: Mapping[str, str]) -> dict[str, object]:
    """Return Google Benchmark's `context`, schema version 1. Sizes in bytes, `date` in ISO 8601.

    Remarks are added. They do not replace known values.
    """
    frequency = re.search(r"cpu MHz\s*:\s*([\d.]+)", read_text("/proc/cpuinfo") or "")
    governor = read_text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    random_addresses = read_text("/proc/sys/kernel/randomize_va_space")
    known = {
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "host_name": socket.gethostname(),
        "executable": executable,
        "num_cpus": os.cpu_count() or 1,
        "mhz_per_cpu": None if frequency is None else round(float(frequency[1])),
        "cpu_scaling_enabled": governor is not None and governor != "performance",
        "aslr_enabled": None if random_addresses is None else random_addresses != "0",
        "caches": host_caches(),
        "load_avg": [round(load, 2) for load in os.getloadavg()],
        "library_version": benchmate.__version__,
        # compare.py warns of timings from a debug build, which an interpreter has none of.
        "library_build_type": "release",
        "python_version": platform.python_version(),
        "json_schema_version": 1,
    }
    return {**remarks, **{key: value for key, value in known.items() if value is not None}}


def host_caches() -> list[dict[str, Any]]:
    """Return the caches that the first processor sees, as Google Benchmark describes them. Sizes in bytes."""
    caches: list[dict[str, Any]] = []
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = (read_text(folder / name) for name in ("level", "type", "size"))
        matched = re.fullmatch(r"(\d+)([KMG]?)", size or "")
        if level is None or kind is None or matched is None:
            continue
        sharing = read_text(folder / "shared_cpu_map") or ""
        # A mask of processors in hexadecimal words of 32 bits.
        cores = sum(bin(int(word, 16)).count("1") for word in sharing.split(",") if word)
        size_bytes = int(matched[1]) * _SIZES[matched[2]]
        caches.append({"type": kind, "level": int(level), "size": size_bytes, "num_sharing": cores})
    return caches
