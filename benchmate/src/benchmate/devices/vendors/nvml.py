"""NVIDIA's management library, libnvidia-ml, by ctypes: for a machine on which nothing is installed."""

from __future__ import annotations

import ctypes
from typing import Any, Dict, List, Optional

from .vendor import Inventory

NO_PERMISSION = 4


class Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class Memory2(ctypes.Structure):
    """As version 2 of the question fills it, which does not count the driver's own part as used."""

    _fields_ = [
        ("version", ctypes.c_uint),
        ("total", ctypes.c_ulonglong),
        ("reserved", ctypes.c_ulonglong),
        *Memory._fields_[1:],
    ]


class Pci(ctypes.Structure):
    _fields_ = [("legacy", ctypes.c_char * 16), ("numbers", ctypes.c_uint * 5), ("bus_id", ctypes.c_char * 32)]


# As version 2 and 3 of the question fill it; the first version's has no instances (of MIG), and another size.
class ComputeProcess(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("memory", ctypes.c_ulonglong), ("instances", ctypes.c_uint * 2)]


class Nvml:
    """The few questions that we have for libnvidia-ml. An answer that it does not give is None."""

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

    def mode(self, name: str, device: Any) -> Optional[bool]:
        """Return whether a mode is on. The answer also has its state after the next boot."""
        now, later = ctypes.c_uint(), ctypes.c_uint()
        return bool(now.value) if self._call(name, device, ctypes.byref(now), ctypes.byref(later)) else None

    def fill(self, name: str, device: Any, structure: Any) -> Optional[Any]:
        """Return the structure, filled."""
        return structure if self._call(name, device, ctypes.byref(structure)) else None

    def handle(self, index: int) -> Any:
        """Return a device, for the other questions. Raise OSError for a lost device, PermissionError for a device of others."""
        device = ctypes.c_void_p()
        code = self._library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(device))
        if code != 0:
            kind = PermissionError if code == NO_PERMISSION else OSError
            raise kind("%s (NVML error %d)" % (self._reason(code), code))
        return device

    def _reason(self, code: int) -> str:
        function = getattr(self._library, "nvmlErrorString", None)
        if function is None:
            return "does not answer"
        function.restype = ctypes.c_char_p
        return bytes(function(code)).decode("utf-8", "replace")

    def memory(self, device: Any) -> Any:
        """Return `total` and `used` in bytes."""
        newer = Memory2(version=ctypes.sizeof(Memory2) | 2 << 24)
        return self.fill("nvmlDeviceGetMemoryInfo_v2", device, newer) or self.fill(
            "nvmlDeviceGetMemoryInfo", device, Memory()
        )

    def slices(self, device: Any) -> List[Dict[str, Any]]:
        """Return the MIG slices of a device that is cut up."""
        slices = []
        for number in range(self.number("nvmlDeviceGetMaxMigDeviceCount", device) or 0):
            piece = ctypes.c_void_p()
            if self._call("nvmlDeviceGetMigDeviceHandleByIndex", device, ctypes.c_uint(number), ctypes.byref(piece)):
                memory = self.memory(piece)
                slices.append(
                    {
                        "uuid": self.text("nvmlDeviceGetUUID", piece),
                        "name": self.text("nvmlDeviceGetName", piece),
                        "memory_mib": memory.total >> 20 if memory else None,
                    }
                )
        return slices

    def processes(self, device: Any) -> Optional[List[Dict[str, Any]]]:
        """Return who computes on a device. A process whose memory the driver hides has None."""
        room = 512  # with more of them, NVML says that the room is too small
        count = ctypes.c_uint(room)
        table = (ComputeProcess * room)()
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


def nvml_inventory() -> Inventory:
    """Return the devices as NVML numbers them, which is by PCI address."""
    nvml = Nvml()
    try:
        cuda = nvml.number("nvmlSystemGetCudaDriverVersion_v2")
        software = {
            "driver": nvml.text("nvmlSystemGetDriverVersion"),
            "cuda": "%d.%d" % (cuda // 1000, cuda % 1000 // 10) if cuda else None,
        }
        count = nvml.number("nvmlDeviceGetCount_v2") or 0
        return [dict(_nvidia_device(nvml, index), **software) for index in range(count)]
    finally:
        nvml.close()


def _nvidia_device(nvml: Nvml, index: int) -> Dict[str, Any]:
    try:
        device = nvml.handle(index)
    except PermissionError:
        return {"index": index, "forbidden": True}
    except OSError as error:
        return {"index": index, "lost": str(error)}
    memory = nvml.memory(device)
    pci = nvml.fill("nvmlDeviceGetPciInfo_v3", device, Pci())
    limit = nvml.number("nvmlDeviceGetPowerManagementLimit", device)
    default = nvml.number("nvmlDeviceGetPowerManagementDefaultLimit", device)
    mig = nvml.mode("nvmlDeviceGetMigMode", device)
    persistence = nvml.number("nvmlDeviceGetPersistenceMode", device)
    return {
        "index": index,
        "uuid": nvml.text("nvmlDeviceGetUUID", device),
        "name": nvml.text("nvmlDeviceGetName", device),
        "memory_mib": memory.total >> 20 if memory else None,
        "memory_used_mib": memory.used >> 20 if memory else None,
        "pci": pci.bus_id.decode() if pci else None,
        "power_limit_w": limit / 1000 if limit is not None else None,
        "power_limit_default_w": default / 1000 if default is not None else None,
        "sm_clock_max_mhz": nvml.number("nvmlDeviceGetMaxClockInfo", device, ctypes.c_uint(Nvml.SM)),
        "mem_clock_max_mhz": nvml.number("nvmlDeviceGetMaxClockInfo", device, ctypes.c_uint(Nvml.MEMORY)),
        "ecc": nvml.mode("nvmlDeviceGetEccMode", device),
        "mig": mig,
        "persistence": None if persistence is None else bool(persistence),
        "processes": nvml.processes(device),
        **({"slices": nvml.slices(device)} if mig else {}),
    }
