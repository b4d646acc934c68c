"""`benchmate.monitor` of milabench 1.3: its monitors, which watch nothing here, and the functions that record for a program.

milabench watches devices, processes and the host from outside. A thread that does so in the measured process would disturb it,
so that none is started. A script of its own is not watched.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from benchmate.configuration import getenv
from benchmate.metrics import Push, give_push, has_sink, measure_in_script, record_push
from benchmate.session import current

Log = Callable[[Mapping[str, Any]], None]

_KEPT = ("value", "progress", "rate", "units", "loss", "time")
_OBSERVED = ("n", "elapsed", "t0_ns", "host_ns")
_DEVICES = ("gpudata", "memory_peak")
_HOST = ("cpudata", "process", "iodata", "netdata")
_MORE = {"debug": ("__iter__", "overhead", "process_time"), "all": ("*",)}


class IdleMonitor:
    """A monitor that watches nothing, in each form of 1.3: a `with` that gives `log`, an instrument, an object to stop.

    `log` records a mapping: a rate, a loss, or other numbers by their names.
    """

    def __init__(self, *args: object, **kwargs: object) -> None:
        pass

    def __enter__(self) -> Log:
        return _log

    def __exit__(self, *error: object) -> None:
        """Do nothing."""

    def __call__(self, overseer: object) -> None:
        """Do nothing, as an instrument."""

    def start(self) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Do nothing."""


bench_monitor = monogpu_monitor = multigpu_monitor = smuggle_monitor = IdleMonitor
monitor_monogpu = monitor_process_monogpu = monitor_node = IdleMonitor


def _log(data: Mapping[str, Any]) -> None:
    record_push(**data)


def setupvoir(monogpu: bool = True, enabled: bool = True, interval: float = 1) -> tuple[Log, IdleMonitor]:
    """Return `(log, monitor)`: a function that records a mapping, and a monitor that may be stopped."""
    return _log, IdleMonitor()


def milabench_sys_monitor(monogpu: bool = False) -> tuple[Log, IdleMonitor]:
    """Return the result of `setupvoir`."""
    return setupvoir(monogpu)


def auto_push() -> Push:
    """Return a function that records measurements, or gives them to the voirfile's streams where there is a voirfile."""
    return give_push()


def get_rank() -> int:
    """Return the rank that the launcher gave, -1 without a rank."""
    return getenv("RANK", int, -1)


def log_patterns() -> tuple[str, ...]:
    """Return the keys of given values that are recorded. BENCHMATE_LOG_MODE `debug` adds some, `all` is every key."""
    mode = os.environ.get("BENCHMATE_LOG_MODE", "lean").lower()
    return (*_KEPT, *_OBSERVED, *_DEVICES, *_HOST, *_MORE.get(mode, ()))


def voirfile_monitor(ov: Any, options: Any) -> None:
    """Require the instruments of a 1.3 voirfile: given values are recorded, and the requested number of rates is required.

    Under milabench the measuring profile has these numbers. In a standalone script they are `options.stop` and `options.skip`.
    """
    from voir.instruments import dash, log

    session = current()
    if not has_sink(session):
        skip, stop = int(getattr(options, "skip", 0)), int(getattr(options, "stop", 0))
        if stop > 0:
            measure_in_script(session, skip + stop, skip)
        if getattr(options, "dash", False):
            ov.require(dash)
    ov.require(log(*log_patterns(), context="task"))
