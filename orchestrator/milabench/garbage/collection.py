"""Removes unused items from a base, each completely or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from milabench.archives.bundle_runs import LOCK_FILES
from milabench.devices.regular_file import read_regular
from milabench.errors import os_reason
from milabench.events.atomic_write import replace_file
from milabench.events.removal import obstacle, put, remove
from milabench.execute.locks import hold_alone, hold_base
from milabench.garbage.base_survey import REMOVED, Policy, existing_base, survey_base
from milabench.garbage.disk_use import StoredItem, Survey, united
from milabench.workflow.options import Session
from milabench.workflow.suites_used import SUITES, forget_suites


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """The removed items, the freed bytes, and a line for each item that could not be removed."""

    removed: tuple[StoredItem, ...]
    freed: int
    failures: tuple[str, ...]


def collect_garbage(
    base: Path | None, policy: Policy, session: Session, *, forget: Sequence[str] = ()
) -> tuple[Survey, Removal]:
    """Remove unused items. Return the survey, and the removed items.

    Each item is moved away before it is deleted: leftovers of an interrupt are deleted by the next call. Waits for an
    install or a preparation to end. Raises the errors of `survey_base`, and EnvironmentFailed for a base that cannot be locked.
    """
    folder = existing_base(base)
    with hold_base(folder, "gc", say=session.note):
        survey = survey_base(folder, policy, forget=forget)
        is_unused = still_unused(folder, survey, policy, forget)
        removed, failures = [], [f"{item.path}: {item.problem}" for item in survey.items if item.problem]
        # On a full disk, what needs room to be removed comes when there is some.
        for item in sorted(survey.unused, key=lambda item: item.saved is not None):
            item.usage  # noqa: B018  read before it is gone
            try:
                if _remove(item, folder, is_unused):
                    removed.append(item)
                else:
                    failures.append(f"{item.path}: is in use")
            except OSError as error:
                failures.append(f"{item.path}: cannot be removed: {os_reason(error)}")
        with contextlib.suppress(OSError):
            (folder / REMOVED).rmdir()
        if survey.forgotten:
            forget_suites(folder, survey.forgotten)
    freed = united(item.usage for item in removed).freed
    return survey, Removal(removed=tuple(removed), freed=freed, failures=tuple(failures))


def still_unused(base: Path, survey: Survey, policy: Policy, forget: Sequence[str]) -> Callable[[StoredItem], bool]:
    """Return the function that tells whether an item is still unused: commands record their uses when they begin."""
    seen, unused = _version(base / SUITES), {item.path for item in survey.unused}

    def is_unused(item: StoredItem) -> bool:
        nonlocal seen, unused
        if (version := _version(base / SUITES)) != seen:
            seen, unused = version, {item.path for item in survey_base(base, policy, forget=forget).unused}
        return item.path in unused

    return is_unused


def _version(file: Path) -> tuple[int, int]:
    """Return a value that tells a file from its replacement."""
    try:
        status = file.stat()
    except OSError:
        return 0, 0
    return status.st_ino, status.st_mtime_ns


def _remove(item: StoredItem, base: Path, is_unused: Callable[[StoredItem], bool]) -> bool:
    """Remove a thing. Return False when somebody uses it. Raises OSError."""
    # Asked before it is held: the answer looks at its lock.
    if not is_unused(item):
        return False
    with hold_alone(item.lock) as is_ours:
        if not is_ours:
            return False
        if item.saved is not None:
            for name in LOCK_FILES:
                if (item.path / name).is_file():
                    item.saved.mkdir(parents=True, exist_ok=True)
                    replace_file(item.saved / name, read_regular(item.path / name))
        # Mounted, or exchanged for a link, since it was looked at.
        if why := obstacle(item.path, base):
            raise OSError(errno.EXDEV, why)
        moved = item.path if _is_moved(item.path, base) else _moved_away(item.path, base)
        for path in item.beside:
            remove(path, base, is_quiet=True)
    if moved.is_dir() and not moved.is_symlink():
        _make_writable(moved)
    remove(moved, base)
    return True


def _is_moved(path: Path, base: Path) -> bool:
    """Return whether an earlier call has moved a thing away."""
    return path.parent == base / REMOVED or path.name.startswith(f"{REMOVED}-")


def _moved_away(path: Path, base: Path) -> Path:
    """Move an item to a place where nobody uses it. Return the place."""
    name = f"{path.name.lstrip('.')}-{secrets.token_hex(4)}"
    try:
        (base / REMOVED).mkdir(exist_ok=True)
        return put(path, base / REMOVED / name)
    except OSError as error:
        # A disk that is full, or a folder of the base that is a link to another disk.
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EXDEV):
            raise
    return put(path, path.with_name(f"{REMOVED}-{name}"))


def _make_writable(folder: Path) -> None:
    """Let us delete the contents of our own folders, also where a program has made them read-only."""
    for path, folders, _ in [(str(folder.parent), [folder.name], []), *os.walk(folder)]:
        for name in folders:
            inner = Path(path, name)
            if not inner.is_symlink() and not os.access(inner, os.R_OK | os.W_OK | os.X_OK):
                inner.chmod(0o700)
