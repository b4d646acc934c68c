"""AMD's devices: by the module `amdsmi` where it can be imported, else by `amd-smi`, or `rocm-smi` of the versions before it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmate.devices.api import MIB, DeviceProcess, NotAvailableError, Sample, Survey
from benchmate.devices.command import CommandVendor, Row, ask, number


def amd() -> CommandVendor:
    """AMD's devices. Raises NotAvailableError."""
    from benchmate.devices.amdsmi import module_rows

    reasons = []
    try:
        rows, close = module_rows()
        return CommandVendor("rocm", rows, period_s=0.1, close=close)
    except NotAvailableError as error:
        reasons.append(str(error))
    for tool in (amd_smi, rocm_smi):
        try:
            return CommandVendor("rocm", tool())
        except (NotAvailableError, ValueError, KeyError, TypeError, AttributeError) as error:
            reasons.append(str(error))
    raise NotAvailableError("; ".join(reasons))


def amd_smi() -> Callable[[], Sequence[Row]]:
    """Asks amd-smi; names and ids once."""
    static = {int(one["gpu"]): one for one in _list(json.loads(ask("amd-smi", "list", "--json")))}

    def rows() -> Sequence[Row]:
        metrics = _list(json.loads(ask("amd-smi", "metric", "--json")))
        return [amd_smi_row(one, static.get(int(one["gpu"]), {})) for one in metrics]

    return rows


def amd_smi_row(said: Mapping[str, Any], static: Mapping[str, Any]) -> Row:
    """One entry of `amd-smi metric --json`: watts, MB (of 2**20 bytes), per cent, MHz; joules in the later versions."""
    memory = _mapping(said.get("mem_usage"))
    usage, power, clocks = (_mapping(said.get(name)) for name in ("usage", "power", "clock"))
    load = _value(usage.get("gfx_activity"))
    throttled = power.get("throttle_status")
    ecc = _mapping(said.get("ecc"))
    counts = {
        name: int(count)
        for name, key in (("corrected", "total_correctable_count"), ("uncorrected", "total_uncorrectable_count"))
        if (count := _value(ecc.get(key))) is not None
    }
    energy = _value(_mapping(said.get("energy")).get("total_energy_consumption"))
    return Row(
        index=int(said["gpu"]),
        uuid=str(static.get("uuid") or f"amd-{said['gpu']}"),
        name=str(static.get("name") or "AMD"),
        sample=Sample(
            memory_used_mib=_value(memory.get("used_vram")),
            memory_total_mib=_value(memory.get("total_vram")),
            load=None if load is None else load / 100,
            power_w=_value(power.get("socket_power")),
            sm_clock_mhz=_whole(_value(_mapping(clocks.get("gfx_0")).get("clk"))),
            mem_clock_mhz=_whole(_value(_mapping(clocks.get("mem_0")).get("clk"))),
            throttle=None
            if throttled in (None, "N/A")
            else (("hw_slowdown",) if str(throttled).upper() == "THROTTLED" else ()),
            energy_j=energy,
        ),
        survey=Survey(
            temperature_c=_value(_mapping(said.get("temperature")).get("hotspot")), ecc=counts or None, processes=None
        ),
    )


def rocm_smi() -> Callable[[], Sequence[Row]]:
    """Asks rocm-smi."""
    options = ("--showuniqueid", "--showproductname", "--showmeminfo", "vram", "--showuse", "--showpower", "--showtemp")

    def rows() -> Sequence[Row]:
        answer = json.loads(ask("rocm-smi", *options, "--showpids", "--json"))
        cards = {int(card[4:]): said for card, said in answer.items() if card.startswith("card")}
        # Which card each process uses is not told.
        processes = rocm_smi_processes(_mapping(answer.get("system"))) if len(cards) == 1 else None
        return [rocm_smi_row(index, said, processes) for index, said in cards.items()]

    return rows


def rocm_smi_row(index: int, said: Mapping[str, Any], processes: tuple[DeviceProcess, ...] | None = None) -> Row:
    """One card of `rocm-smi --json`: bytes, per cent, watts, degrees; the names differ between versions."""
    used, total = number(said.get("VRAM Total Used Memory (B)")), number(said.get("VRAM Total Memory (B)"))
    load = number(said.get("GPU use (%)"))
    return Row(
        index=index,
        uuid=str(said.get("Unique ID") or f"amd-{index}"),
        name=str(said.get("Card Series") or said.get("Card series") or said.get("Device Name") or "AMD"),
        sample=Sample(
            memory_used_mib=None if used is None else used / MIB,
            memory_total_mib=None if total is None else total / MIB,
            load=None if load is None else load / 100,
            power_w=_first(said, "Power (W)"),
        ),
        survey=Survey(temperature_c=_first(said, "Temperature (Sensor junction)"), processes=processes),
    )


def rocm_smi_processes(system: Mapping[str, Any]) -> tuple[DeviceProcess, ...] | None:
    """`PID123: "python, 1, 4294967296, ..."`: name, number of cards, bytes; None where it lists none."""
    pids = [int(key[3:]) for key in system if key.startswith("PID") and key[3:].isdigit()]
    return tuple(DeviceProcess(pid=pid) for pid in pids) or None


def _first(said: Mapping[str, Any], part: str) -> float | None:
    return next((number(value) for key, value in said.items() if part in key), None)


def _value(said: Any) -> float | None:
    """`{"value": 35, "unit": "W"}`, or the bare number of older versions."""
    return number(said.get("value") if isinstance(said, Mapping) else said)


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(answer: Any) -> Sequence[Mapping[str, Any]]:
    """The devices: a list, in later versions under `gpu_data`."""
    return answer["gpu_data"] if isinstance(answer, Mapping) else answer
