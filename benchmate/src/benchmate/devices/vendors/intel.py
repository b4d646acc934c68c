"""Intel GPUs."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from .command import READING_TIMEOUT_S, command_output, number, ratio, whole
from .vendor import Inventory, ReadAll, Reading, Sample, Survey, Vendor

MIB = 1 << 20
# Utilization, power, frequency, core temperature, energy, memory used.
METRICS = "0,1,2,3,8,18"


def discovery(timeout_s: float = 20.0) -> Dict[int, Mapping[str, Any]]:
    """Return xpu-smi's entries of the devices, by number."""
    devices: Dict[int, Mapping[str, Any]] = {}
    for summary in json.loads(command_output("xpu-smi", "discovery", "-j", timeout_s=timeout_s))["device_list"]:
        index = str(summary["device_id"])
        details = json.loads(command_output("xpu-smi", "discovery", "-d", index, "-j", timeout_s=timeout_s))
        devices[int(index)] = {**details, **summary}
    return devices


def inventory_by_xpu_smi() -> Inventory:
    """Return the devices as xpu-smi tells them."""
    return [
        {
            "index": index,
            "uuid": device.get("uuid"),
            "name": device.get("device_name"),
            "memory_mib": int(device.get("memory_physical_size_byte") or 0) >> 20 or None,
            "pci": device.get("pci_bdf_address"),
            "driver": device.get("driver_version"),
        }
        for index, device in discovery().items()
    ]


def open_xpu_smi() -> ReadAll:
    """Return the reader of all devices through xpu-smi."""
    static = discovery(READING_TIMEOUT_S)
    dump = ("xpu-smi", "dump", "-d", "-1", "-m", METRICS, "-n", "1")
    return lambda: parse_xpu_smi_readings(command_output(*dump, timeout_s=READING_TIMEOUT_S), static)


def parse_xpu_smi_readings(table: str, static: Mapping[int, Mapping[str, Any]]) -> List[Reading]:
    """Return the rows of `xpu-smi dump`: per cent, watts, MHz, degrees Celsius, joules, MiB."""
    import csv

    readings = []
    for line in csv.DictReader(table.strip().splitlines(), skipinitialspace=True):
        cells = {str(key).strip(): value for key, value in line.items() if key}
        index = int(_cell(cells, "DeviceId") or 0)
        device = static.get(index, {})
        readings.append(
            Reading(
                index,
                str(device.get("uuid") or "intel-%d" % index),
                str(device.get("device_name") or "Intel"),
                Sample(
                    _cell(cells, "GPU Memory Used"),
                    ratio(device.get("memory_physical_size_byte"), MIB),
                    load=ratio(_cell(cells, "GPU Utilization"), 100),
                    power_w=_cell(cells, "GPU Power"),
                    sm_clock_mhz=whole(_cell(cells, "GPU Frequency")),
                    energy_j=_cell(cells, "GPU Energy Consumed"),
                ),
                Survey(temperature_c=_cell(cells, "GPU Core Temperature")),
            )
        )
    return readings


def _cell(cells: Mapping[str, Any], heading: str) -> Optional[float]:
    return next((number(value) for key, value in cells.items() if key.startswith(heading)), None)


class Intel(Vendor):
    """GPUs with Level Zero, by xpu-smi, which asks it."""

    arch = "xpu"
    visible_variables = ("ZE_AFFINITY_MASK", "ONEAPI_DEVICE_SELECTOR")
    assigned_variable = "ONEAPI_DEVICE_SELECTOR"
    collective = "ccl"
    inventories = (("intel by command", inventory_by_xpu_smi),)
    readers = (open_xpu_smi,)

    def words(self, value: str) -> Optional[List[str]]:
        """Read `0.1,2` as devices 0 and 2, for a tile counts as its device. A selector may name its backend first."""
        words = super().words(value.rpartition(":")[2])
        return None if words is None else [word.partition(".")[0] for word in words]

    def assigned_environment(self, ids: Sequence[str]) -> Dict[str, str]:
        """Name the backend, without which a selector is refused."""
        return {self.assigned_variable: "level_zero:" + ",".join(ids)}

    def container_options(self, engine: str, ids: Sequence[str]) -> Tuple[str, ...]:
        """Bring all of them. The step's variable chooses."""
        return ("--device=/dev/dri",)


VENDOR = Intel()
