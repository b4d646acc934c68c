"""Wait for the locks of the devices that cases are measured on, which milabench takes too (protocol.md, 7)."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterable, Mapping

from benchmate.devices.vendors.locks import DeviceLocks, close_files, holder_of, try_lock

_PERIOD_S = 0.1


class DeviceInUseError(Exception):
    """A device that another program measures on. The text names both."""


def lock_devices(
    locks: DeviceLocks, names: Iterable[str], command: str, wait_s: float | None, notify: Callable[[str], None]
) -> None:
    """Lock all in sequence.

    Waits for up to `wait_s` seconds in all, None without limit, having notified for whom. Raises DeviceInUseError, and
    OSError where there is no place for locks.
    """
    deadline = None if wait_s is None else time.monotonic() + wait_s
    waiting = locks.open(names)
    try:
        while waiting:
            name, descriptor = waiting[0]
            _lock(name, descriptor, deadline, notify)
            # flock belongs to the open file, not to the process: a child that inherits it holds the lock, too.
            os.set_inheritable(descriptor, True)
            locks.keep([waiting.pop(0)], run="", command=command)
    finally:
        close_files(waiting)


def lock_names(uuids: Iterable[str], arch: str, env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the locks to take for these devices. Without any, the machine's processor counts as a device.

    Those in MILABENCH_DEVICES_HELD are held by the agent of the step that this program is.
    """
    held = {uuid for uuid in env.get("MILABENCH_DEVICES_HELD", "").split(",") if uuid}
    uuids = tuple(uuids)
    if not uuids:
        return () if held else (f"cpu-{socket.gethostname()}",)
    return tuple(f"{arch}-{uuid}" for uuid in uuids if uuid not in held)


def _lock(name: str, descriptor: int, deadline: float | None, notify: Callable[[str], None]) -> None:
    has_notified = False
    while not try_lock(descriptor):
        if deadline is not None and time.monotonic() >= deadline:
            raise DeviceInUseError(f"{name} is in use by {_describe_holder(descriptor)}. Wait for it with --lock wait")
        if not has_notified:
            has_notified = True
            notify(f"waiting for {name}, in use by {_describe_holder(descriptor)}")
        time.sleep(_PERIOD_S)


def _describe_holder(descriptor: int) -> str:
    """Return the holder's entry in a lock, as a phrase."""
    holder = holder_of(descriptor)
    if "pid" not in holder:
        return "another program"
    since = holder.get("since")
    when = f" since {time.strftime('%H:%M:%S', time.localtime(since))}" if isinstance(since, (int, float)) else ""
    what = holder.get("command") or holder.get("run") or "a program"
    return f"{what} (pid {holder['pid']}, user {holder.get('user', '?')}{when})"
