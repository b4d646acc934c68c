"""Replaces files so that a reader, also after a power cut, finds the old or the new content and nothing between."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from milabench.events.removal import remove, replace
from milabench.events.run_files import MANIFEST, SUMMARY, is_journal_or_manifest

_RECORDS = (".data", ".stdout", ".stderr", ".lock", ".beat")
_DRAFT = re.compile(r"\.[0-9a-f]{16}\.tmp")


def replace_file(path: Path, content: bytes) -> None:
    """Write a file, or replace it. Raises OSError. The old file is then as it was, and nothing is left next to it."""
    with draft_of(path, 0o644) as file:
        file.write(content)


@contextlib.contextmanager
def draft_of(path: Path, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Yield a new file that becomes the one at `path` when the block has ended. After an error it is removed.

    A replaced file keeps its mode. A new file has `mode`, less the umask. Raises OSError, also for paths that are neither a
    file nor a link.
    """
    with contextlib.suppress(FileNotFoundError):
        status = os.lstat(path)
        mode = stat.S_IMODE(status.st_mode)
        if not stat.S_ISREG(status.st_mode) and not stat.S_ISLNK(status.st_mode):
            raise OSError(errno.EPERM, "is no regular file. Choose another name", str(path))
    # A name that nobody can know before, and O_EXCL: in a folder of others no link of theirs is written through.
    draft = path.with_name(f".{os.urandom(8).hex()}.tmp")
    try:
        with os.fdopen(os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        # Synced before it gets its name: else a power cut may leave the name on an empty file (ext4, delayed allocation).
        replace(draft, path)
    finally:
        with contextlib.suppress(OSError):  # on a read-only disk also for what is not there
            remove(draft)
    # A new name is durable only when its folder is, too (fsync(2)).
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def remove_drafts(folder: Path) -> None:
    """Remove leftovers of killed writers in a folder. Only for the single writer there."""
    for path in folder.glob(".*.tmp"):
        if _DRAFT.fullmatch(path.name):
            with contextlib.suppress(OSError):
                remove(path)


def require_no_record(path: Path) -> None:
    """Raise PermissionError for a file that holds records of a run: output for users is written elsewhere."""
    place = path.resolve()
    folder, name = place.parent, place.name
    is_record = name == SUMMARY or name.endswith(_RECORDS) or is_journal_or_manifest(name)
    if is_record and (folder / MANIFEST).is_file():
        raise PermissionError(errno.EPERM, "is a record of a run. Choose another name", str(path))


def write_output(path: Path, content: bytes) -> None:
    """Write output for a user: the whole, or nothing and the file as it was. Raises OSError.

    A link stays a link. To a file that is not regular, such as /dev/stdout or `>(command)`, it is written as it comes.
    A record of a run is refused.
    """
    require_no_record(path)
    try:
        # As if it were written to: refused where its mode, or the kernel's care for links of others, forbids that.
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        pass
    else:
        with os.fdopen(descriptor, "wb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                file.write(content)
                return
    with draft_of(path.resolve()) as file:
        file.write(content)
