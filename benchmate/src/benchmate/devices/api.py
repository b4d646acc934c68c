"""What a device is to the instruments: what can be read of it, in which units, and how it says that it cannot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from benchmate.devices.vendors.vendor import Sample, Survey

MIB = 1 << 20

# Why the clocks are not higher, by NVML's bits from the lowest; the other vendors' words are turned into these.
THROTTLE_REASONS = (
    *("idle", "application_clocks", "sw_power_cap", "hw_slowdown", "sync_boost", "sw_thermal"),
    *("hw_thermal", "power_brake", "display_clocks", "board_limit", "reliability"),
)


class NotAvailableError(Exception):
    """The vendor's library, tool or driver is not there, or may not be asked; the text says which and why."""


class DeviceLostError(Exception):
    """A device that answered before does not any more; the text is the vendor's."""


class Device:
    """One accelerator, or a slice of one."""

    index: int
    """Its number among the vendor's devices, in the order of the PCI bus."""
    uuid: str
    """What tells it from every other; stays the same over reboots."""
    name: str
    """The model."""
    absent: Mapping[str, str]
    """What it was asked for and cannot tell, with the reason; it is not asked again."""
    slices: Sequence[Device] = ()
    """The parts (MIG) that it is cut into."""
    aliases: Sequence[str] = ()
    """Other ids, by which older drivers knew it."""

    def sample(self) -> Sample:
        """Return memory, load, power, clocks, throttle reasons and energy of now. Raise DeviceLostError."""
        raise NotImplementedError

    def survey(self) -> Survey:
        """Return temperature, ECC and Xid counts, and processes. Raise DeviceLostError."""
        raise NotImplementedError


class SensorBackend:
    """The devices of one maker on this machine; as it stands, those of a machine without any."""

    arch = "cpu"
    """cuda, rocm, xpu, hpu; cpu for none."""
    period_s = 1.0
    """How often it can be asked without standing in the way: 0.1 s of a library, 1 s of a command line."""
    devices: Sequence[Device] = ()
    """All of them, in the order of their index; slices of a device are in its place when it is cut up."""
    lost: Mapping[int, str] = MappingProxyType({})
    """Why devices do not answer that the driver lists, by number."""

    def close(self) -> None:
        """Let go of the library."""


def throttle_reasons(mask: int) -> tuple[str, ...]:
    """Return the names of the bits that are set; of those without a name yet, their number."""
    named = [name for bit, name in enumerate(THROTTLE_REASONS) if mask >> bit & 1]
    rest = mask >> len(THROTTLE_REASONS) << len(THROTTLE_REASONS)
    return (*named, *([f"0x{rest:x}"] if rest else []))
