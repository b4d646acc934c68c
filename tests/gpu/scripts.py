"""Simulated devices, as real ones behave: what MILABENCH_SIMULATED_DEVICES describes where there is no accelerator."""

from __future__ import annotations

from typing import Any

VARIABLE = "MILABENCH_SIMULATED_DEVICES"
BUSY = {
    "memory_MiB": [40960, 81920],
    "load": 0.95,
    "power_W": 500,
    "sm_clock_MHz": 1755,
    "mem_clock_MHz": 2619,
    "throttle": [],
    "temperature": 55,
}
"""A device at work, which nothing slows down."""


def described(*devices: Any, **more: Any) -> dict[str, Any]:
    """Return a script of devices, each a reading or a list of readings; `more` are keys of the script."""
    return {
        "devices": [
            {"uuid": f"SIM-{index}", "readings": readings if isinstance(readings, list) else [readings]}
            for index, readings in enumerate(devices)
        ],
        **more,
    }
