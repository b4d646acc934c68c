"""The interface of a device for the instruments: its readings, their units, and the errors.

A vendor's library reads each device, ten times a second. Its command line reads all at once, at most once a second.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from benchmate.devices.vendors.vendor import ReadAll, Reading, Sample, Survey

MIB = 1 << 20

# Why the clocks are not higher, by NVML's bits from the lowest; the other vendors' words are turned into these.
THROTTLE_REASONS = (
    *("idle", "application_clocks", "sw_power_cap", "hw_slowdown", "sync_boost", "sw_thermal"),
    *("hw_thermal", "power_brake", "display_clocks", "board_limit", "reliability"),
)


class NotAvailableError(Exception):
    """The vendor's library, tool or driver is not there, or may not be asked. The text says which and why."""


class DeviceLostError(Exception):
    """A device that answered before does not any more. The text is the vendor's."""


class Device:
    """An accelerator, or a slice of an accelerator."""

    index: int
    """Its number among the vendor's devices, in the order of the PCI bus."""
    uuid: str
    """Its identity. Stays the same over reboots."""
    name: str
    """The model."""
    absent: Mapping[str, str]
    """Unavailable readings, with the reason. They are not requested again."""
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
    """The devices of a maker on this machine. This base class is a machine without any."""

    arch = "cpu"
    """`cuda`, `rocm`, `xpu`, `hpu`, or `cpu` without devices."""
    period_s = 1.0
    """How often it can be asked without standing in the way: 0.1 s of a library, 1 s of a command line."""
    devices: Sequence[Device] = ()
    """All of them, in the order of their index. Slices of a device are in its place when it is cut up."""
    lost: Mapping[int, str] = MappingProxyType({})
    """Why devices do not answer that the driver lists, by number."""

    def close(self) -> None:
        """Let go of the library."""


def throttle_reasons(mask: int) -> tuple[str, ...]:
    """Return the names of the bits that are set, and the number of a bit without a name."""
    named = [name for bit, name in enumerate(THROTTLE_REASONS) if mask >> bit & 1]
    rest = mask >> len(THROTTLE_REASONS) << len(THROTTLE_REASONS)
    return (*named, *([f"0x{rest:x}"] if rest else []))


# What vendors/vendor.py says that its questions raise.
FAILURES = (OSError, subprocess.SubprocessError, ValueError, LookupError, TypeError, AttributeError)


def describe_failure(error: Exception) -> str:
    """Return why a tool does not tell, for a person."""
    if isinstance(error, FileNotFoundError) and error.filename:
        return f"{error.filename}: there is no such command"
    return str(error)


def absent_readings(sample: Sample) -> dict[str, str]:
    """Return the readings that a device's first sample lacks, with the reason."""
    fields = {"power": "power_w", "energy": "energy_j", "throttle": "throttle"}
    absent = [name for name, field in fields.items() if getattr(sample, field) is None]
    return dict.fromkeys(absent, "the vendor's tool does not tell it")


class CommandVendor(SensorBackend):
    """Devices that `read_all`, a command line, reports. `clock` in seconds. Raise NotAvailableError."""

    def __init__(self, arch: str, read_all: ReadAll, clock: Callable[[], float] = time.monotonic) -> None:
        self.arch = arch
        self._read_all = read_all
        self._clock = clock
        self._read_at_s = clock()
        self._latest = {reading.device: reading for reading in read_all()}
        self._trouble = ""
        if not self._latest:
            raise NotAvailableError(f"{arch}: its tool knows no device")
        self.devices = tuple(CommandDevice(self, reading) for _, reading in sorted(self._latest.items()))

    def reading(self, index: int) -> Reading:
        """Return the latest reading of a device, a new reading when it is old. Raise DeviceLostError where the tool has none."""
        now = self._clock()
        # All devices are asked by one command: who asks first in a period asks for all. 0.9: timers are never exact.
        if now - self._read_at_s >= self.period_s * 0.9:
            self._read_at_s = now
            try:
                self._latest = {reading.device: reading for reading in self._read_all()}
                self._trouble = "the tool does not list it any more"
            except (NotAvailableError, *FAILURES) as error:
                self._latest, self._trouble = {}, describe_failure(error)
        if index not in self._latest:
            raise DeviceLostError(self._trouble)
        return self._latest[index]


class CommandDevice(Device):
    """A device of several that are read together."""

    def __init__(self, vendor: CommandVendor, reading: Reading) -> None:
        self._vendor = vendor
        self.index, self.uuid, self.name = reading.device, reading.uuid, reading.name
        self.absent = absent_readings(reading.sample)

    def sample(self) -> Sample:
        return self._vendor.reading(self.index).sample

    def survey(self) -> Survey:
        return self._vendor.reading(self.index).survey
