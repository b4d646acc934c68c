"""The heartbeat of a process whose lock others may be unable to see: a file that it touches, whose age they can tell."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from milabench.devices.regular_file import open_descriptor
from milabench.events.removal import remove
from milabench.execute.interrupts import repeated

BEAT_S = 10.0
# Several beats may be late: a file server that is busy, attributes that a client still believes (NFS, up to 60 s).
FRESH_S = 60.0


@contextlib.contextmanager
def beating(path: Path, every_s: float = BEAT_S) -> Iterator[None]:
    """Touch a file every few seconds as long as the block runs, then remove it. A file that cannot be touched is left."""
    with contextlib.suppress(OSError):
        _touch(path)  # before anything else is done: from here on others see us
    try:
        # A file server that hangs keeps the thread; the process may end all the same.
        with repeated(lambda: _touch(path), every_s, "heartbeat", join_s=1.0):
            yield
    finally:
        remove(path, is_quiet=True)


def last_beat_age_s(path: Path) -> float | None:
    """Return how long ago a file was touched. None without a file.

    By the clock of the file server, which stamped it. By ours where its folder cannot be written.
    """
    touched = _touched(path)
    return None if touched is None else max(0.0, _server_time(path.parent) - touched)


def is_beating(path: Path) -> bool:
    """Return whether a process beats, or did until a moment ago."""
    age = last_beat_age_s(path)
    return age is not None and age < FRESH_S


def beats_again(path: Path, within_s: float = 2.5 * BEAT_S) -> bool:
    """Return whether a file is touched again within this time: whether the process that touched it lives."""
    first, deadline = _touched(path), time.monotonic() + within_s
    while (touched := _touched(path)) is not None and time.monotonic() < deadline:
        if touched != first:
            return True
        time.sleep(within_s / 50)
    return False


def _touched(path: Path) -> float | None:
    try:
        # Opened: on NFS that is what asks the server, where a mere stat may be told by this client's memory.
        fd = open_descriptor(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        return os.fstat(fd).st_mtime
    except OSError:
        return None
    finally:
        os.close(fd)


def _server_time(folder: Path) -> float:
    """Return the time by the clock of the server of a folder, unix seconds."""
    probe = folder / f".{os.urandom(8).hex()}.tmp"
    with contextlib.suppress(OSError):
        _touch(probe)
    touched = _touched(probe)
    remove(probe, is_quiet=True)
    return time.time() if touched is None else touched


def _touch(path: Path) -> None:
    fd = open_descriptor(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    try:
        os.utime(fd)  # without times: the server's own
    finally:
        os.close(fd)
