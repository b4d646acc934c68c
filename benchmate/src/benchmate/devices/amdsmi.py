"""AMD's devices through the Python module `amdsmi` that ROCm brings: ten readings a second where the command line gives one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from benchmate.devices.api import MIB, Device, DeviceLostError, NotAvailableError, SensorBackend, absent_readings
from benchmate.devices.vendors.amd import mapping
from benchmate.devices.vendors.command import number, ratio
from benchmate.devices.vendors.vendor import DeviceProcess, Sample, Survey

# What a count of gpu_metrics stands for that grows while the clocks are held down.
RESIDENCIES = {
    "prochot_residency_acc": "hw_slowdown",
    "ppt_residency_acc": "sw_power_cap",
    "socket_thm_residency_acc": "hw_thermal",
    "vr_thm_residency_acc": "hw_thermal",
    "hbm_thm_residency_acc": "hw_thermal",
}
# The bits of `indep_throttle_status`, as the amdgpu driver numbers them: power and current, temperatures, the processor-hot pins.
THROTTLERS = ((range(32), "sw_power_cap"), (range(32, 46), "hw_thermal"), (range(46, 48), "hw_slowdown"))


def amdsmi_module() -> Any:
    """Return the module amdsmi. Where tests put another in its place."""
    import amdsmi

    return amdsmi


class AmdVendor(SensorBackend):
    """All GPUs that the module knows. Raise NotAvailableError without the module, the driver or a device."""

    arch = "rocm"
    period_s = 0.1

    def __init__(self) -> None:
        try:
            self._smi = smi = amdsmi_module()
        except Exception as error:  # without its shared library the module raises KeyError, OSError or one of its own
            raise NotAvailableError(f"amdsmi: cannot be imported: {type(error).__name__}: {error}") from error
        try:
            smi.amdsmi_init()
            handles = smi.amdsmi_get_processor_handles()
        except smi.AmdSmiException as error:
            raise NotAvailableError(f"amdsmi: {error}") from error
        self.lost: dict[int, str] = {}
        devices = []
        for index, handle in enumerate(handles):
            try:
                devices.append(AmdDevice(smi, index, handle))
            except DeviceLostError as error:
                self.lost[index] = str(error)
        self.devices = tuple(devices)
        if not devices:
            raise NotAvailableError("amdsmi: no device answers")

    def close(self) -> None:
        """Release the library."""
        self._smi.amdsmi_shut_down()


class AmdDevice(Device):
    """A GPU behind its handle."""

    def __init__(self, smi: Any, index: int, handle: Any) -> None:
        self._smi, self._handle, self.index = smi, handle, index
        self.uuid = str(self._ask(smi.amdsmi_get_gpu_device_uuid) or f"amd-{index}")
        self.name = str(self._asked_for(smi.amdsmi_get_gpu_asic_info).get("market_name") or "AMD")
        self._residencies: dict[str, float] = {}
        self.absent = absent_readings(self.sample())

    def sample(self) -> Sample:
        smi = self._smi
        vram = self._asked_for(smi.amdsmi_get_gpu_vram_usage)
        usage = self._asked_for(smi.amdsmi_get_gpu_activity)
        power = self._asked_for(smi.amdsmi_get_power_info)
        if not (vram or usage or power):
            raise DeviceLostError("amdsmi has no answer from it")
        return Sample(
            number(vram.get("vram_used")),
            number(vram.get("vram_total")),
            load=ratio(usage.get("gfx_activity"), 100),
            power_w=_socket_power(power),
            sm_clock_mhz=self._clock_mhz(smi.AmdSmiClkType.GFX),
            mem_clock_mhz=self._clock_mhz(smi.AmdSmiClkType.MEM),
            throttle=self._throttle(),
            energy_j=_joules(self._asked_for(smi.amdsmi_get_energy_count)),
        )

    def survey(self) -> Survey:
        smi = self._smi
        kinds, current = smi.AmdSmiTemperatureType, smi.AmdSmiTemperatureMetric.CURRENT
        ecc = self._asked_for(smi.amdsmi_get_gpu_total_ecc_count)
        counts = {name: number(ecc.get(f"{name[:-2]}able_count")) for name in ("corrected", "uncorrected")}
        running = self._ask(smi.amdsmi_get_gpu_process_list)
        return Survey(
            number(self._ask(smi.amdsmi_get_temp_metric, kinds.HOTSPOT, current)),
            {name: int(count) for name, count in counts.items() if count is not None} or None,
            processes=None if running is None else tuple(map(_process, filter(mapping, running))),
        )

    def _clock_mhz(self, kind: Any) -> int | None:
        answer = self._asked_for(self._smi.amdsmi_get_clock_info, kind)
        clock = number(answer.get("clk", answer.get("cur_clk")))
        return None if clock is None else round(clock)

    def _throttle(self) -> tuple[str, ...] | None:
        """Return the reasons since the last look. None where the device does not tell them."""
        answer = self._asked_for(self._smi.amdsmi_get_gpu_metrics_info)
        bits = number(answer.get("indep_throttle_status"))
        before, self._residencies = (
            self._residencies,
            {key: count for key in RESIDENCIES if (count := number(answer.get(key))) is not None},
        )
        if bits is None and not self._residencies:
            return None
        reasons = {name for positions, name in THROTTLERS for position in positions if int(bits or 0) >> position & 1}
        reasons |= {RESIDENCIES[key] for key, count in self._residencies.items() if count > before.get(key, count)}
        return tuple(sorted(reasons))

    def _ask(self, function: Callable[..., Any], *more: Any) -> Any | None:
        try:
            return function(self._handle, *more)
        except self._smi.AmdSmiException:  # not supported by this device, or not permitted
            return None

    def _asked_for(self, function: Callable[..., Any], *more: Any) -> Mapping[str, Any]:
        """Return the answer with several values. Empty where there is none."""
        return mapping(self._ask(function, *more))


def _socket_power(answer: Mapping[str, Any]) -> float | None:
    """Return watts: the field that all know since ROCm 7, else the present or the average power, whichever the model has."""
    watts = (number(answer.get(key)) for key in ("socket_power", "current_socket_power", "average_socket_power"))
    return next((value for value in watts if value is not None), None)


def _joules(answer: Mapping[str, Any]) -> float | None:
    """Return the counter times its resolution in microjoules. The counter was called `power` before ROCm 6.2."""
    ticks = number(answer.get("energy_accumulator", answer.get("power")))
    resolution = number(answer.get("counter_resolution"))
    return None if ticks is None or resolution is None else ticks * resolution / 1e6


def _process(answer: Mapping[str, Any]) -> DeviceProcess:
    return DeviceProcess(int(answer["pid"]), ratio(mapping(answer.get("memory_usage")).get("vram_mem"), MIB))
