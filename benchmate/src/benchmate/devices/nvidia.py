"""NVIDIA's devices through NVML. The only module that imports pynvml."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from benchmate.devices.api import MIB, Device, DeviceLostError, NotAvailableError, SensorBackend, throttle_reasons
from benchmate.devices.vendors.vendor import DeviceProcess, Sample, Survey

MAX_UNKNOWN = 20
"""Unknown errors in a row, with no answer between them, of a device that is lost: about three samples."""


def pynvml_module() -> Any:
    """Return the module pynvml. Where tests put another in its place."""
    import pynvml

    return pynvml


class NvidiaVendor(SensorBackend):
    """All GPUs that NVML knows, by PCI address. Slices (MIG) with their parent.

    Raise NotAvailableError without the library, the driver, or the permission to ask it.
    """

    arch = "cuda"
    period_s = 0.1

    def __init__(self) -> None:
        try:
            self._nvml = nvml = pynvml_module()
        except ImportError as error:
            raise NotAvailableError(f"nvidia: pynvml cannot be imported: {error}. Install nvidia-ml-py") from error
        try:
            nvml.nvmlInit()
            count = nvml.nvmlDeviceGetCount()
        except nvml.NVMLError as error:
            raise NotAvailableError(f"nvidia: {error}") from error
        self.lost: dict[int, str] = {}
        devices: list[NvidiaDevice] = []
        for index in range(count):
            try:
                devices.append(NvidiaDevice(nvml, nvml.nvmlDeviceGetHandleByIndex(index), index))
            except nvml.NVMLError as error:
                # Counted although a control group forbids it: another job's.
                if error.value != nvml.NVML_ERROR_NO_PERMISSION:
                    self.lost[index] = str(error)
        self.devices: tuple[NvidiaDevice, ...] = tuple(devices)
        self._events = self._watch_xids()

    def _watch_xids(self) -> Any | None:
        """Return a set of events in which the driver's errors (Xid) turn up. None where it does not tell them."""
        nvml, events = self._nvml, None
        for device in self.devices:
            try:
                if events is None:
                    events = nvml.nvmlEventSetCreate()
                nvml.nvmlDeviceRegisterEvents(device.handle, nvml.nvmlEventTypeXidCriticalError, events)
                device.xids = self._gather_xids
            except nvml.NVMLError as error:
                device.absent["xid"] = str(error)
        return events

    def _gather_xids(self) -> None:
        """Move events to their devices. Does not wait."""
        nvml = self._nvml
        while True:
            try:
                event = nvml.nvmlEventSetWait_v2(self._events, 0)
                uuid = _text(nvml.nvmlDeviceGetUUID(event.device))
            except nvml.NVMLError:  # a timeout: nothing more
                return
            for device in self.devices:
                if device.uuid == uuid:
                    device.seen_xids.append(int(event.eventData))

    def close(self) -> None:
        """Let go of the driver."""
        self._nvml.nvmlShutdown()


class NvidiaDevice(Device):
    """A GPU, or a MIG slice."""

    def __init__(self, nvml: Any, handle: Any, index: int, *, parent: NvidiaDevice | None = None) -> None:
        self._nvml = nvml
        self.handle = handle
        self.index = index
        self.absent: dict[str, str] = {}
        self.uuid = _text(nvml.nvmlDeviceGetUUID(handle))
        self.name = _text(self._ask("name", nvml.nvmlDeviceGetName) or "")
        self._get_memory = self._first_to_answer(
            partial(nvml.nvmlDeviceGetMemoryInfo, version=nvml.nvmlMemory_v2), nvml.nvmlDeviceGetMemoryInfo
        )
        self._get_throttle = self._first_to_answer(
            nvml.nvmlDeviceGetCurrentClocksEventReasons,
            getattr(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", nvml.nvmlDeviceGetCurrentClocksEventReasons),
        )
        self._unknown = 0
        self.seen_xids: list[int] = []
        self.xids: Callable[[], None] = lambda: None
        if parent is None:
            self.slices = self._cut()
        else:
            self.aliases = self._old_names(parent)
            for reading in ("power", "energy", "clocks", "throttle", "load", "temperature", "ecc"):
                self.absent[reading] = "of a MIG slice only its GPU can tell it"

    def _first_to_answer(self, newer: Callable[..., Any], older: Callable[..., Any]) -> Callable[..., Any]:
        """Return the newer of two functions if this driver has it for this device, else the older.

        The older memory counts the driver's own part as used. The older reasons end with CUDA 14.
        """
        try:
            newer(self.handle)
        except self._nvml.NVMLError:
            return older
        return newer

    def _cut(self) -> list[NvidiaDevice]:
        nvml = self._nvml
        slices = []
        try:
            if not nvml.nvmlDeviceGetMigMode(self.handle)[0]:
                return []
            most = nvml.nvmlDeviceGetMaxMigDeviceCount(self.handle)
        except nvml.NVMLError:
            return []
        for number in range(most):
            try:
                handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(self.handle, number)
            except nvml.NVMLError:
                continue
            slices.append(NvidiaDevice(nvml, handle, self.index, parent=self))
        return slices

    def _old_names(self, parent: NvidiaDevice) -> tuple[str, ...]:
        """Return `MIG-GPU-<uuid>/<gpu instance>/<compute instance>`, as drivers before R470 had it."""
        nvml = self._nvml
        try:
            instance = nvml.nvmlDeviceGetGpuInstanceId(self.handle)
            return (f"MIG-{parent.uuid}/{instance}/{nvml.nvmlDeviceGetComputeInstanceId(self.handle)}",)
        except nvml.NVMLError:
            return ()

    def sample(self) -> Sample:
        nvml = self._nvml
        memory = self._ask("memory", self._get_memory)
        load = self._ask("load", nvml.nvmlDeviceGetUtilizationRates)
        power_mw = self._ask("power", nvml.nvmlDeviceGetPowerUsage)
        energy_mj = self._ask("energy", nvml.nvmlDeviceGetTotalEnergyConsumption)
        mask = self._ask("throttle", self._get_throttle)
        return Sample(
            memory_used_mib=None if memory is None else memory.used / MIB,
            memory_total_mib=None if memory is None else memory.total / MIB,
            load=None if load is None else load.gpu / 100,
            power_w=None if power_mw is None else power_mw / 1000,
            sm_clock_mhz=self._ask("clocks", nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM),
            mem_clock_mhz=self._ask("clocks", nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_MEM),
            throttle=None if mask is None else throttle_reasons(mask),
            energy_j=None if energy_mj is None else energy_mj / 1000,
        )

    def survey(self) -> Survey:
        nvml = self._nvml
        self.xids()
        xid, self.seen_xids = tuple(self.seen_xids), []
        running = self._ask("processes", nvml.nvmlDeviceGetComputeRunningProcesses)
        processes = None
        if running is not None:
            sizes = ((process.pid, process.usedGpuMemory) for process in running)
            processes = tuple(DeviceProcess(pid, None if size is None else size / MIB) for pid, size in sizes)
        return Survey(
            temperature_c=self._ask("temperature", nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU),
            ecc=self._ecc(),
            xid=xid,
            processes=processes,
        )

    def _ecc(self) -> dict[str, int] | None:
        nvml = self._nvml
        counts: dict[str, Any] = {}
        for name in ("corrected", "uncorrected"):
            kind = getattr(nvml, f"NVML_MEMORY_ERROR_TYPE_{name.upper()}")
            counts[name] = self._ask("ecc", nvml.nvmlDeviceGetTotalEccErrors, kind, nvml.NVML_VOLATILE_ECC)
        return None if None in counts.values() else counts

    def _ask(self, reading: str, function: Callable[..., Any], *more: Any) -> Any | None:
        """Return the answer. None, and never asked again, for readings that this device cannot or may not give.

        A single unknown error is an answer that is missing. With nothing else for a while the device is lost.
        """
        if reading in self.absent:
            return None
        nvml = self._nvml
        lost = (nvml.NVML_ERROR_GPU_IS_LOST, nvml.NVML_ERROR_UNINITIALIZED, nvml.NVML_ERROR_RESET_REQUIRED)
        never = (
            *(nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_NO_PERMISSION, nvml.NVML_ERROR_FUNCTION_NOT_FOUND),
            nvml.NVML_ERROR_INVALID_ARGUMENT,
        )
        try:
            answer = function(self.handle, *more)
        except nvml.NVMLError as error:
            self._unknown += error.value == nvml.NVML_ERROR_UNKNOWN
            if error.value in lost or self._unknown >= MAX_UNKNOWN:
                raise DeviceLostError(str(error)) from error
            if error.value in never:
                self.absent[reading] = str(error)
            return None
        self._unknown = 0
        return answer


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
