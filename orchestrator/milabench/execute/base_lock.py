"""Holds a base folder while it is installed into or prepared, so that no two commands build the same thing at once."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import getpass
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

from milabench.errors import EnvironmentFailed, Unreachable

FILE = ".milabench.lock"


@contextlib.contextmanager
def hold_base(
    base: Path,
    purpose: str,
    *,
    say: Callable[[str], object],
    wait: bool = True,
    clock: Callable[[], float] = time.time,
) -> Iterator[None]:
    """Hold `base` for `purpose` (install, prepare); report the current holder and wait for it.

    The lock is flock's: it falls with the process that holds it, however that ends, and holds between the machines of a
    shared file system (NFS turns it into a lock of the server, for which the file must be open for writing). Raises
    EnvironmentFailed when the folder cannot be locked, Unreachable when it is held and `wait` is false.
    """
    path = base / FILE
    try:
        base.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise EnvironmentFailed(f"{base}: cannot be written: {error.strerror}; choose another --base") from None
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message = f"{base} is held by {_holder(fd)}"
            if not wait:
                raise Unreachable(f"{message}; try again when it has ended") from None
            say(f"{message}; waiting for its end")
            fcntl.flock(fd, fcntl.LOCK_EX)
        _write_holder(fd, purpose, clock())
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                os.ftruncate(fd, 0)  # an old name in a free lock would only mislead
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        raise EnvironmentFailed(
            f"{path}: this file system has no locks: {error.strerror}; choose a --base on another one"
        ) from None
    finally:
        os.close(fd)


def _write_holder(fd: int, purpose: str, now: float) -> None:
    holder = {"purpose": purpose, "pid": os.getpid(), "host": socket.gethostname(), "user": _user(), "since": now}
    with contextlib.suppress(OSError):  # on a full disk the lock still holds, only its name is missing
        os.ftruncate(fd, 0)
        os.pwrite(fd, json.dumps(holder).encode() + b"\n", 0)


def _holder(fd: int) -> str:
    try:
        holder = json.loads(os.pread(fd, 4096, 0))
        since = datetime.fromtimestamp(holder["since"]).strftime("%Y-%m-%d %H:%M:%S")
        return f"`{holder['purpose']}` of {holder['user']}@{holder['host']} (pid {holder['pid']}) since {since}"
    except (OSError, ValueError, KeyError, TypeError):
        return "somebody who has not said so yet"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
