"""Locks on devices, shared with milabench (protocol.md, 7): files held by flock, so that they fall with their holder."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import socket
import time
from collections.abc import Callable, Iterable, Mapping

FOLDERS = ("/run/lock/milabench", "/tmp/milabench-locks")
_PERIOD_S = 0.1


class DeviceInUseError(Exception):
    """A device that another program measures on; the text names both."""


class DeviceLocks:
    """The locks that this program holds. `folder` is where the lock files are, None for the machine's."""

    def __init__(self, folder: str | None = None) -> None:
        self._folders = FOLDERS if folder is None else (folder,)
        self._held: dict[str, int] = {}

    def descriptors(self) -> tuple[int, ...]:
        """To be kept open by every child: a device is in use as long as one of them lives, this program or not."""
        return tuple(self._held.values())

    def take(self, names: Iterable[str], command: str, wait_s: float | None, notify: Callable[[str], None]) -> None:
        """Lock all, in the order in which everybody takes them, so that none waits for another that waits for it.

        Waits for up to `wait_s` seconds in all, None without limit, having notified for whom. Raises DeviceInUseError, and
        OSError where there is no place for locks.
        """
        deadline = None if wait_s is None else time.monotonic() + wait_s
        for name in sorted(set(names) - set(self._held)):
            descriptor = self._open(name)
            try:
                _lock(name, descriptor, deadline, notify)
            except DeviceInUseError:
                os.close(descriptor)
                raise
            # flock belongs to the open file, not to the process: a child that inherits it holds the lock, too.
            os.set_inheritable(descriptor, True)
            _write_holder(descriptor, command)
            self._held[name] = descriptor

    def release(self) -> None:
        """Let go of all, also where a stray process has inherited the descriptor."""
        for descriptor in self._held.values():
            # Closing alone would leave the lock with whoever has inherited it.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)
        self._held.clear()

    def _open(self, name: str) -> int:
        path = os.path.join(self._folder(), re.sub(r"[^A-Za-z0-9_.+-]", "_", name) + ".lock")  # noqa: PTH118
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        # Not O_CREAT alone: for another user's file in a sticky folder the kernel refuses it (fs.protected_regular).
        with contextlib.suppress(FileExistsError):
            descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
            os.fchmod(descriptor, 0o666)  # what the umask took away
            return descriptor
        return os.open(path, flags)

    def _folder(self) -> str:
        for folder in self._folders:
            with contextlib.suppress(OSError):
                os.mkdir(folder)  # noqa: PTH102
                os.chmod(folder, 0o1777)  # noqa: S103, PTH101  (the locks of all users, as /tmp)
            if os.path.isdir(folder) and not os.path.islink(folder) and os.access(folder, os.W_OK | os.X_OK):  # noqa: PTH112, PTH114
                return folder
        raise OSError(f"{' and '.join(self._folders)}: no folder for device locks can be written")


def lock_names(uuids: Iterable[str], arch: str, env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the locks to take for these devices; without any, the machine's processor counts as one.

    Those in MILABENCH_DEVICES_HELD are held by the agent of the step that this program is.
    """
    held = {uuid for uuid in env.get("MILABENCH_DEVICES_HELD", "").split(",") if uuid}
    uuids = tuple(uuids)
    if not uuids:
        return () if held else (f"cpu-{socket.gethostname()}",)
    return tuple(f"{arch}-{uuid}" for uuid in uuids if uuid not in held)


def _lock(name: str, descriptor: int, deadline: float | None, notify: Callable[[str], None]) -> None:
    has_notified = False
    while True:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        if deadline is not None and time.monotonic() >= deadline:
            raise DeviceInUseError(f"{name} is in use by {_holder(descriptor)}; --lock wait waits for it")
        if not has_notified:
            has_notified = True
            notify(f"waiting for {name}, in use by {_holder(descriptor)}")
        if deadline is None:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            return
        time.sleep(_PERIOD_S)


def _write_holder(descriptor: int, command: str) -> None:
    holder = {
        "run": "",
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "user": _user(),
        "since": round(time.time(), 3),
        "command": command,
    }
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(holder).encode() + b"\n", 0)


def _holder(descriptor: int) -> str:
    """Return what the holder of a lock wrote about itself, as a phrase."""
    holder: dict[str, object] = {}
    with contextlib.suppress(OSError, ValueError):
        read = json.loads(os.pread(descriptor, 4096, 0).decode())
        holder = read if isinstance(read, dict) else {}
    if "pid" not in holder:
        return "another program"
    since = holder.get("since")
    when = f" since {time.strftime('%H:%M:%S', time.localtime(since))}" if isinstance(since, (int, float)) else ""
    what = holder.get("command") or holder.get("run") or "a program"
    return f"{what} (pid {holder['pid']}, user {holder.get('user', '?')}{when})"


def _user() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
