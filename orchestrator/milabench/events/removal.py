"""Removes and replaces files that milabench made. No other module of the control plane removes, renames or copies a thing.

Files of others stay: outside of the base, behind a link, or mounted.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

MARK = ".made-by-milabench"
"""The file in a folder that milabench works in for a while: without it, a folder of that name is somebody's own."""
NOT_OURS = "exists, and milabench did not make it. Move it away"


def wrong_name(name: str) -> str:
    """Return the problem with a name that a file holds. Empty for a name that can be joined to a folder."""
    parts = name.rstrip("/").split("/")
    if not name or "\0" in name or "\\" in name or any(ord(char) < 32 for char in name):
        return "has an invalid file name"
    if name.startswith("/") or (len(name) > 1 and name[1] == ":"):
        return "has an absolute name"
    if any(part in ("", ".", "..") for part in parts):
        return "has a name outside the archive"
    return ""


def path_within(folder: Path, name: str) -> Path:
    """Return the path of a name that a file holds, below a folder. Raises ValueError for a name that leads elsewhere."""
    if what := wrong_name(name):
        raise ValueError(f"{name[:200]!r} {what}")
    path = folder / name
    if not path.parent.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"{name[:200]!r} leads out of {folder}")
    return path


def mounted() -> tuple[Path, ...]:
    """Return where file systems are mounted. Nothing where the kernel does not say."""
    try:
        lines = Path("/proc/self/mountinfo").read_bytes().splitlines()
    except OSError:
        return ()
    escaped = (re.sub(rb"\\([0-7]{3})", lambda code: bytes([int(code[1], 8)]), line.split(b" ")[4]) for line in lines)
    return tuple(Path(os.fsdecode(name)) for name in escaped)


def obstacle(path: Path, base: Path, mounts: Iterable[Path] | None = None) -> str:
    """Return why a thing of a base must not be removed: it is elsewhere, or something is mounted there; empty for nothing."""
    base, place = base.resolve(), path.parent.resolve() / path.name
    if path.name in ("", ".."):
        place = path.resolve()
    if place == base or not place.is_relative_to(base):
        return f"it is not below {base}"
    for mount in mounted() if mounts is None else mounts:
        is_inside = mount.is_relative_to(place)
        if is_inside or (mount != base and mount.is_relative_to(base) and place.is_relative_to(mount)):
            return f"another file system is mounted at {mount}"
    return ""


def remove(path: Path, base: Path | None = None, *, is_quiet: bool = False) -> None:
    """Remove a file, a link or a folder with all that is in it, where it exists.

    Raises OSError, also for paths not below `base` and where something is mounted. With `is_quiet` a path that cannot be removed
    stays.
    """
    with contextlib.suppress(OSError) if is_quiet else contextlib.nullcontext():
        is_folder = path.is_dir() and not path.is_symlink()
        if (base is not None or is_folder) and (why := obstacle(path, base or path.parent)):
            raise OSError(errno.EXDEV, why, str(path))
        if is_folder:
            shutil.rmtree(path, ignore_errors=is_quiet)
        else:
            path.unlink(missing_ok=True)


def put(source: Path, target: Path) -> Path:
    """Give a thing its name, where nothing has that name. Raises OSError, FileExistsError for an existing file."""
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, NOT_OURS, str(target))
    return source.rename(target)


def replace(source: Path, target: Path) -> Path:
    """Give a file of ours the name of another file of ours. Raises OSError."""
    return source.replace(target)


def move(source: Path, target: Path) -> None:
    """Move a thing to where nothing is, also to another file system. Raises OSError."""
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, NOT_OURS, str(target))
    shutil.move(source, target)


def copy_tree(
    source: Path,
    target: Path,
    ignore: Callable[[str, list[str]], Iterable[str]] | None = None,
    *,
    keeps_links: bool = False,
    is_added: bool = False,
) -> None:
    """Copy a folder to a new path, or with `is_added` into a folder of ours. Raises OSError and shutil.Error."""
    shutil.copytree(
        source, target, ignore=ignore, symlinks=keeps_links, ignore_dangling_symlinks=True, dirs_exist_ok=is_added
    )


def is_scratch(folder: Path) -> bool:
    """Return whether a folder is a working folder of milabench, or empty."""
    try:
        return folder.is_dir() and not folder.is_symlink() and ((folder / MARK).is_file() or not any(folder.iterdir()))
    except OSError:
        return False


@contextlib.contextmanager
def scratch_folder(folder: Path) -> Iterator[Path]:
    """Make a folder for the time of the context. Leftovers of a killed process are removed first.

    Raises OSError, FileExistsError for a folder of that name without our mark.
    """
    try:
        yield fresh_scratch(folder)
    finally:
        if is_scratch(folder):
            with contextlib.suppress(OSError):
                remove_scratch(folder)


def fresh_scratch(folder: Path) -> Path:
    """Make a folder with our mark in place of an earlier folder. Return it. Raises OSError as `scratch_folder` does."""
    if os.path.lexists(folder) and not is_scratch(folder):
        raise FileExistsError(errno.EEXIST, NOT_OURS, str(folder))
    remove_scratch(folder)
    folder.mkdir(parents=True)
    (folder / MARK).touch()
    return folder


def remove_scratch(folder: Path) -> None:
    """Remove such a folder, its mark last: leftovers of a kill are still known to be ours. Raises OSError."""
    if not folder.exists():
        return
    for path in folder.iterdir():
        if path.name != MARK:
            remove(path, folder)
    remove(folder)


@contextlib.contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Yield a draft that becomes a new folder when the block has ended. After an error it is removed.

    Raises OSError, FileExistsError where there is something of that name.
    """
    if os.path.lexists(folder):
        raise FileExistsError(errno.EEXIST, "exists", str(folder))
    folder.parent.mkdir(parents=True, exist_ok=True)
    with scratch_folder(folder.with_name(f".{folder.name}.{os.urandom(4).hex()}.draft")) as scratch:
        yield scratch / folder.name
        put(scratch / folder.name, folder)
