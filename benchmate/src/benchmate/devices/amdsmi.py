"""AMD's devices through the Python module `amdsmi` that ROCm brings: ten readings a second where the command line gives one."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from benchmate.devices.api import MIB, CommandVendor, NotAvailableError
from benchmate.devices.vendors.amd import mapping, parse_amd_smi
from benchmate.devices.vendors.command import number, ratio
from benchmate.devices.vendors.vendor import DeviceProcess, ReadAll, Reading

SURVEY_EVERY_S = 1.0

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


def open_amdsmi() -> CommandVendor:
    """Return AMD's devices. Raise NotAvailableError."""
    read_all, close = module_reader()
    return CommandVendor("rocm", read_all, period_s=0.1, close=close)


def module_reader(clock: Callable[[], float] = time.monotonic) -> tuple[ReadAll, Callable[[], None]]:
    """Return the reader of all devices, and the function that releases the library.

    Raise NotAvailableError without the module or the driver.
    """
    try:
        smi = amdsmi_module()
    except Exception as error:  # without its shared library the module raises KeyError, OSError or one of its own
        raise NotAvailableError(f"amdsmi: cannot be imported: {type(error).__name__}: {error}") from error
    try:
        smi.amdsmi_init()
        devices = [_Device(smi, index, handle) for index, handle in enumerate(smi.amdsmi_get_processor_handles())]
    except smi.AmdSmiException as error:
        raise NotAvailableError(f"amdsmi: {error}") from error
    return lambda: [
        reading for device in devices if (reading := device.reading(clock())) is not None
    ], smi.amdsmi_shut_down


class _Device:
    """A GPU behind its handle: the module's answers in the words of `amd-smi metric`, so that the same parser reads both."""

    def __init__(self, smi: Any, index: int, handle: Any) -> None:
        self._smi, self._index, self._handle = smi, index, handle
        self._static = {
            "uuid": self._ask(smi.amdsmi_get_gpu_device_uuid),
            "name": mapping(self._ask(smi.amdsmi_get_gpu_asic_info)).get("market_name"),
        }
        self._surveyed_s: float | None = None
        self._slow: dict[str, Any] = {}
        self._processes: tuple[DeviceProcess, ...] | None = None
        self._residencies: dict[str, float] = {}

    def reading(self, now_s: float) -> Reading | None:
        """Return its present reading, temperature, errors and processes at most a second old. None when it does not answer."""
        smi = self._smi
        vram = self._ask(smi.amdsmi_get_gpu_vram_usage)
        usage = self._ask(smi.amdsmi_get_gpu_activity)
        power = self._ask(smi.amdsmi_get_power_info)
        if vram is None and usage is None and power is None:
            return None
        if self._surveyed_s is None or now_s - self._surveyed_s >= SURVEY_EVERY_S * 0.9:
            self._surveyed_s = now_s
            self._survey()
        metrics = {
            "gpu": self._index,
            "mem_usage": {"used_vram": mapping(vram).get("vram_used"), "total_vram": mapping(vram).get("vram_total")},
            "usage": mapping(usage),
            "power": {"socket_power": _socket_power(mapping(power))},
            "clock": {"gfx_0": self._clock(smi.AmdSmiClkType.GFX), "mem_0": self._clock(smi.AmdSmiClkType.MEM)},
            "energy": {"total_energy_consumption": _joules(mapping(self._ask(smi.amdsmi_get_energy_count)))},
            **self._slow,
        }
        reading = parse_amd_smi(metrics, self._static)
        return reading._replace(
            sample=reading.sample._replace(throttle=self._throttle()),
            survey=reading.survey._replace(processes=self._processes),
        )

    def _survey(self) -> None:
        smi = self._smi
        ecc = mapping(self._ask(smi.amdsmi_get_gpu_total_ecc_count))
        kinds, current = smi.AmdSmiTemperatureType, smi.AmdSmiTemperatureMetric.CURRENT
        self._slow = {
            "temperature": {"hotspot": self._ask(smi.amdsmi_get_temp_metric, kinds.HOTSPOT, current)},
            "ecc": {
                "total_correctable_count": ecc.get("correctable_count"),
                "total_uncorrectable_count": ecc.get("uncorrectable_count"),
            },
        }
        running = self._ask(smi.amdsmi_get_gpu_process_list)
        self._processes = None if running is None else tuple(map(_process, filter(mapping, running)))

    def _clock(self, kind: Any) -> Mapping[str, Any]:
        answer = mapping(self._ask(self._smi.amdsmi_get_clock_info, kind))
        return {"clk": answer.get("clk", answer.get("cur_clk"))}

    def _throttle(self) -> tuple[str, ...] | None:
        """Return the reasons since the last look. None where the device does not tell them."""
        answer = mapping(self._ask(self._smi.amdsmi_get_gpu_metrics_info))
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
