"""What a device is to the instruments: what can be read of it, in which units, and how it says that it cannot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

MIB = 1 << 20

# NVML's bits of "why are the clocks not higher"; the other vendors' words are turned into these.
THROTTLE_BITS = {
    0x1: "idle",
    0x2: "application_clocks",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal",
    0x40: "hw_thermal",
    0x80: "power_brake",
    0x100: "display_clocks",
    0x200: "board_limit",
    0x400: "reliability",
}


class NotAvailableError(Exception):
    """The vendor's library, tool or driver is not there, or may not be asked; the text says which and why."""


class DeviceLostError(Exception):
    """A device that answered before does not any more; the text is the vendor's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One look at a device, cheap enough for ten a second. None: it could not be read, never zero in its place.

    `memory_used_mib` and `memory_total_mib` in MiB, of all processes on the device; `load` the share, 0 to 1, of the last
    sampling period in which something ran; `power_w` in watts; clocks in MHz; `throttle` the reasons (THROTTLE_BITS) for
    which clocks are not higher, empty when there is none; `energy_j` joules of the board since some point in the past.
    """

    memory_used_mib: float | None = None
    memory_total_mib: float | None = None
    load: float | None = None
    power_w: float | None = None
    sm_clock_mhz: int | None = None
    mem_clock_mhz: int | None = None
    throttle: tuple[str, ...] | None = None
    energy_j: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceProcess:
    """A process that computes on a device; `memory_mib` None where the driver hides it."""

    pid: int
    memory_mib: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What changes slowly or costs more to ask, once a second. None: it could not be read.

    `temperature_c` of the die in degrees Celsius; `ecc` counts of corrected and uncorrected memory errors since the
    driver was loaded; `xid` the driver's error numbers since the last survey; `processes` those that compute on it.
    """

    temperature_c: float | None = None
    ecc: Mapping[str, int] | None = None
    xid: tuple[int, ...] = ()
    processes: tuple[DeviceProcess, ...] | None = None


class Device(Protocol):
    """One accelerator, or a slice of one."""

    @property
    def index(self) -> int:
        """Its number among the vendor's devices, in the order of the PCI bus."""

    @property
    def uuid(self) -> str:
        """What tells it from every other; stays the same over reboots."""

    @property
    def name(self) -> str:
        """The model."""

    @property
    def absent(self) -> Mapping[str, str]:
        """What it was asked for and cannot tell, with the reason; it is not asked again."""

    @property
    def slices(self) -> Sequence[Device]:
        """The parts (MIG) that it is cut into."""

    @property
    def aliases(self) -> Sequence[str]:
        """Other ids, by which older drivers knew it."""

    def sample(self) -> Sample:
        """Memory (MiB), load (0 to 1), power (W), clocks (MHz), throttle reasons, energy (J). Raise DeviceLostError."""

    def survey(self) -> Survey:
        """Temperature (degrees Celsius), ECC and Xid counts, processes (MiB). Raise DeviceLostError."""


class SensorBackend(Protocol):
    """The devices of one maker on this machine."""

    @property
    def arch(self) -> str:
        """cuda, rocm, xpu, hpu; cpu for none."""

    @property
    def period_s(self) -> float:
        """How often it can be asked without standing in the way: 0.1 s of a library, 1 s of a command line."""

    @property
    def devices(self) -> Sequence[Device]:
        """All of them, in the order of their index; slices of a device are in its place when it is cut up."""

    @property
    def lost(self) -> Mapping[int, str]:
        """Why devices do not answer that the driver lists, by number."""

    def close(self) -> None:
        """Let go of the library."""


class NoVendor:
    """The devices of a machine without any: nothing to read, and nothing that the monitor must treat in another way."""

    arch = "cpu"
    period_s = 1.0
    devices: Sequence[Device] = ()
    lost: Mapping[int, str] = MappingProxyType({})

    def close(self) -> None:
        """Let go of nothing."""


def throttle_reasons(mask: int) -> tuple[str, ...]:
    """Return the names of the bits that are set; of those without a name yet, their number."""
    named = [name for bit, name in THROTTLE_BITS.items() if mask & bit]
    rest = mask & ~sum(THROTTLE_BITS)
    return (*named, *([f"0x{rest:x}"] if rest else []))
