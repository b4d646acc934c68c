"""The folder of a repeat on this machine: made empty, and removed without touching anything outside."""

from __future__ import annotations

import contextlib
import os
import re
import stat

from .procfs import read_text
from .protocol import format_oserror

_MOUNTS = "/proc/self/mountinfo"
_ESCAPE = re.compile(r"\\([0-7]{3})")


class StepDir:
    """A folder that was made here, with its identity, to notice a folder that has since taken its path."""

    def __init__(self, path: str) -> None:
        """Make it. Raises OSError, also where a folder that is not empty already exists."""
        self.path = path
        for tries_left in (2, 1, 0):
            try:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                os.mkdir(path)
                break
            except FileNotFoundError:  # the last step on another node has just removed the empty parent
                if not tries_left:
                    raise
            except FileExistsError:
                # Left by an agent that was lost before the step began; a link or a used folder is somebody else's.
                if os.path.islink(path) or os.listdir(path):
                    raise
                break
        made = os.lstat(path)
        self.identity = "%d:%d" % (made.st_dev, made.st_ino)

    def remove_empty(self) -> bool:
        """Remove it where nothing was written, with the folders above that nothing else is in. Return whether it is gone."""
        try:
            os.rmdir(self.path)
        except FileNotFoundError:
            pass
        except OSError:
            return False
        # Of another machine, on which no records of the run are.
        with contextlib.suppress(OSError):
            os.rmdir(os.path.dirname(self.path))
            os.rmdir(os.path.dirname(os.path.dirname(self.path)))
        return True


def remove_contents(path: str, identity: str) -> str:
    """Remove the contents of a folder, links and not their targets. Return why something is left, empty if nothing is.

    `identity` is the folder's identity when it was made: a program may have put a link, or another folder, in its place.
    """
    try:
        found = os.lstat(path)
        if not stat.S_ISDIR(found.st_mode) or "%d:%d" % (found.st_dev, found.st_ino) != identity:
            return "it is no longer the folder that was made"
        mounted = mounts_below(path)
        if mounted:
            return "something is mounted in it, at %s" % mounted[0]
        try:
            _remove_entries(path)
        except OSError:
            open_folders(path)
            _remove_entries(path)
    except OSError as error:
        return format_oserror(error)
    except RecursionError:
        return "its folders are nested too deeply"
    return ""


def _remove_entries(path: str) -> None:
    from shutil import rmtree

    with os.scandir(path) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                rmtree(entry.path)  # follows no links, whatever is exchanged meanwhile
            else:
                os.unlink(entry.path)


def open_folders(path: str) -> None:
    """Make all folders below writable for us: package managers write-protect unpacked files."""
    for root, folders, _ in os.walk(path):
        for name in folders:
            folder = os.path.join(root, name)
            mode = os.lstat(folder).st_mode
            if stat.S_ISDIR(mode) and mode & 0o700 != 0o700:  # chmod would follow a link
                os.chmod(folder, stat.S_IMODE(mode) | 0o700)


def mounts_below(path: str) -> list[str]:
    """Return where something is mounted in a folder: removing would go on in another file system, or in a bound folder."""
    inside = os.path.realpath(path) + "/"
    points = (line.split(" ")[4] for line in read_text(_MOUNTS).splitlines() if line.count(" ") > 4)
    plain = (_ESCAPE.sub(lambda match: chr(int(match.group(1), 8)), point) for point in points)
    return [point for point in plain if point.startswith(inside)]
