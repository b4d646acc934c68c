"""Locks that say which run uses a device."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import socket
import time
from typing import Any, Dict, List, Optional, Tuple

from .procfs import user_name


class DeviceLocks:
    """Files that say who uses a device; held by flock, so that they fall with their holder, however it ends."""

    def __init__(self, folder: Optional[str], run_id: str) -> None:
        self._given = folder
        self._run_id = run_id
        self._held: Dict[str, int] = {}

    def descriptors(self) -> List[int]:
        """Handed to every step: a device is in use as long as one of its processes lives, agent or not."""
        return list(self._held.values())

    def open(self, names: List[str]) -> List[Tuple[str, int]]:
        """Open the files of those not yet held, in the order in which everybody takes them. Raise OSError."""
        opened: List[Tuple[str, int]] = []
        try:
            for name in sorted(set(names) - set(self._held)):
                opened.append((name, self._open(name)))
        except OSError:
            for _, fd in opened:
                os.close(fd)
            raise
        return opened

    def take(self, opened: List[Tuple[str, int]]) -> List[Dict[str, Any]]:
        """Lock all of them, or none and return who holds the first that is taken."""
        for name, fd in opened:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = self.holder(name, fd)
                for _, other in opened:
                    fcntl.flock(other, fcntl.LOCK_UN)
                return [holder]
        self.keep(opened)
        return []

    def keep(self, opened: List[Tuple[str, int]]) -> None:
        """Record these locks, which we hold by now, as ours, also in their files."""
        owner = {
            "run": self._run_id,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "user": user_name(),
            "since": round(time.time(), 3),
        }
        for name, fd in opened:
            os.ftruncate(fd, 0)
            os.pwrite(fd, json.dumps(owner).encode() + b"\n", 0)
            self._held[name] = fd

    @staticmethod
    def holder(name: str, fd: int) -> Dict[str, Any]:
        """Return what the holder of a lock wrote about itself."""
        owner = None
        with contextlib.suppress(OSError, ValueError):
            owner = json.loads(os.pread(fd, 4096, 0).decode())
        return dict(owner if isinstance(owner, dict) else {}, name=name)

    def release(self) -> None:
        """Let go of all, also where a stray process has inherited the descriptor."""
        for fd in self._held.values():
            fcntl.flock(fd, fcntl.LOCK_UN)
            os.close(fd)
        self._held.clear()

    def _open(self, name: str) -> int:
        path = os.path.join(self._folder(), re.sub(r"[^A-Za-z0-9_.+-]", "_", name) + ".lock")
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        # Not O_CREAT alone: for another user's file in a sticky folder the kernel refuses it (fs.protected_regular).
        with contextlib.suppress(FileExistsError):
            fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
            os.fchmod(fd, 0o666)
            return fd
        return os.open(path, flags)

    def _folder(self) -> str:
        given = self._given or os.environ.get("MILABENCH_LOCK_DIR")
        candidates = [given] if given else ["/run/lock/milabench", "/tmp/milabench-locks"]
        for folder in candidates:
            with contextlib.suppress(OSError):  # it exists, or cannot be created: the next line shows which
                os.mkdir(folder)
                os.chmod(folder, 0o1777)  # noqa: S103 - the locks of all users, as /tmp
            if os.path.isdir(folder) and not os.path.islink(folder) and os.access(folder, os.W_OK | os.X_OK):
                return folder
        raise OSError(
            errno.EACCES, "cannot be written; MILABENCH_LOCK_DIR names another folder", " or ".join(candidates)
        )
