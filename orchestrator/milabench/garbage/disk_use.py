"""The disk use of a base's items: files with several names are counted once, and freed when all of them go."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from milabench.workflow.suites_used import UsedSuite

KINDS = ("environments", "programs", "data", "images", "caches", "runs", "leftovers", "other")


_UNUSED = {
    "runs": "finished, and chosen by the options",
    "leftovers": "left by a command that ended",
    "caches": "of no suite, environment or version in use",
}


@dataclass(frozen=True, kw_only=True)
class StoredItem:
    """A folder or file of the base. `kept` names its user, empty when unused.

    `lock` is the file whose lock its users hold, `beside` are small files that go with it. `saved` is where its small files
    are copied before it goes, None for nowhere.
    """

    kind: str
    path: Path
    kept: str = ""
    lock: Path | None = None
    beside: tuple[Path, ...] = ()
    saved: Path | None = None

    @cached_property
    def usage(self) -> DiskUsage:
        """How much of the disk it takes. Read once."""
        return disk_usage(self.path)

    @property
    def why(self) -> str:
        """Why it counts as unused. Empty for kept items."""
        return (
            "" if self.kept else _UNUSED.get(self.kind, "no suite that was used here refers to it, and no run needs it")
        )

    @property
    def problem(self) -> str:
        """Why it cannot be removed although nothing refers to it. Empty when it can."""
        return f"{self.usage.foreign} belongs to another user" if not self.kept and self.usage.foreign else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskUsage:
    """The files of some folders: `{(device, inode): (bytes on the disk, links found, links in all)}`.

    `foreign` is the first thing that this user may not remove, empty when there is none.
    """

    inodes: Mapping[tuple[int, int], tuple[int, int, int]] = field(default_factory=dict)
    foreign: str = ""

    @property
    def size(self) -> int:
        """Bytes, a file with several names counted once."""
        return sum(size for size, _, _ in self.inodes.values())

    @property
    def freed(self) -> int:
        """Bytes freed by its removal: a file with a name elsewhere, such as in the cache of uv, stays."""
        return sum(size for size, found, links in self.inodes.values() if found >= links)


def disk_usage(path: Path) -> DiskUsage:
    """Return the disk use of a folder or file."""
    inodes: dict[tuple[int, int], tuple[int, int, int]] = {}
    foreign = ""
    user = os.geteuid()
    waiting = [(str(path), True)]
    while waiting:
        name, is_removable = waiting.pop()
        try:
            status = os.lstat(name)
        except OSError:
            continue
        is_folder = stat.S_ISDIR(status.st_mode)
        key = (status.st_dev, status.st_ino)
        found = inodes[key][1] if key in inodes else 0
        # A folder's links are those of its subfolders.
        inodes[key] = (status.st_blocks * 512, found + 1, 1 if is_folder else status.st_nlink)
        if is_folder:
            is_shared = os.access(name, os.W_OK | os.X_OK) and not status.st_mode & stat.S_ISVTX
            is_ours = user in (0, status.st_uid) or is_shared
            try:
                waiting += [(entry.path, is_ours) for entry in os.scandir(name)]
            except OSError:
                is_removable = is_removable and is_ours
        if not is_removable:
            foreign = foreign or name
    return DiskUsage(inodes=inodes, foreign=foreign)


def united(usages: Iterable[DiskUsage]) -> DiskUsage:
    """Return the disk use of several together: a file that they share is counted once, and freed when all of them go."""
    inodes: dict[tuple[int, int], tuple[int, int, int]] = {}
    for usage in usages:
        for key, (size, found, links) in usage.inodes.items():
            inodes[key] = (size, found + (inodes[key][1] if key in inodes else 0), links)
    return DiskUsage(inodes=inodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """Everything in a base. `note` names undecided parts, `forgotten` are suites that no longer count."""

    base: Path
    items: tuple[StoredItem, ...]
    note: str = ""
    forgotten: tuple[UsedSuite, ...] = ()

    @property
    def unused(self) -> tuple[StoredItem, ...]:
        """The unused items, which can be removed."""
        return tuple(item for item in self.items if not item.kept and not item.problem)

    @property
    def usage(self) -> DiskUsage:
        """The disk use of all items."""
        return united(item.usage for item in self.items)

    @property
    def reclaimable(self) -> DiskUsage:
        """The disk use of the unused items."""
        return united(item.usage for item in self.unused)

    def to_json(self) -> dict[str, Any]:
        """Return the survey as `milabench gc --json` prints it."""
        kinds = {kind: tuple(item for item in self.items if item.kind == kind) for kind in KINDS}
        return {
            "schema": 1,
            "base": str(self.base),
            "kinds": {kind: _totals(replace(self, items=items)) for kind, items in kinds.items()},
            "total": _totals(self),
            "items": [
                {
                    "kind": item.kind,
                    "path": str(item.path),
                    "bytes": item.usage.size,
                    "freed_bytes": item.usage.freed,
                    "kept": item.kept or item.problem or None,
                    "unused": item.why or None,
                }
                for item in self.items
            ],
            "note": self.note or None,
        }


def _totals(part: Survey) -> dict[str, int]:
    return {
        "count": len(part.items),
        "unused": len(part.unused),
        "bytes": part.usage.size,
        "reclaimable_bytes": part.reclaimable.freed,
        "shared_bytes": part.reclaimable.size - part.reclaimable.freed,
    }
