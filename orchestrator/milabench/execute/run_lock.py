"""Holds a run directory while its orchestrator lives, and tells a living orchestrator from a dead one."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import getpass
import json
import os
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from milabench.errors import RecordError, Unreachable

FILE = "orchestrator.lock"
# A reader that asks whether the lock is held takes it for an instant.
TRIES, PAUSE_S = 20, 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Orchestrator:
    """A control plane process that executes, or executed, a run.

    `pid_start` (ticks since boot) and `boot` tell it from a later process with its pid; `marker` is what every process
    that it started carries; `since` is in unix seconds. One that is `detached` has left its terminal, and goes on
    unobserved.
    """

    pid: int
    pid_start: int
    boot: str
    host: str
    user: str
    marker: str
    since: float
    detached: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the entry for the lock file and the journal."""
        return asdict(self)

    @property
    def is_local(self) -> bool:
        """Whether it ran on this host."""
        return self.host == socket.gethostname()

    @property
    def is_of_this_boot(self) -> bool:
        """Whether something that it started may still run: not after a restart of its machine."""
        return self.boot == _boot()

    @property
    def is_alive(self) -> bool:
        """Whether it still runs; on another host only the lock can tell, so this is False."""
        return self.is_local and self.is_of_this_boot and _start_of(self.pid) == self.pid_start

    def __str__(self) -> str:
        since = datetime.fromtimestamp(self.since).strftime("%Y-%m-%d %H:%M:%S")
        return f"{self.user}@{self.host} (pid {self.pid}{', detached' if self.detached else ''}) since {since}"


def this_orchestrator(marker: str, *, detached: bool = False) -> Orchestrator:
    """Return this process, about to execute a run whose processes carry `marker`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return Orchestrator(
        pid=os.getpid(),
        pid_start=_start_of(os.getpid()) or 0,
        boot=_boot(),
        host=socket.gethostname(),
        user=user,
        marker=marker,
        since=time.time(),
        detached=detached,
    )


def orchestrator_of(entry: Mapping[str, Any]) -> Orchestrator | None:
    """Return the orchestrator that a journal entry or a lock file names; None when it names none."""
    kinds = {"pid": int, "pid_start": int, "boot": str, "host": str, "user": str, "marker": str, "since": float}
    try:
        fields = {name: kind(entry[name]) for name, kind in kinds.items()}
        return Orchestrator(**fields, detached=entry.get("detached") is True)
    except (KeyError, TypeError, ValueError):
        return None


@contextlib.contextmanager
def hold_run(path: Path, who: Orchestrator) -> Iterator[None]:
    """Hold a run directory for one orchestrator.

    The lock is flock's: it falls with its holder, however that ends, and reaches the other machines of a shared file
    system. Raises Unreachable, with the holder, when it is held, RecordError when the directory cannot be locked.
    """
    try:
        fd = os.open(path / FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise RecordError(f"{path}: cannot be written: {error.strerror}") from None
    try:
        if not _lock(fd, fcntl.LOCK_EX):
            holder = _holder(fd)
            raise Unreachable(
                f"{path}: this run is still active, run by {holder or 'an unknown process'};"
                " see `milabench status`, end it with `milabench cancel`"
            )
        with contextlib.suppress(OSError):  # on a full disk the lock still holds, only the name is missing
            os.ftruncate(fd, 0)
            os.pwrite(fd, json.dumps(who.to_json()).encode() + b"\n", 0)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):  # a former holder may live on, and execute another run
                os.ftruncate(fd, 0)
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        raise RecordError(f"{path}: this file system has no locks: {error.strerror}; choose another --base") from None
    finally:
        os.close(fd)


def holder_of(path: Path) -> Orchestrator | None:
    """Return the orchestrator that executes the run in a directory now; None without one."""
    try:
        fd = os.open(path / FILE, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        holder = _holder(fd)
        if holder is not None and holder.is_local:
            return holder if holder.is_alive else None
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return holder
        return None
    finally:
        os.close(fd)


def wait_for_release(path: Path) -> None:
    """Block until the run directory is no longer held; nothing polls."""
    with contextlib.suppress(OSError):
        fd = os.open(path / FILE, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_SH)
        finally:
            os.close(fd)


def _lock(fd: int, how: int) -> bool:
    for tries in range(TRIES, 0, -1):
        try:
            fcntl.flock(fd, how | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(fd)
            if tries == 1 or (holder is not None and (holder.is_alive or not holder.is_local)):
                return False
            time.sleep(PAUSE_S)
        else:
            return True
    return False


def _holder(fd: int) -> Orchestrator | None:
    try:
        entry = json.loads(os.pread(fd, 4096, 0))
    except (OSError, ValueError):
        return None
    return orchestrator_of(entry) if isinstance(entry, dict) else None


def _start_of(pid: int) -> int | None:
    """Return when a process began, in ticks since boot; None for one that is gone or a zombie."""
    try:
        fields_ = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields_[0] in (b"Z", b"X") else int(fields_[19])


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
