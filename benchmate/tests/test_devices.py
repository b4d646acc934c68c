"""Devices: what is read of each vendor, what is absent, and which devices a program may see."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmate.devices import api, nvidia
from benchmate.devices.api import DeviceLostError, NotAvailableError, throttle_reasons
from benchmate.devices.detect import open_vendor, visible
from benchmate.devices.simulated import SimulatedVendor
from benchmate.devices.vendors import amd, habana, intel
from benchmate.devices.vendors.vendor import DeviceProcess, Reading, Sample, Survey


class FakeNvml:
    """The module pynvml of a machine with these GPUs; `broken` maps a function to the error that it raises."""

    NVML_TEMPERATURE_GPU, NVML_CLOCK_SM, NVML_CLOCK_MEM = 0, 1, 2
    NVML_MEMORY_ERROR_TYPE_CORRECTED, NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC = 0, 1, 0
    NVML_ERROR_UNINITIALIZED, NVML_ERROR_NOT_SUPPORTED, NVML_ERROR_NO_PERMISSION = 1, 3, 4
    NVML_ERROR_FUNCTION_NOT_FOUND, NVML_ERROR_GPU_IS_LOST, NVML_ERROR_UNKNOWN = 13, 15, 999
    NVML_ERROR_INVALID_ARGUMENT, NVML_ERROR_RESET_REQUIRED, nvmlMemory_v2 = 2, 16, 0x02000028
    nvmlEventTypeXidCriticalError = 8

    class NVMLError(Exception):
        def __init__(self, value: int) -> None:
            super().__init__(f"error {value}")
            self.value = value

    def __init__(self, count: int = 4, mig: dict[int, list[str]] | None = None, **broken: int) -> None:
        self.count, self.mig, self.broken = count, mig or {}, broken
        self.lost: set[int] = set()
        self.forbidden: set[int] = set()
        self.without_events: set[str] = set()
        self.removed: set[str] = set()
        self.asked: list[str] = []
        self.xids: list[tuple[str, int]] = []

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml"):
            raise AttributeError(name)

        if name in self.removed:
            raise AttributeError(name)

        def call(*arguments: Any, **named: Any) -> Any:
            self.asked.append(name)
            if name in self.broken:
                raise self.NVMLError(self.broken[name])
            return getattr(self, f"_{name}")(*arguments, **named)

        return call

    def _nvmlInit(self) -> None: ...
    def _nvmlShutdown(self) -> None: ...
    def _nvmlDeviceGetCount(self) -> int:
        return self.count

    def _nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        if index in self.lost | self.forbidden:
            raise self.NVMLError(15 if index in self.lost else 4)
        return f"GPU-{index:04x}"

    def _nvmlDeviceGetUUID(self, handle: str) -> str:
        return handle

    def _nvmlDeviceGetName(self, _: str) -> bytes:
        return b"NVIDIA H200"

    def _nvmlDeviceGetMigMode(self, handle: str) -> list[int]:
        return [int(int(handle[4:], 16) in self.mig), 0]

    def _nvmlDeviceGetMaxMigDeviceCount(self, _: str) -> int:
        return 7

    def _nvmlDeviceGetMigDeviceHandleByIndex(self, handle: str, number: int) -> str:
        slices = self.mig[int(handle[4:], 16)]
        if number >= len(slices):
            raise self.NVMLError(6)
        return slices[number]

    def _nvmlDeviceGetGpuInstanceId(self, _: str) -> int:
        return 7

    def _nvmlDeviceGetComputeInstanceId(self, _: str) -> int:
        return 0

    def _nvmlEventSetCreate(self) -> str:
        return "events"

    def _nvmlDeviceRegisterEvents(self, handle: str, *_: Any) -> None:
        if handle in self.without_events:
            raise self.NVMLError(3)

    def _nvmlEventSetWait_v2(self, *_: Any) -> Any:
        if not self.xids:
            raise self.NVMLError(10)
        device, number = self.xids.pop(0)
        return SimpleNamespace(device=device, eventData=number)

    def _nvmlDeviceGetMemoryInfo(self, _: str, version: int | None = None) -> Any:
        """The first version counts as used what the driver keeps for itself."""
        if version and "nvmlDeviceGetMemoryInfo_v2" in self.broken:
            raise self.NVMLError(self.broken["nvmlDeviceGetMemoryInfo_v2"])
        return SimpleNamespace(used=(10 << 30) + (0 if version else 600 << 20), total=141 * 10**9)

    def _nvmlDeviceGetUtilizationRates(self, _: str) -> Any:
        return SimpleNamespace(gpu=97, memory=40)

    def _nvmlDeviceGetPowerUsage(self, _: str) -> int:
        return 645_500

    def _nvmlDeviceGetTotalEnergyConsumption(self, _: str) -> int:
        return 1_234_567

    def _nvmlDeviceGetCurrentClocksEventReasons(self, _: str) -> int:
        return 0x4 | 0x40

    _nvmlDeviceGetCurrentClocksThrottleReasons = _nvmlDeviceGetCurrentClocksEventReasons

    def _nvmlDeviceGetClockInfo(self, _: str, domain: int) -> int:
        return {1: 1755, 2: 2619}[domain]

    def _nvmlDeviceGetTemperature(self, _: str, __: int) -> int:
        return 61

    def _nvmlDeviceGetTotalEccErrors(self, _: str, kind: int, __: int) -> int:
        return 3 - kind

    def _nvmlDeviceGetComputeRunningProcesses(self, _: str) -> list[Any]:
        return [SimpleNamespace(pid=7, usedGpuMemory=1 << 30), SimpleNamespace(pid=8, usedGpuMemory=None)]


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Any:
    def install(*args: Any, **more: Any) -> FakeNvml:
        fake = FakeNvml(*args, **more)
        monkeypatch.setattr(nvidia, "pynvml_module", lambda: fake)
        return fake

    return install


# ------------------------------------------------------------------------------------------ NVIDIA


def test_a_gpu_is_read_in_our_units(nvml: Any) -> None:
    nvml()
    device = nvidia.NvidiaVendor().devices[1]
    assert (device.index, device.uuid, device.name) == (1, "GPU-0001", "NVIDIA H200")
    assert device.sample() == Sample(
        memory_used_mib=10240.0,
        memory_total_mib=141 * 10**9 / 2**20,
        load=0.97,
        power_w=645.5,
        sm_clock_mhz=1755,
        mem_clock_mhz=2619,
        throttle=("sw_power_cap", "hw_thermal"),
        energy_j=1234.567,
    )
    assert device.survey() == Survey(
        temperature_c=61,
        ecc={"corrected": 3, "uncorrected": 2},
        processes=(DeviceProcess(pid=7, memory_mib=1024.0), DeviceProcess(pid=8, memory_mib=None)),
    )


def test_what_a_gpu_does_not_tell_is_absent_and_not_asked_again(nvml: Any) -> None:
    fake = nvml(nvmlDeviceGetPowerUsage=3, nvmlDeviceGetUtilizationRates=3)
    device = nvidia.NvidiaVendor().devices[0]
    for _ in range(2):
        sample = device.sample()
    assert (sample.power_w, sample.load, sample.memory_used_mib) == (None, None, 10240.0)
    assert set(device.absent) == {"power", "load"}
    assert fake.asked.count("nvmlDeviceGetPowerUsage") == 1


def test_a_gpu_that_falls_off_the_bus_is_lost(nvml: Any) -> None:
    fake = nvml()
    device = nvidia.NvidiaVendor().devices[0]
    fake.broken["nvmlDeviceGetMemoryInfo"] = 15
    with pytest.raises(DeviceLostError, match="error 15"):
        device.sample()


def test_a_gpu_that_is_lost_from_the_start_is_one_line_and_the_others_keep_their_numbers(nvml: Any) -> None:
    fake = nvml(3)
    fake.lost = {1}
    vendor, trouble = open_vendor("cuda", {})
    assert [device.index for device in vendor.devices] == [0, 2]
    assert trouble == "device 1 cannot be read: error 15"


def test_the_drivers_errors_go_to_the_device_that_had_them(nvml: Any) -> None:
    fake = nvml()
    first, second = nvidia.NvidiaVendor().devices[:2]
    fake.xids = [("GPU-0001", 79), ("GPU-0001", 31)]
    assert first.survey().xid == ()
    assert second.survey().xid == (79, 31)
    assert second.survey().xid == ()


def test_a_gpu_whose_driver_tells_no_errors_does_not_silence_the_others(nvml: Any) -> None:
    # A slice of a vGPU, say.
    fake = nvml()
    fake.without_events = {"GPU-0001"}
    first, second, third = nvidia.NvidiaVendor().devices[:3]
    fake.xids = [("GPU-0000", 79), ("GPU-0002", 48)]
    assert [device.survey().xid for device in (first, second, third)] == [(79,), (), (48,)]
    assert second.absent == {"xid": "error 3"}


def test_a_gpu_that_a_control_group_forbids_is_not_lost(nvml: Any) -> None:
    fake = nvml(3)
    fake.forbidden = {1}
    vendor, trouble = open_vendor("cuda", {})
    assert ([device.index for device in vendor.devices], trouble) == ([0, 2], "")


def test_one_unknown_error_is_a_missing_reading_and_nothing_else_for_a_while_is_a_lost_gpu(nvml: Any) -> None:
    fake = nvml()
    device = nvidia.NvidiaVendor().devices[0]
    fake.broken["nvmlDeviceGetUtilizationRates"] = 999
    for _ in range(100):
        sample = device.sample()
    assert (sample.load, sample.power_w, device.absent) == (None, 645.5, {})
    fake.broken = {name.removeprefix("_"): 999 for name in dir(FakeNvml) if name.startswith("_nvml")}
    with pytest.raises(DeviceLostError, match="error 999"):
        for _ in range(4):
            device.sample()


def test_an_older_driver_is_asked_by_the_older_functions(nvml: Any) -> None:
    nvml(nvmlDeviceGetCurrentClocksEventReasons=13, nvmlDeviceGetMemoryInfo_v2=13)
    sample = nvidia.NvidiaVendor().devices[0].sample()
    assert (sample.throttle, sample.memory_used_mib) == (("sw_power_cap", "hw_thermal"), 10240.0 + 600)


def test_reasons_of_throttling_are_read_without_the_function_that_cuda_14_removes(nvml: Any) -> None:
    fake = nvml()
    fake.removed = {"nvmlDeviceGetCurrentClocksThrottleReasons"}
    assert nvidia.NvidiaVendor().devices[0].sample().throttle == ("sw_power_cap", "hw_thermal")


def test_a_driver_that_is_not_loaded_is_one_line(nvml: Any) -> None:
    nvml(nvmlInit=9)
    vendor, trouble = open_vendor("cuda", {})
    assert (len(vendor.devices), trouble) == (0, "devices cannot be read: nvidia: error 9")


def test_throttle_reasons_without_a_name_are_told_as_a_number() -> None:
    assert throttle_reasons(0) == ()
    assert throttle_reasons(0x8 | 0x10000) == ("hw_slowdown", "0x10000")


# ------------------------------------------------------------------------------------------ visible devices


@pytest.mark.parametrize(
    ("value", "right"),
    [
        (None, [0, 1, 2, 3]),
        ("1,3", [1, 3]),
        ("GPU-0002", [2]),
        ("GPU-0003,GPU-0001", [3, 1]),
        ("", []),
        ("0, 2", [0, 2]),
        ("2,-1,1", [2]),
        ("-1", []),
        ("1,9,2", [1]),
        ("1,,2", [1]),
        ("1,1", [1]),
        ("all", [0, 1, 2, 3]),
        ("GPU-ffff", []),
        ("two", []),
    ],
)
def test_a_program_sees_the_devices_that_the_variable_names(nvml: Any, value: str | None, right: list[int]) -> None:
    nvml()
    env = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    assert [device.index for device in visible(nvidia.NvidiaVendor().devices, env, "cuda")] == right


@pytest.mark.parametrize("word", ["MIG-aaaa-2", "MIG-GPU-0001/7/0"])
def test_a_mig_uuid_is_the_slice(nvml: Any, word: str) -> None:
    nvml(mig={1: ["MIG-aaaa-2"]})
    (piece,) = visible(nvidia.NvidiaVendor().devices, {"CUDA_VISIBLE_DEVICES": word}, "cuda")
    sample = piece.sample()
    assert (piece.uuid, piece.index, sample.memory_used_mib) == ("MIG-aaaa-2", 1, 10240.0)
    assert (sample.power_w, sample.load, sample.energy_j) == (None, None, None)
    assert "only its GPU" in piece.absent["power"]


def test_the_inner_variable_counts_from_what_the_outer_one_left(nvml: Any) -> None:
    nvml()
    env = {"ROCR_VISIBLE_DEVICES": "1,3", "HIP_VISIBLE_DEVICES": "1"}
    assert [device.index for device in visible(nvidia.NvidiaVendor().devices, env, "rocm")] == [3]


def test_a_level_zero_selector_is_a_list_of_numbers(nvml: Any) -> None:
    nvml()
    env = {"ONEAPI_DEVICE_SELECTOR": "level_zero:0,2"}
    assert [device.index for device in visible(nvidia.NvidiaVendor().devices, env, "xpu")] == [0, 2]


# ------------------------------------------------------------------------------------------ command lines


def put_hl_smi(folder: Path, row: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tool of Gaudi's that prints a table of one row, the only program on the PATH."""
    tool = folder / "hl-smi"
    tool.write_text(f"#!/bin/sh\necho '{row}'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def read(reading: Reading) -> tuple[int, str, str, Sample, Survey]:
    """A device as it is read from a tool."""
    (device,) = api.CommandVendor("any", lambda: [reading]).devices
    return device.index, device.uuid, device.name, device.sample(), device.survey()


def test_gaudi_is_read_from_the_table_of_hl_smi(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    put_hl_smi(tmp_path, "0, 01P0-HL2080A0-15, HL-225, 32768, 98304, 87, 412, 55", monkeypatch)
    (reading,) = habana.read_hl_smi()
    sample = Sample(memory_used_mib=32768, memory_total_mib=98304, load=0.87, power_w=412)
    assert read(reading) == (0, "01P0-HL2080A0-15", "HL-225", sample, Survey(temperature_c=55))


def test_intel_is_read_from_the_table_of_xpu_smi() -> None:
    table = (
        "Timestamp, DeviceId, GPU Utilization (%), GPU Power (W), GPU Frequency (MHz), "
        "GPU Core Temperature (Celsius Degree), GPU Energy Consumed (J), GPU Memory Used (MiB)\n"
        "06:14:46.000,    1, 98.50, 301.25, 1550, 54.00, 9021.50, 1024.00\n"
        "06:14:46.000,    2, N/A, 110.00, 0,  , N/A, 26.00\n"
    )
    first, second = intel.parse_xpu_smi_readings(
        table, {1: {"uuid": "u", "device_name": "Max 1550", "memory_physical_size_byte": "1048576"}}
    )
    sample = Sample(
        memory_used_mib=1024, memory_total_mib=1, load=0.985, power_w=301.25, sm_clock_mhz=1550, energy_j=9021.5
    )
    assert read(first) == (1, "u", "Max 1550", sample, Survey(temperature_c=54))
    assert (second.sample.load, second.sample.energy_j, second.survey.temperature_c) == (None, None, None)


def test_amd_is_read_from_amd_smi() -> None:
    said = {
        "gpu": 0,
        "usage": {"gfx_activity": {"value": 64, "unit": "%"}},
        "power": {"socket_power": {"value": 512, "unit": "W"}, "throttle_status": "UNTHROTTLED"},
        "clock": {"gfx_0": {"clk": {"value": 2100, "unit": "MHz"}}, "mem_0": {"clk": {"value": 1300, "unit": "MHz"}}},
        "temperature": {"hotspot": {"value": 48, "unit": "C"}},
        "ecc": {"total_correctable_count": 1, "total_uncorrectable_count": 0},
        "mem_usage": {"total_vram": {"value": 196592, "unit": "MB"}, "used_vram": {"value": 283, "unit": "MB"}},
        "energy": {"total_energy_consumption": {"value": 900.5, "unit": "J"}},
    }
    *_, sample, survey = read(amd.parse_amd_smi(said, {"uuid": "88ff", "name": "MI300X"}))
    assert sample == Sample(
        memory_used_mib=283,
        memory_total_mib=196592,
        load=0.64,
        power_w=512,
        sm_clock_mhz=2100,
        mem_clock_mhz=1300,
        throttle=(),
        energy_j=900.5,
    )
    assert survey == Survey(temperature_c=48, ecc={"corrected": 1, "uncorrected": 0})


def test_amd_is_read_from_rocm_smi_too() -> None:
    said = {
        "Unique ID": "0xabc",
        "Card Series": "MI250",
        "VRAM Total Memory (B)": str(64 << 30),
        "VRAM Total Used Memory (B)": str(1 << 30),
        "GPU use (%)": "12",
        "Average Graphics Package Power (W)": "95.0",
        "Temperature (Sensor junction) (C)": "40.0",
    }
    sample = Sample(memory_used_mib=1024, memory_total_mib=65536, load=0.12, power_w=95)
    assert read(amd.parse_rocm_smi(2, said)) == (2, "0xabc", "MI250", sample, Survey(temperature_c=40))


def test_a_tool_is_asked_once_a_second_for_all_devices() -> None:
    now, asked = [0.0], []

    def rows() -> list[Reading]:
        asked.append(now[0])
        return [Reading(index, str(index), "x", Sample(load=len(asked) / 10)) for index in range(2)]

    vendor = api.CommandVendor("hpu", rows, clock=lambda: now[0])
    assert [device.sample().load for device in vendor.devices] == [0.1, 0.1]
    now[0] = 1.0
    assert [device.sample().load for device in vendor.devices] == [0.2, 0.2]
    assert len(asked) == 2


def test_a_device_that_the_tool_no_longer_lists_is_lost() -> None:
    now = [0.0]
    row = Reading(0, "0", "x", Sample(load=0.5))
    vendor = api.CommandVendor("hpu", lambda: [row] if now[0] < 1 else [], clock=lambda: now[0])
    now[0] = 2.0
    with pytest.raises(DeviceLostError, match="does not list it"):
        vendor.devices[0].sample()


@pytest.mark.parametrize(("arch", "missing"), [("rocm", "amd-smi"), ("xpu", "xpu-smi"), ("hpu", "hl-smi")])
def test_a_missing_tool_is_one_line(arch: str, missing: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    vendor, trouble = open_vendor(arch, {})
    assert len(vendor.devices) == 0
    assert f"{missing}: there is no such command" in trouble


def test_a_tool_of_the_vendor_is_found_on_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    put_hl_smi(tmp_path, "0, u0, HL-225, 1, 2, 50, 100, 40", monkeypatch)
    vendor, trouble = open_vendor("hpu", {})
    assert (trouble, [device.sample().load for device in vendor.devices]) == ("", [0.5])


# ------------------------------------------------------------------------------------------ simulated


def simulated(tmp_path: Path, *readings: dict[str, Any], **more: Any) -> tuple[Any, list[float]]:
    file = tmp_path / "devices.json"
    file.write_text(json.dumps({"devices": [{"uuid": "SIM-0", **more, "readings": list(readings)}]}))
    now = [100.0]
    return SimulatedVendor(str(file), clock=lambda: now[0]).devices[0], now


def test_a_scripted_reading_holds_from_its_time_on_and_keeps_what_it_does_not_name(tmp_path: Path) -> None:
    device, now = simulated(
        tmp_path, {"t": 0, "load": 0.1, "power_W": 100, "memory_MiB": [1, 8]}, {"t": 5, "load": 0.9, "throttle": 8}
    )
    assert (device.sample().load, device.sample().throttle) == (0.1, None)
    now[0] = 105.0
    sample = device.sample()
    assert (sample.load, sample.memory_used_mib, sample.throttle) == (0.9, 1, ("hw_slowdown",))


def test_simulated_energy_is_the_integral_of_power(tmp_path: Path) -> None:
    device, now = simulated(tmp_path, {"t": 0, "power_W": 100}, {"t": 5, "power_W": 300})
    now[0] = 107.0
    assert device.sample().energy_j == pytest.approx(100 * 5 + 300 * 2)


def test_simulated_power_is_the_mean_of_a_second_and_energy_that_of_a_counter_in_jumps(tmp_path: Path) -> None:
    device, now = simulated(tmp_path, {"t": 0, "power_W": 100}, {"t": 5, "power_W": 300})
    now[0] = 105.5
    assert device.sample().power_w == pytest.approx(200)
    now[0] = 107.09
    assert device.sample()[3::4] == (pytest.approx(300), pytest.approx(100 * 5 + 300 * 2))
    exact, now = simulated(tmp_path, {"t": 0, "power_W": 100}, {"t": 5, "power_W": 300}, power_average_s=0)
    now[0] = 105.5
    assert exact.sample().power_w == 300


def test_the_reserve_of_a_simulated_driver_counts_as_used(tmp_path: Path) -> None:
    device, _ = simulated(tmp_path, {"t": 0, "memory_MiB": [512, 81920], "reserve_MiB": 600})
    assert device.sample().memory_used_mib == 1112


def test_idle_simulated_devices_are_beside_busy_ones(tmp_path: Path) -> None:
    file = tmp_path / "devices.json"
    busy = {"uuid": "SIM", "readings": [{"load": 0.9, "power_W": 500}]}
    file.write_text(json.dumps({"count": 3, "busy": 1, "devices": [busy]}))
    assert [device.sample().load for device in SimulatedVendor(str(file)).devices] == [0.9, 0.0, 0.0]


def test_a_reading_of_a_simulated_device_can_fail_once_or_be_unsupported(tmp_path: Path) -> None:
    device, now = simulated(
        tmp_path,
        {"t": 0, "load": 0.5, "power_W": 100, "xid": [13], "temperature": 50},
        {"t": 1, "unanswered": ["load", "temperature"]},
        not_supported=["power", "xid"],
    )
    assert (device.sample().load, device.sample().power_w, device.survey().xid) == (0.5, None, ())
    assert device.absent["power"] == "Not Supported"
    now[0] = 101.0
    assert [device.sample().load for _ in range(2)] == [None, 0.5]
    assert [device.survey().temperature_c for _ in range(2)] == [None, 50]
    with pytest.raises(NotAvailableError, match="no reading 'watts'"):
        simulated(tmp_path, {"t": 0}, not_supported=["watts"])


def test_a_call_of_a_simulated_device_takes_its_time(tmp_path: Path) -> None:
    file = tmp_path / "devices.json"
    file.write_text(json.dumps({"devices": [{"readings": [{"t": 0, "load": 1, "call_ms": 2000}]}]}))
    slept: list[float] = []
    (device,) = SimulatedVendor(str(file), sleep=slept.append).devices
    device.sample()
    device.survey()
    assert slept == [2, 2]


def test_the_processes_of_a_simulated_device_are_those_that_hold_it_and_others(tmp_path: Path) -> None:
    uuid = f"SIM-{tmp_path.name}"
    device, _ = simulated(tmp_path, {"t": 0, "processes": [{"pid": "held", "memory_MiB": 64}, {"pid": 1}]}, uuid=uuid)
    env = {"MILABENCH_DEVICES_HELD": f"other,{uuid}"}
    holder = subprocess.Popen([sys.executable, "-c", "input()"], env=env, stdin=subprocess.PIPE)
    try:
        seen = device.survey().processes
    finally:
        holder.kill()
        holder.communicate()
    assert seen == (DeviceProcess(holder.pid, 64), DeviceProcess(1, None))


def test_a_simulated_device_can_fail(tmp_path: Path) -> None:
    device, now = simulated(tmp_path, {"t": 0, "load": 1}, {"t": 3, "lost": "fell off the bus"})
    device.sample()
    now[0] = 103.5
    with pytest.raises(DeviceLostError, match="fell off the bus"):
        device.survey()


def test_an_xid_of_the_script_happens_once(tmp_path: Path) -> None:
    device, now = simulated(tmp_path, {"t": 0}, {"t": 1, "xid": [79]}, {"t": 2, "load": 1})
    assert device.survey().xid == ()
    now[0] = 104.0
    assert device.survey().xid == (79,)
    assert device.survey().xid == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not a description"),
        ("[]", "not a description"),
        ("{}", "no 'devices' in it"),
        ('{"devices": [{"readings": [{"lod": 1}]}]}', "unknown reading 'lod'"),
    ],
)
def test_a_bad_script_says_what_is_wrong_with_it(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "devices.json"
    file.write_text(text)
    with pytest.raises(NotAvailableError, match=said):
        SimulatedVendor(str(file))


def test_the_variable_puts_simulated_devices_in_the_place_of_real_ones(tmp_path: Path) -> None:
    file = tmp_path / "devices.json"
    file.write_text('{"count": 3, "devices": [{"uuid": "SIM"}]}')
    vendor, trouble = open_vendor("cpu", {"MILABENCH_SIMULATED_DEVICES": str(file)})
    assert ([device.uuid for device in vendor.devices], trouble) == (["SIM-0", "SIM-1", "SIM-2"], "")


def test_a_machine_without_devices_has_nothing_to_tell() -> None:
    vendor, trouble = open_vendor("cpu", {})
    assert (len(vendor.devices), trouble) == (0, "")
