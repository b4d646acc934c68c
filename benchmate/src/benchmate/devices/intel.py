"""Intel's devices, by `xpu-smi`, which asks Level Zero."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from typing import Any

from benchmate.devices.api import MIB, Sample, Survey
from benchmate.devices.command import CommandVendor, Row, ask, number

# Utilization, power, frequency, core temperature, energy, memory used.
METRICS = "0,1,2,3,8,18"


def intel() -> CommandVendor:
    """Intel's devices. Raises NotAvailableError."""
    static: dict[int, Mapping[str, Any]] = {}
    for one in json.loads(ask("xpu-smi", "discovery", "-j")).get("device_list") or ():
        number_of = int(one["device_id"])
        more = json.loads(ask("xpu-smi", "discovery", "-d", str(number_of), "-j"))
        static[number_of] = {**one, **more}
    return CommandVendor("xpu", lambda: rows(ask("xpu-smi", "dump", "-d", "-1", "-m", METRICS, "-n", "1"), static))


def rows(table: str, static: Mapping[int, Mapping[str, Any]]) -> Sequence[Row]:
    """The table of `xpu-smi dump`: per cent, watts, MHz, degrees Celsius, joules, MiB."""
    found = []
    for line in csv.DictReader(table.strip().splitlines(), skipinitialspace=True):
        cells = {str(key).strip(): value for key, value in line.items() if key}
        index = int(_cell(cells, "DeviceId") or 0)
        about = static.get(index, {})
        load, clock = _cell(cells, "GPU Utilization"), _cell(cells, "GPU Frequency")
        total = number(about.get("memory_physical_size_byte"))
        found.append(
            Row(
                index=index,
                uuid=str(about.get("uuid") or f"intel-{index}"),
                name=str(about.get("device_name") or "Intel"),
                sample=Sample(
                    memory_used_mib=_cell(cells, "GPU Memory Used"),
                    memory_total_mib=None if total is None else total / MIB,
                    load=None if load is None else load / 100,
                    power_w=_cell(cells, "GPU Power"),
                    sm_clock_mhz=None if clock is None else round(clock),
                    energy_j=_cell(cells, "GPU Energy Consumed"),
                ),
                survey=Survey(temperature_c=_cell(cells, "GPU Core Temperature")),
            )
        )
    return found


def _cell(cells: Mapping[str, Any], heading: str) -> float | None:
    return next((number(value) for key, value in cells.items() if key.startswith(heading)), None)
