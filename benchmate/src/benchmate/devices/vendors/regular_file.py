"""Opens files that others may have placed: a regular file or an error, at once, and never a hang.

Opening a named pipe waits for its other end, reading /dev/zero never ends, and some devices act when they are opened.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from io import BufferedReader

TYPE_CHECKING = False  # see unpack.py
if TYPE_CHECKING:
    from typing import Union

    AnyPath = Union[str, "os.PathLike[str]"]

MIB = 2**20
MAX_WHOLE = 1024 * MIB  # bytes; of a file that is read into memory whole, unless its reader names a lower bound
_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFLNK: "a symbolic link",
}
# How a shell passes a pipe on purpose: `<(command)`, and what stands before `|`.
_OWN_DESCRIPTOR = r"/dev/stdin|(?:/dev/fd|/proc/self/fd)/\d+"


def open_regular(path: AnyPath, *, is_pipe_allowed: bool = False) -> BufferedReader:
    """Open a file to read its bytes. Raise OSError, also for other files than regular files.

    `is_pipe_allowed`: `<(command)` and a pipe at /dev/stdin are read too, for files that users name and that are read once.
    """
    may_be_pipe = is_pipe_allowed and re.fullmatch(_OWN_DESCRIPTOR, os.fspath(path)) is not None
    return open(path, "rb", opener=lambda name, flags: open_descriptor(name, flags, may_be_pipe=may_be_pipe))


def read_regular(path: AnyPath, most: int = MAX_WHOLE, *, is_pipe_allowed: bool = False) -> bytes:
    """Return the content of a regular file up to a maximum of bytes. Raise OSError. See `open_regular`."""
    with open_regular(path, is_pipe_allowed=is_pipe_allowed) as file:
        # No more at once than there is: Python makes room for as many bytes as it is asked for. A pipe has no size.
        pieces = [file.read(min(most, os.fstat(file.fileno()).st_size) + 1)]
        while pieces[-1] and sum(map(len, pieces)) <= most:
            pieces.append(file.read(MIB))
    content = b"".join(pieces)
    if len(content) > most:
        raise OSError(errno.EFBIG, "larger than the limit of %d bytes" % most, os.fspath(path))
    return content


def open_descriptor(path: AnyPath, flags: int, mode: int = 0o666, *, may_be_pipe: bool = False) -> int:
    """Open as os.open does, for reading, writing or locking, but only a regular file. Raise OSError.

    With O_NOFOLLOW a link is refused.
    """
    # Looked at before it is opened, for the sake of devices; and after, for it may be another one by then.
    try:
        _require_regular(os.stat(path, follow_symlinks=not flags & os.O_NOFOLLOW), path, may_be_pipe)
    except FileNotFoundError:
        pass  # it is created, or the next line raises the same
    descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOCTTY | (0 if may_be_pipe else os.O_NONBLOCK), mode)
    try:
        _require_regular(os.fstat(descriptor), path, may_be_pipe)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _require_regular(status: os.stat_result, path: AnyPath, may_be_pipe: bool) -> None:
    kind = stat.S_IFMT(status.st_mode)
    if kind == stat.S_IFDIR:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    if kind != stat.S_IFREG and not (may_be_pipe and kind == stat.S_IFIFO):
        raise OSError(errno.EINVAL, "not a regular file but %s" % _KINDS.get(kind, "something else"), os.fspath(path))
