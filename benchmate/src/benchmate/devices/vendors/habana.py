"""Intel Gaudi, formerly Habana."""

from __future__ import annotations

from typing import Callable, List, Sequence, Tuple

from .command import READING_TIMEOUT_S, command_output, number, parsed, share
from .vendor import Inventory, ReadAll, Reading, Vendor

FORMAT = ("-f", "csv,noheader,nounits")
READINGS = "index,uuid,name,memory.used,memory.total,utilization.aip,power.draw,temperature.aip"


class Habana(Vendor):
    """Gaudi, by hl-smi."""

    arch = "hpu"
    visible_variables = ("HABANA_VISIBLE_DEVICES", "HABANA_VISIBLE_MODULES")
    assigned_variable = "HABANA_VISIBLE_MODULES"
    collective = "hccl"

    def container_options(self, engine: str, ids: Sequence[str]) -> Tuple[str, ...]:
        """Let its runtime bring all of them; the step's variable chooses."""
        return ("--runtime=habana", "--env=HABANA_VISIBLE_DEVICES=all") if ids else ()

    def inventories(self) -> Sequence[Tuple[str, Callable[[], Inventory]]]:
        """Ask hl-smi."""
        return (("habana by command", inventory_by_hl_smi),)

    def readers(self) -> Sequence[Callable[[], ReadAll]]:
        """Ask hl-smi."""
        return (
            lambda: (
                lambda: parse_hl_smi_readings(
                    command_output("hl-smi", "-Q", READINGS, *FORMAT, timeout_s=READING_TIMEOUT_S)
                )
            ),
        )


VENDOR = Habana()


def inventory_by_hl_smi() -> Inventory:
    """Return the devices as hl-smi tells them."""
    devices = []
    for line in command_output("hl-smi", "-Q", "index,uuid,name,memory.total,driver_version", *FORMAT).splitlines():
        index, uuid, name, memory, driver = (cell.strip() for cell in line.split(","))
        devices.append(
            {
                "index": int(index),
                "arch": "hpu",
                "uuid": uuid,
                "name": name,
                "memory_mib": parsed(memory, int),
                "driver": driver,
            }
        )
    return devices, {"driver": devices[0]["driver"] if devices else None}


def parse_hl_smi_readings(table: str) -> List[Reading]:
    """Return the rows of `hl-smi -Q`: MiB, per cent, watts, degrees Celsius."""
    readings = []
    for line in table.strip().splitlines():
        index, uuid, name, used, total, load, power, temperature = (cell.strip() for cell in line.split(","))
        readings.append(
            Reading(
                int(index),
                uuid,
                name,
                memory_used_mib=number(used),
                memory_total_mib=number(total),
                load=share(number(load)),
                power_w=number(power),
                temperature_c=number(temperature),
            )
        )
    return readings
