"""Gaudi devices, by `hl-smi`."""

from __future__ import annotations

from collections.abc import Sequence

from benchmate.devices.api import Sample, Survey
from benchmate.devices.command import CommandVendor, Row, ask, number

FIELDS = "index,uuid,name,memory.used,memory.total,utilization.aip,power.draw,temperature.aip"


def habana() -> CommandVendor:
    """Gaudi devices. Raises NotAvailableError."""
    return CommandVendor("hpu", lambda: rows(ask("hl-smi", "-Q", FIELDS, "-f", "csv,noheader,nounits")))


def rows(table: str) -> Sequence[Row]:
    """The table of `hl-smi -Q`: MiB, per cent, watts, degrees Celsius."""
    found = []
    for line in table.strip().splitlines():
        index, uuid, name, used, total, load, power, temperature = (cell.strip() for cell in line.split(","))
        share = number(load)
        found.append(
            Row(
                index=int(index),
                uuid=uuid,
                name=name,
                sample=Sample(
                    memory_used_mib=number(used),
                    memory_total_mib=number(total),
                    load=None if share is None else share / 100,
                    power_w=number(power),
                ),
                survey=Survey(temperature_c=number(temperature)),
            )
        )
    return found
