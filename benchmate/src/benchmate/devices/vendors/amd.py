"""AMD."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from .command import READING_TIMEOUT_S, command_output, number, ratio, whole
from .vendor import DeviceProcess, Inventory, ReadAll, Reading, Sample, Survey, Vendor

MIB = 1 << 20
STATIC = ("--showuniqueid", "--showproductname", "--showmeminfo", "vram")


def inventory_by_amd_smi() -> Inventory:
    """Return the devices as rocm-smi tells them."""
    answer = json.loads(command_output("rocm-smi", *STATIC, "--showdriverversion", "--showbus", "--json"))
    driver = (answer.get("system") or {}).get("Driver version")
    return [
        {
            "index": index,
            "uuid": card.get("Unique ID"),
            "name": card_name(card),
            "memory_mib": int(card.get("VRAM Total Memory (B)") or 0) >> 20 or None,
            "pci": card.get("PCI Bus"),
            "driver": driver,
        }
        for index, card in sorted(cards_of(answer).items())
    ]


def cards_of(answer: Mapping[str, Any]) -> Dict[int, Mapping[str, Any]]:
    """Return the entries of `rocm-smi --json` by card number."""
    return {int(name[4:]): card for name, card in answer.items() if name.startswith("card")}


def card_name(card: Mapping[str, Any]) -> Optional[str]:
    """Return the model, which is called differently by each version."""
    return card.get("Card Series") or card.get("Card series") or card.get("Device Name")


def open_rocm_smi() -> ReadAll:
    """Return the reader of all devices through rocm-smi."""
    options = (*STATIC, "--showuse", "--showpower", "--showtemp", "--showpids", "--json")

    def read_all() -> List[Reading]:
        answer = json.loads(command_output("rocm-smi", *options, timeout_s=READING_TIMEOUT_S))
        cards = cards_of(answer)
        # The card that each process uses is not reported.
        processes = rocm_smi_processes(mapping(answer.get("system"))) if len(cards) == 1 else None
        return [parse_rocm_smi(index, card, processes) for index, card in cards.items()]

    return read_all


def rocm_smi_processes(system: Mapping[str, Any]) -> Optional[Tuple[DeviceProcess, ...]]:
    """Read `PID123: "python, 1, 4294967296, ..."`: name, number of cards, bytes. None where it lists none."""
    pids = [int(key[3:]) for key in system if key.startswith("PID") and key[3:].isdigit()]
    return tuple(map(DeviceProcess, pids)) or None


def parse_rocm_smi(
    index: int, card: Mapping[str, Any], processes: Optional[Tuple[DeviceProcess, ...]] = None
) -> Reading:
    """Read a card of `rocm-smi --json`: bytes, per cent, watts, degrees. The names differ between versions."""
    return Reading(
        index,
        str(card.get("Unique ID") or "amd-%d" % index),
        str(card_name(card) or "AMD"),
        Sample(
            ratio(card.get("VRAM Total Used Memory (B)"), MIB),
            ratio(card.get("VRAM Total Memory (B)"), MIB),
            load=ratio(card.get("GPU use (%)"), 100),
            power_w=_first(card, "Power (W)"),
        ),
        Survey(_first(card, "Temperature (Sensor junction)"), processes=processes),
    )


def open_amd_smi() -> ReadAll:
    """Return the reader of all devices through amd-smi. Names and ids are asked for once."""

    def ask(*argv: str) -> Sequence[Mapping[str, Any]]:
        answer = json.loads(command_output("amd-smi", *argv, "--json", timeout_s=READING_TIMEOUT_S))
        # A list, in later versions under `gpu_data`.
        devices: Sequence[Mapping[str, Any]] = answer["gpu_data"] if isinstance(answer, Mapping) else answer
        return devices

    static = {int(device["gpu"]): device for device in ask("list")}
    return lambda: [parse_amd_smi(device, static.get(int(device["gpu"]), {})) for device in ask("metric")]


def parse_amd_smi(metrics: Mapping[str, Any], static: Mapping[str, Any]) -> Reading:
    """Read an entry of `amd-smi metric --json`: W, MB (of 2**20 bytes), per cent, MHz. J in the later versions."""
    memory, usage, power, clocks, ecc, energy, temperature = (
        mapping(metrics.get(name)) for name in ("mem_usage", "usage", "power", "clock", "ecc", "energy", "temperature")
    )
    throttled = power.get("throttle_status")
    counts = {}
    for name, key in (("corrected", "total_correctable_count"), ("uncorrected", "total_uncorrectable_count")):
        count = _value(ecc.get(key))
        if count is not None:
            counts[name] = int(count)
    return Reading(
        int(metrics["gpu"]),
        str(static.get("uuid") or "amd-%s" % metrics["gpu"]),
        str(static.get("name") or "AMD"),
        Sample(
            _value(memory.get("used_vram")),
            _value(memory.get("total_vram")),
            load=ratio(_value(usage.get("gfx_activity")), 100),
            power_w=_value(power.get("socket_power")),
            sm_clock_mhz=whole(_value(mapping(clocks.get("gfx_0")).get("clk"))),
            mem_clock_mhz=whole(_value(mapping(clocks.get("mem_0")).get("clk"))),
            throttle=None
            if throttled in (None, "N/A")
            else (("hw_slowdown",) if str(throttled).upper() == "THROTTLED" else ()),
            energy_j=_value(energy.get("total_energy_consumption")),
        ),
        Survey(_value(temperature.get("hotspot")), counts or None),
    )


def mapping(value: Any) -> Mapping[str, Any]:
    """Return a JSON object. An empty object for other values."""
    return value if isinstance(value, Mapping) else {}


def _first(card: Mapping[str, Any], part: str) -> Optional[float]:
    return next((number(value) for key, value in card.items() if part in key), None)


def _value(cell: Any) -> Optional[float]:
    """Read `{"value": 35, "unit": "W"}`, or the bare number of older versions."""
    return number(cell.get("value") if isinstance(cell, Mapping) else cell)


class Amd(Vendor):
    """GPUs with ROCm, by amd-smi or, of the versions before it, rocm-smi."""

    arch = "rocm"
    visible_variables = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
    assigned_variable = "ROCR_VISIBLE_DEVICES"
    collective = "rccl"
    apptainer_options = ("--rocm",)
    inventories = (("amd by command", inventory_by_amd_smi),)
    readers = (open_amd_smi, open_rocm_smi)

    @property
    def torch_device(self) -> str:
        """The name of devices in torch for ROCm, so that programs for CUDA run unchanged."""
        return "cuda"

    def effective(self, variables: Dict[str, str]) -> Dict[str, str]:
        """Leave CUDA's variable out if HIP's is set: HIP reads it only in the absence of its own."""
        if "HIP_VISIBLE_DEVICES" in variables:
            variables.pop("CUDA_VISIBLE_DEVICES", None)
        return variables

    def container_options(self, engine: str, ids: Sequence[str]) -> Tuple[str, ...]:
        """Bring all of them. The step's variable chooses."""
        groups = "keep-groups" if engine == "podman" else "video"
        return ("--device=/dev/kfd", "--device=/dev/dri", "--group-add=" + groups)


VENDOR = Amd()
