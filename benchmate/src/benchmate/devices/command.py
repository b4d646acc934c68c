"""Devices that a vendor's tool tells of all at once: a command line, asked at most once a second, or a library, more often."""

from __future__ import annotations

import math
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchmate.devices.api import DeviceLostError, NotAvailableError, Sample, Survey

TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What one answer of the tool says of one device."""

    index: int
    uuid: str
    name: str
    sample: Sample
    survey: Survey


def ask(*words: str) -> str:
    """What a vendor's tool prints. Raises NotAvailableError when it is missing, fails or hangs."""
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT_S, check=True, close_fds=True
        )
    except FileNotFoundError:
        raise NotAvailableError(f"{words[0]}: there is no such command") from None
    except (OSError, subprocess.SubprocessError) as error:
        raise NotAvailableError(f"{words[0]}: {error}") from error
    return done.stdout.decode("utf-8", "replace")


def number(text: object) -> float | None:
    """The number at the head of a cell (`35.0 W`); None for the many ways in which tools say that there is none."""
    try:
        value = float(str(text).split()[0].rstrip("%"))
    except (ValueError, IndexError):
        return None
    return value if math.isfinite(value) else None


class CommandVendor:
    """Devices that `rows` tells about; `clock` in seconds; `close` lets go of what it asks. Raises NotAvailableError."""

    def __init__(
        self,
        arch: str,
        rows: Callable[[], Sequence[Row]],
        clock: Callable[[], float] = time.monotonic,
        *,
        period_s: float = 1.0,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        self.arch = arch
        self.period_s = period_s
        self.close = close
        self._rows = rows
        self._clock = clock
        self._asked_s = clock()
        self._known = {row.index: row for row in rows()}
        self._trouble = ""
        if not self._known:
            raise NotAvailableError(f"{arch}: its tool knows no device")
        self.devices = tuple(CommandDevice(self, row) for _, row in sorted(self._known.items()))

    def row(self, index: int) -> Row:
        """The latest of a device, asked anew when it is old. Raises DeviceLostError when the tool does not tell it."""
        now = self._clock()
        if now - self._asked_s >= self.period_s * 0.9:
            self._asked_s = now
            try:
                self._known = {row.index: row for row in self._rows()}
                self._trouble = "the tool does not list it any more"
            except (NotAvailableError, ValueError, KeyError, TypeError, AttributeError) as error:
                self._known, self._trouble = {}, str(error)
        if index not in self._known:
            raise DeviceLostError(self._trouble)
        return self._known[index]


class CommandDevice:
    """A device behind a command line."""

    def __init__(self, vendor: CommandVendor, row: Row) -> None:
        self._vendor = vendor
        self.index, self.uuid, self.name = row.index, row.uuid, row.name
        readings = {"power": row.sample.power_w, "energy": row.sample.energy_j, "throttle": row.sample.throttle}
        self.absent: Mapping[str, str] = {
            name: "the vendor's tool does not tell it" for name, value in readings.items() if value is None
        }

    def sample(self) -> Sample:
        """See Device."""
        return self._vendor.row(self.index).sample

    def survey(self) -> Survey:
        """See Device."""
        return self._vendor.row(self.index).survey
