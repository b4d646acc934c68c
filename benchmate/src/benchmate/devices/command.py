"""Devices that are read all at once: by a vendor's command line, at most once a second, or by a library, more often."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable

from benchmate.devices.api import Device, DeviceLostError, NotAvailableError, SensorBackend
from benchmate.devices.vendors.vendor import ReadAll, Reading, Sample, Survey

# What vendors/vendor.py says that its questions raise.
FAILURES = (OSError, subprocess.SubprocessError, ValueError, LookupError, TypeError, AttributeError)


def describe_failure(error: Exception) -> str:
    """Return why a tool does not tell, for a person."""
    if isinstance(error, FileNotFoundError) and error.filename:
        return f"{error.filename}: there is no such command"
    return str(error)


class CommandVendor(SensorBackend):
    """Devices that `read_all` tells of; `clock` in seconds; `close` lets go of what it asks. Raise NotAvailableError."""

    def __init__(
        self,
        arch: str,
        read_all: ReadAll,
        clock: Callable[[], float] = time.monotonic,
        *,
        period_s: float = 1.0,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        self.arch = arch
        self.period_s = period_s
        self._close = close
        self._read_all = read_all
        self._clock = clock
        self._read_at_s = clock()
        self._latest = {reading.device: reading for reading in read_all()}
        self._trouble = ""
        if not self._latest:
            raise NotAvailableError(f"{arch}: its tool knows no device")
        self.devices = tuple(CommandDevice(self, reading) for _, reading in sorted(self._latest.items()))

    def reading(self, index: int) -> Reading:
        """Return the latest reading of a device, a new one when it is old. Raise DeviceLostError where the tool has none."""
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

    def close(self) -> None:
        """Let go of what it asks."""
        self._close()


class CommandDevice(Device):
    """One of the devices that are read all at once."""

    def __init__(self, vendor: CommandVendor, reading: Reading) -> None:
        self._vendor = vendor
        self.index, self.uuid, self.name = reading.device, reading.uuid, reading.name
        named = {"power": "power_w", "energy": "energy_j", "throttle": "throttle"}
        absent = [name for name, field in named.items() if getattr(reading.sample, field) is None]
        self.absent = dict.fromkeys(absent, "the vendor's tool does not tell it")

    def sample(self) -> Sample:
        return self._vendor.reading(self.index).sample

    def survey(self) -> Survey:
        return self._vendor.reading(self.index).survey
