"""AMD's devices through the module `amdsmi`, a fake one whose answers have the shapes of its documentation."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from benchmate.devices import amdsmi
from benchmate.devices.api import DeviceLostError
from benchmate.devices.detect import open_vendor
from benchmate.devices.vendors.vendor import DeviceProcess, Sample, Survey


class SmiError(Exception):
    pass


class Smi:
    """The module: two GPUs, the second of which tells less. Handles are their numbers."""

    AmdSmiException = SmiError
    AmdSmiClkType = SimpleNamespace(GFX="gfx", MEM="mem")
    AmdSmiTemperatureType = SimpleNamespace(HOTSPOT="hotspot")
    AmdSmiTemperatureMetric = SimpleNamespace(CURRENT="current")

    def __init__(self) -> None:
        self.is_open = False
        self.lost: set[int] = set()
        self.asked: list[str] = []
        self.metrics: dict[str, Any] = {"throttle_status": "N/A", "prochot_residency_acc": 10, "ppt_residency_acc": 500}

    def amdsmi_init(self) -> None:
        self.is_open = True

    def amdsmi_shut_down(self) -> None:
        self.is_open = False

    def amdsmi_get_processor_handles(self) -> list[int]:
        return [0, 1]

    def __getattr__(self, name: str) -> Any:
        """Each query: its answer, or the error of a device that is gone or does not support it."""
        answers = {
            "amdsmi_get_gpu_device_uuid": ("88ff-0", "88ff-1"),
            "amdsmi_get_gpu_asic_info": ({"market_name": "MI300X"}, {"market_name": "MI210"}),
            "amdsmi_get_gpu_vram_usage": (
                {"vram_total": 196592, "vram_used": 283},
                {"vram_total": 65536, "vram_used": 10},
            ),
            "amdsmi_get_gpu_activity": ({"gfx_activity": 64, "umc_activity": 3, "mm_activity": "N/A"}, None),
            "amdsmi_get_power_info": (
                {"socket_power": 512, "current_socket_power": 512, "average_socket_power": "N/A"},
                {"current_socket_power": "N/A", "average_socket_power": 90},
            ),
            "amdsmi_get_energy_count": (
                {"energy_accumulator": 2_000_000, "counter_resolution": 15.3, "timestamp": 1},
                {"power": 1_000_000, "counter_resolution": 15.3, "timestamp": 1},
            ),
            "amdsmi_get_gpu_metrics_info": (self.metrics, {"indep_throttle_status": 1 << 36 | 1}),
            "amdsmi_get_gpu_total_ecc_count": ({"correctable_count": 1, "uncorrectable_count": 0}, None),
            "amdsmi_get_gpu_process_list": (
                [{"name": "python", "pid": 7, "memory_usage": {"gtt_mem": 0, "cpu_mem": 0, "vram_mem": 3 << 20}}],
                [],
            ),
            "amdsmi_get_clock_info": (
                {"gfx": {"clk": 2100}, "mem": {"clk": 1300}},
                {"gfx": {"cur_clk": 1700}, "mem": None},
            ),
            "amdsmi_get_temp_metric": ({"hotspot": 48}, {"hotspot": 40}),
        }
        both = answers[name]

        def query(handle: int, *more: str) -> Any:
            self.asked.append(name)
            answer = both[handle]
            for key in more[:1]:
                answer = answer[key]
            if handle in self.lost or answer is None:
                raise SmiError("not supported")
            return answer

        return query


@pytest.fixture
def smi(monkeypatch: pytest.MonkeyPatch) -> Smi:
    module = Smi()
    monkeypatch.setattr(amdsmi, "amdsmi_module", lambda: module)
    return module


def test_what_the_module_says_is_read_like_what_the_command_says(smi: Smi) -> None:
    vendor, trouble = open_vendor("rocm", {})
    assert (trouble, vendor.arch, vendor.period_s) == ("", "rocm", 0.1)
    first, second = vendor.devices
    assert [(one.index, one.uuid, one.name) for one in (first, second)] == [
        (0, "88ff-0", "MI300X"),
        (1, "88ff-1", "MI210"),
    ]
    assert first.sample() == Sample(
        memory_used_mib=283,
        memory_total_mib=196592,
        load=0.64,
        power_w=512,
        sm_clock_mhz=2100,
        mem_clock_mhz=1300,
        throttle=(),
        energy_j=30.6,
    )
    assert first.survey() == Survey(
        temperature_c=48, ecc={"corrected": 1, "uncorrected": 0}, processes=(DeviceProcess(pid=7, memory_mib=3),)
    )
    vendor.close()
    assert not smi.is_open


def test_what_a_device_does_not_support_is_absent(smi: Smi) -> None:
    second = open_vendor("rocm", {})[0].devices[1]
    assert second.sample() == Sample(
        memory_used_mib=10,
        memory_total_mib=65536,
        power_w=90,
        sm_clock_mhz=1700,
        throttle=("hw_thermal", "sw_power_cap"),
        energy_j=15.3,
    )
    assert second.survey() == Survey(temperature_c=40, processes=())


def test_counts_that_grow_between_two_looks_are_throttling(smi: Smi) -> None:
    first = amdsmi.AmdVendor().devices[0]
    assert first.sample().throttle == ()
    smi.metrics["prochot_residency_acc"] += 1
    assert first.sample().throttle == ("hw_slowdown",)
    assert first.sample().throttle == ()


def test_slow_readings_are_asked_by_surveys_alone(smi: Smi) -> None:
    (first, _) = amdsmi.AmdVendor().devices
    smi.asked.clear()
    for _ in range(4):
        first.sample()
    first.survey()
    assert smi.asked.count("amdsmi_get_gpu_vram_usage") == 4
    for slow in ("process_list", "total_ecc_count"):
        assert smi.asked.count(f"amdsmi_get_gpu_{slow}") == 1


def test_a_device_that_answers_nothing_any_more_is_lost(smi: Smi) -> None:
    vendor = amdsmi.AmdVendor()
    smi.lost = {1}
    assert vendor.devices[0].sample().load == 0.64
    with pytest.raises(DeviceLostError):
        vendor.devices[1].sample()
    vendor, trouble = open_vendor("rocm", {})
    assert ([device.index for device in vendor.devices], trouble) == (
        [0],
        "device 1 cannot be read: amdsmi has no answer from it",
    )


@pytest.mark.parametrize("error", [ImportError("no module"), KeyError("ROCM_HOME"), OSError("libamd_smi.so")])
def test_without_the_module_the_command_is_asked(
    error: Exception, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    def door() -> Any:
        raise error

    monkeypatch.setattr(amdsmi, "amdsmi_module", door)
    monkeypatch.setenv("PATH", str(tmp_path))
    _, trouble = open_vendor("rocm", {})
    assert "amdsmi: cannot be imported" in trouble
    assert "amd-smi: there is no such command" in trouble
