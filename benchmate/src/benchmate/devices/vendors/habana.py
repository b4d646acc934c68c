"""Intel Gaudi, formerly Habana."""

from __future__ import annotations

from typing import List, Sequence, Tuple

from .command import READING_TIMEOUT_S, number, ratio, table_rows, whole
from .vendor import Inventory, Reading, Sample, Survey, Vendor

READINGS = "index,uuid,name,memory.used,memory.total,utilization.aip,power.draw,temperature.aip"


def inventory_by_hl_smi() -> Inventory:
    """Return the devices as hl-smi tells them."""
    return [
        {"index": int(index), "uuid": uuid, "name": name, "memory_mib": whole(memory), "driver": driver}
        for index, uuid, name, memory, driver in hl_smi("index,uuid,name,memory.total,driver_version")
    ]


def read_hl_smi() -> List[Reading]:
    """Return hl-smi's readings of all devices: MiB, per cent, watts, degrees Celsius."""
    return [
        Reading(
            int(index),
            uuid,
            name,
            Sample(number(used), number(total), load=ratio(load, 100), power_w=number(power)),
            Survey(temperature_c=number(temperature)),
        )
        for index, uuid, name, used, total, load, power, temperature in hl_smi(READINGS, READING_TIMEOUT_S)
    ]


def hl_smi(columns: str, timeout_s: float = 20.0) -> List[List[str]]:
    """Return the rows of a table of hl-smi."""
    return table_rows("hl-smi", "-Q", columns, "-f", "csv,noheader,nounits", timeout_s=timeout_s)


class Habana(Vendor):
    """Gaudi, by hl-smi."""

    arch = "hpu"
    visible_variables = ("HABANA_VISIBLE_DEVICES", "HABANA_VISIBLE_MODULES")
    assigned_variable = "HABANA_VISIBLE_MODULES"
    collective = "hccl"
    inventories = (("habana by command", inventory_by_hl_smi),)
    readers = (lambda: read_hl_smi,)

    def container_options(self, engine: str, ids: Sequence[str]) -> Tuple[str, ...]:
        """Let its runtime bring all of them. The step's variable chooses."""
        return ("--runtime=habana", "--env=HABANA_VISIBLE_DEVICES=all")


VENDOR = Habana()
