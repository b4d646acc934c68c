"""Which accelerators this machine has, and which of them a program may use."""

from __future__ import annotations

import ctypes
import json
import subprocess
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from .procfs import command_output


def accelerators(absent: Dict[str, str]) -> Tuple[List[Dict[str, Any]], Dict[str, Any]]:
    """Return the devices, and the versions that belong to all of them; by the vendor's library, else by its command line."""
    reasons = []
    for ask in (nvidia_by_library, nvidia_by_command, amd_by_command, intel_by_command, habana_by_command):
        try:
            devices, software = ask()
        except (
            OSError,
            ValueError,
            KeyError,
            IndexError,
            TypeError,
            AttributeError,
            subprocess.SubprocessError,
        ) as error:
            reasons.append("%s: %s" % (ask.__name__.replace("_", " "), error))
            continue
        if devices:
            return devices, software
        reasons.append("%s: none" % ask.__name__.replace("_", " "))
    absent["devices"] = "; ".join(reasons)
    return [], {}


# Which variables choose among a vendor's devices. Each counts from what those before it left.
VISIBLE_DEVICES = {
    "cuda": ("CUDA_VISIBLE_DEVICES",),
    "rocm": ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
    "xpu": ("ZE_AFFINITY_MASK", "ONEAPI_DEVICE_SELECTOR"),
    "hpu": ("HABANA_VISIBLE_DEVICES", "HABANA_VISIBLE_MODULES"),
}


def visible_devices(
    devices: List[Dict[str, Any]], env: Mapping[str, str]
) -> Tuple[List[Dict[str, Any]], Dict[str, str]]:
    """Return the devices that programs with this environment may use, in their order, and the variables that hide others."""
    arch = devices[0]["arch"] if devices else ""
    hidden = {name: env[name] for name in VISIBLE_DEVICES.get(arch, ()) if name in env}
    if "HIP_VISIBLE_DEVICES" in hidden:
        hidden.pop("CUDA_VISIBLE_DEVICES", None)  # HIP reads it only in the absence of its own
    usable = devices
    for text in hidden.values():
        usable = chosen_devices(usable, text)
    return usable, hidden


def chosen_devices(devices: List[Dict[str, Any]], text: str) -> List[Dict[str, Any]]:
    """Return the devices that the value of such a variable names: by number, UUID or its beginning, or a MIG slice's UUID.

    The list ends before the first word that names nothing, as CUDA has it; an empty value means none, `all` and `*` all.
    """
    words = [word.strip() for word in text.rpartition(":")[2].split(",")]
    if words in (["all"], ["*"]):
        return devices
    usable: List[Dict[str, Any]] = []
    for word in words:
        device = named_device(devices, word)
        if device is None:
            break
        if device not in usable:
            usable.append(device)
    if any("slice_of" in device for device in usable):
        # Slices of one device share its number, and CUDA knows them by their UUIDs only.
        usable = [dict(device, index=number, visible_as=device["uuid"]) for number, device in enumerate(usable)]
    return usable


def named_device(devices: List[Dict[str, Any]], word: str) -> Optional[Dict[str, Any]]:
    """Return the device, or slice of one, that a number or a UUID stands for."""
    number = word.partition(".")[0]  # ZE_AFFINITY_MASK may name a tile: 0.1
    if number.isdigit():
        return devices[int(number)] if int(number) < len(devices) else None
    if not word or word.startswith("-"):
        return None
    for device in devices:
        if str(device.get("uuid") or "").startswith(word):
            return device
        for piece in device.get("slices") or ():
            if str(piece["uuid"]).startswith(word):
                whole = {name: value for name, value in device.items() if name != "slices"}
                return dict(whole, slice_of=device["uuid"], **piece)
    return None


class NvmlMemory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class NvmlPci(ctypes.Structure):
    _fields_ = [("legacy", ctypes.c_char * 16), ("numbers", ctypes.c_uint * 5), ("bus_id", ctypes.c_char * 32)]


class NvmlProcess(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("memory", ctypes.c_ulonglong), ("instances", ctypes.c_uint * 2)]


class Nvml:
    """The few questions that we have for libnvidia-ml; an answer that it does not give is None."""

    SM, MEMORY = 1, 2  # clock domains

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libnvidia-ml.so.1")
        if self._library.nvmlInit_v2() != 0:
            raise OSError("the library is there, the driver is not")

    def close(self) -> None:
        """Let go of the driver."""
        self._library.nvmlShutdown()

    def text(self, name: str, *arguments: Any) -> Optional[str]:
        """Return an answer in a buffer that we give."""
        buffer = ctypes.create_string_buffer(96)
        if self._call(name, *arguments, buffer, ctypes.c_uint(96)):
            return buffer.value.decode("utf-8", "replace")
        return None

    def number(self, name: str, *arguments: Any) -> Optional[int]:
        """Return an answer in an unsigned int."""
        value = ctypes.c_uint()
        return value.value if self._call(name, *arguments, ctypes.byref(value)) else None

    def pair(self, name: str, *arguments: Any) -> Optional[Tuple[int, int]]:
        """Return an answer in two unsigned ints: now, and after the next boot."""
        now, later = ctypes.c_uint(), ctypes.c_uint()
        return (
            (now.value, later.value) if self._call(name, *arguments, ctypes.byref(now), ctypes.byref(later)) else None
        )

    def fill(self, name: str, device: Any, structure: Any) -> Optional[Any]:
        """Return the structure, filled."""
        return structure if self._call(name, device, ctypes.byref(structure)) else None

    def handle(self, index: int) -> Any:
        """Return a device, for the other questions. Raise OSError for one that is lost."""
        device = ctypes.c_void_p()
        code = self._library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(device))
        if code != 0:
            raise OSError("%s (NVML error %d)" % (self._reason(code), code))
        return device

    def _reason(self, code: int) -> str:
        function = getattr(self._library, "nvmlErrorString", None)
        if function is None:
            return "does not answer"
        function.restype = ctypes.c_char_p
        return bytes(function(code)).decode("utf-8", "replace")

    def slices(self, device: Any) -> List[Dict[str, Any]]:
        """Return the MIG slices of a device that is cut up."""
        slices = []
        for number in range(self.number("nvmlDeviceGetMaxMigDeviceCount", device) or 0):
            piece = ctypes.c_void_p()
            if self._call("nvmlDeviceGetMigDeviceHandleByIndex", device, ctypes.c_uint(number), ctypes.byref(piece)):
                memory = self.fill("nvmlDeviceGetMemoryInfo", piece, NvmlMemory())
                slices.append(
                    {
                        "uuid": self.text("nvmlDeviceGetUUID", piece),
                        "name": self.text("nvmlDeviceGetName", piece),
                        "memory_mib": memory.total >> 20 if memory else None,
                    }
                )
        return slices

    def processes(self, device: Any) -> Optional[List[Dict[str, Any]]]:
        """Return who computes on a device; a process whose memory the driver hides has None."""
        room = 512
        count = ctypes.c_uint(room)
        table = (NvmlProcess * room)()
        if not self._call("nvmlDeviceGetComputeRunningProcesses_v3", device, ctypes.byref(count), table):
            return None
        hidden = (1 << 64) - 1
        return [
            {"pid": process.pid, "memory_mib": None if process.memory == hidden else process.memory >> 20}
            for process in table[: count.value]
        ]

    def _call(self, name: str, *arguments: Any) -> bool:
        function = getattr(self._library, name, None)
        return function is not None and function(*arguments) == 0


def nvidia_by_library() -> Tuple[List[Dict[str, Any]], Dict[str, Any]]:
    """Return NVIDIA's devices as NVML numbers them, which is by PCI address."""
    nvml = Nvml()
    try:
        cuda = nvml.number("nvmlSystemGetCudaDriverVersion_v2")
        software = {
            "driver": nvml.text("nvmlSystemGetDriverVersion"),
            "cuda": "%d.%d" % (cuda // 1000, cuda % 1000 // 10) if cuda else None,
        }
        count = nvml.number("nvmlDeviceGetCount_v2") or 0
        return [dict(_nvidia_device(nvml, index), **software) for index in range(count)], software
    finally:
        nvml.close()


def _nvidia_device(nvml: Nvml, index: int) -> Dict[str, Any]:
    try:
        device = nvml.handle(index)
    except OSError as error:
        return {"index": index, "arch": "cuda", "lost": str(error)}
    memory = nvml.fill("nvmlDeviceGetMemoryInfo", device, NvmlMemory())
    pci = nvml.fill("nvmlDeviceGetPciInfo_v3", device, NvmlPci())
    limit = nvml.number("nvmlDeviceGetPowerManagementLimit", device)
    default = nvml.number("nvmlDeviceGetPowerManagementDefaultLimit", device)
    ecc = nvml.pair("nvmlDeviceGetEccMode", device)
    mig = nvml.pair("nvmlDeviceGetMigMode", device)
    return {
        "index": index,
        "arch": "cuda",
        "uuid": nvml.text("nvmlDeviceGetUUID", device),
        "name": nvml.text("nvmlDeviceGetName", device),
        "memory_mib": memory.total >> 20 if memory else None,
        "memory_used_mib": memory.used >> 20 if memory else None,
        "pci": pci.bus_id.decode() if pci else None,
        "power_limit_w": limit / 1000 if limit is not None else None,
        "power_limit_default_w": default / 1000 if default is not None else None,
        "sm_clock_max_mhz": nvml.number("nvmlDeviceGetMaxClockInfo", device, ctypes.c_uint(Nvml.SM)),
        "mem_clock_max_mhz": nvml.number("nvmlDeviceGetMaxClockInfo", device, ctypes.c_uint(Nvml.MEMORY)),
        "ecc": bool(ecc[0]) if ecc else None,
        "mig": bool(mig[0]) if mig else None,
        "processes": nvml.processes(device),
        **({"slices": nvml.slices(device)} if mig and mig[0] else {}),
    }


def _cell(text: str, kind: Callable[[str], Any]) -> Any:
    """Return a value of a vendor's table; None for its many ways to say that there is none."""
    try:
        return kind(text)
    except ValueError:
        return None


def nvidia_by_command() -> Tuple[List[Dict[str, Any]], Dict[str, Any]]:
    """Return NVIDIA's devices as nvidia-smi tells them."""
    fields = "index,uuid,name,memory.total,driver_version,power.limit,power.default_limit,pci.bus_id,ecc.mode.current"
    devices = []
    for line in command_output("nvidia-smi", "--query-gpu=" + fields, "--format=csv,noheader,nounits").splitlines():
        index, uuid, name, memory, driver, limit, default, pci, ecc = (cell.strip() for cell in line.split(","))
        devices.append(
            {
                "index": int(index),
                "arch": "cuda",
                "uuid": uuid,
                "name": name,
                "memory_mib": _cell(memory, int),
                "driver": driver,
                "power_limit_w": _cell(limit, float),
                "power_limit_default_w": _cell(default, float),
                "pci": pci,
                "ecc": {"Enabled": True, "Disabled": False}.get(ecc),
            }
        )
    return devices, {"driver": devices[0]["driver"] if devices else None}


def amd_by_command() -> Tuple[List[Dict[str, Any]], Dict[str, Any]]:
    """Return AMD's devices as rocm-smi tells them."""
    options = (
        "--showuniqueid",
        "--showproductname",
        "--showmeminfo",
        "vram",
        "--showdriverversion",
        "--showbus",
        "--json",
    )
    answer = json.loads(command_output("rocm-smi", *options))
    driver = (answer.get("system") or {}).get("Driver version")
    devices = []
    for card, card_info in sorted(answer.items()):
        if card.startswith("card"):
            devices.append(
                {
                    "index": int(card[4:]),
                    "arch": "rocm",
                    "uuid": card_info.get("Unique ID"),
                    "name": card_info.get("Card Series")
                    or card_info.get("Card series")
                    or card_info.get("Device Name"),
                    "memory_mib": int(card_info.get("VRAM Total Memory (B)") or 0) >> 20 or None,
                    "pci": card_info.get("PCI Bus"),
                    "driver": driver,
                }
            )
    return sorted(devices, key=lambda device: int(device["index"] or 0)), {"driver": driver}


def intel_by_command() -> Tuple[List[Dict[str, Any]], Dict[str, Any]]:
    """Return Intel's devices as xpu-smi tells them."""
    devices = []
    for summary in json.loads(command_output("xpu-smi", "discovery", "-j"))["device_list"]:
        number = str(summary["device_id"])
        more = json.loads(command_output("xpu-smi", "discovery", "-d", number, "-j"))
        devices.append(
            {
                "index": int(number),
                "arch": "xpu",
                "uuid": summary.get("uuid"),
                "name": summary.get("device_name"),
                "memory_mib": int(more.get("memory_physical_size_byte") or 0) >> 20 or None,
                "pci": summary.get("pci_bdf_address"),
                "driver": more.get("driver_version"),
            }
        )
    return devices, {"driver": devices[0]["driver"] if devices else None}


def habana_by_command() -> Tuple[List[Dict[str, Any]], Dict[str, Any]]:
    """Return Gaudi devices as hl-smi tells them."""
    devices = []
    table = command_output("hl-smi", "-Q", "index,uuid,name,memory.total,driver_version", "-f", "csv,noheader,nounits")
    for line in table.splitlines():
        index, uuid, name, memory, driver = (cell.strip() for cell in line.split(","))
        devices.append(
            {
                "index": int(index),
                "arch": "hpu",
                "uuid": uuid,
                "name": name,
                "memory_mib": _cell(memory, int),
                "driver": driver,
            }
        )
    return devices, {"driver": devices[0]["driver"] if devices else None}
