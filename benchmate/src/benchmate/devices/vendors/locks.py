"""Locks that say who uses a device (protocol.md, 7): files held by flock, which fall with their holder, however it ends."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import socket
import stat
import time

from .regular_file import open_descriptor

TYPE_CHECKING = False  # see unpack.py
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, List, Optional, Tuple


class DeviceLocks:
    """The locks that this program holds. `folder` is where the lock files are. None, or empty: the machine's."""

    def __init__(self, folder: Optional[str] = None) -> None:
        self._folders = [folder] if folder else ["/run/lock/milabench", "/tmp/milabench-locks"]
        self._held: Dict[str, int] = {}

    def descriptors(self) -> Tuple[int, ...]:
        """To be kept open by every child: a device is in use as long as any of them lives, this program or not."""
        return tuple(self._held.values())

    def open(self, names: Iterable[str]) -> List[Tuple[str, int]]:
        """Open the files of those not yet held, in the order in which everybody takes them. Raise OSError."""
        opened: List[Tuple[str, int]] = []
        try:
            # In one order everywhere: nobody waits for another who waits for him.
            for name in sorted(set(names) - set(self._held)):
                opened.append((name, self._open(name)))
        except OSError:
            close_files(opened)
            raise
        return opened

    def take(self, opened: List[Tuple[str, int]]) -> Optional[Dict[str, Any]]:
        """Lock all of them, or none and return who holds the first that is taken."""
        for name, fd in opened:
            if not try_lock(fd):
                for _, other in opened:
                    fcntl.flock(other, fcntl.LOCK_UN)
                return dict(holder_of(fd), name=name)
        return None

    def keep(self, opened: List[Tuple[str, int]], **owner: str) -> None:
        """Record these locks, which we hold by now, as ours, also in their files, with the facts in `owner`."""
        about = {
            **owner,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "user": user_name(),
            "since": round(time.time(), 3),
        }
        for name, fd in opened:
            os.ftruncate(fd, 0)
            os.pwrite(fd, json.dumps(about).encode() + b"\n", 0)
            self._held[name] = fd

    def release(self) -> None:
        """Let go of all, also where a stray process has inherited the descriptor."""
        for fd in self._held.values():
            # Closing alone would leave the lock with whoever has inherited it.
            fcntl.flock(fd, fcntl.LOCK_UN)
            os.close(fd)
        self._held.clear()

    def _open(self, name: str) -> int:
        path = os.path.join(self._folder(), re.sub(r"[^A-Za-z0-9_.+-]", "_", name) + ".lock")
        flags = os.O_RDWR | os.O_NOFOLLOW
        # Not O_CREAT alone: for another user's file in a sticky folder the kernel refuses it (fs.protected_regular).
        with contextlib.suppress(FileExistsError):
            fd = open_descriptor(path, flags | os.O_CREAT | os.O_EXCL)
            os.fchmod(fd, 0o666)  # what the umask took away
            return fd
        fd = open_descriptor(path, flags)
        if os.fstat(fd).st_nlink > 1:
            os.close(fd)
            raise OSError(errno.EMLINK, "has another name: writing to it would change another file", path)
        return fd

    def _folder(self) -> str:
        for folder in self._folders:
            with contextlib.suppress(OSError):  # it exists, or cannot be created: the next line shows which
                os.mkdir(folder)
                os.chmod(folder, 0o1777)  # noqa: S103 - the locks of all users, as /tmp
            if os.access(folder, os.W_OK | os.X_OK) and _is_safe(folder):
                return folder
        what = (
            "cannot be written, or others could remove a lock in it (chmod +t). MILABENCH_LOCK_DIR names another folder"
        )
        raise OSError(errno.EACCES, what, " or ".join(self._folders))


def _is_safe(folder: str) -> bool:
    """Tell whether nobody can remove a lock that another holds, but for root and who owns a folder like /tmp."""
    status = os.lstat(folder)
    is_sticky = bool(status.st_mode & stat.S_ISVTX)
    is_ours = status.st_uid in (0, os.getuid()) and not status.st_mode & stat.S_IWOTH
    return stat.S_ISDIR(status.st_mode) and (is_sticky or is_ours)


def try_lock(fd: int) -> bool:
    """Lock an open file unless another program has. Return whether it is ours."""
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def close_files(opened: Iterable[Tuple[str, int]]) -> None:
    """Let go of files that were opened and are not kept."""
    for _, fd in opened:
        os.close(fd)


def holder_of(fd: int) -> Dict[str, Any]:
    """Return the holder's entry in a lock. Empty where it cannot be read."""
    with contextlib.suppress(OSError, ValueError):
        owner = json.loads(os.pread(fd, 4096, 0).decode())
        return owner if isinstance(owner, dict) else {}
    return {}


def user_name() -> str:
    """Return our user's name. The number where there is no name."""
    import getpass  # brings termios, which no step needs

    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return str(os.getuid())
