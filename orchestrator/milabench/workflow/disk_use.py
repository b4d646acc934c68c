"""What lies in a base, how much of the disk it takes, and what nothing refers to; removes that, whole or not at all.

Only what is below the base is looked at: folders that a system file moves elsewhere may serve other bases too.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from milabench.devices.regular_file import read_regular
from milabench.errors import UsageError
from milabench.events.atomic_write import replace_file
from milabench.events.values import as_mapping
from milabench.execute.inventory import COMPLETE, benchmate_digest
from milabench.execute.locks import RUN_LOCK, hold_base
from milabench.plan.prepare import MARKERS
from milabench.workflow.bundle_runs import LOCK_FILES, LOCKS, recorded_folders
from milabench.workflow.environments import BENCHMATE
from milabench.workflow.files import base_folder, display_path
from milabench.workflow.options import Session
from milabench.workflow.run_lookup import ACTIVE, RunHandle, all_runs
from milabench.workflow.suites_used import UsedSuite, forget_suites, is_gone, read_suites

KINDS = ("environments", "programs", "data", "images", "caches", "runs", "leftovers", "other")
REMOVED = ".removed"
"""The folder of the base into which things are moved before they are deleted."""
_PARENTS = ("venv/.store", "code", "data", "runs", "cache", "cache/wheels", "cache/images", "cache/capsules")
SETTLED_S = 3600.0  # an unfinished thing that is younger may be in the making
_DRAFT = re.compile(r"\.([0-9a-f]{16}\.tmp|milabench-[0-9a-f]{16}-.+)")
_CAPSULE_DRAFT = ".capsule.building"
_UNKNOWN = "which suites were used here is not recorded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Which runs may go: those older than so many seconds, all but so many of the newest; None for both: none."""

    older_than_s: float | None = None
    keep: int | None = None


@dataclass(frozen=True, kw_only=True)
class StoredItem:
    """A folder or file of the base; `kept` says what it is kept for, empty when nothing refers to it.

    `lock` is the file whose lock its users hold, `beside` are small files that go with it. `saved` is where small files of it
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
        """How much of the disk it takes; read once."""
        return disk_usage(self.path)

    @property
    def problem(self) -> str:
        """Why it cannot be removed although nothing refers to it; empty when it can."""
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
        """Bytes that removing all of it frees: a file with a name elsewhere, such as in the cache of uv, stays."""
        return sum(size for size, found, links in self.inodes.values() if found >= links)


def disk_usage(path: Path) -> DiskUsage:
    """Return what a folder or file takes."""
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
    """Return what several take together: a file that they share is counted once, and freed when all of them go."""
    inodes: dict[tuple[int, int], tuple[int, int, int]] = {}
    for usage in usages:
        for key, (size, found, links) in usage.inodes.items():
            inodes[key] = (size, found + (inodes[key][1] if key in inodes else 0), links)
    return DiskUsage(inodes=inodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """Everything in a base; `note` says what could not be decided, `forgotten` are suites that no longer count."""

    base: Path
    items: tuple[StoredItem, ...]
    note: str = ""
    forgotten: tuple[UsedSuite, ...] = ()

    @property
    def unused(self) -> tuple[StoredItem, ...]:
        """What nothing refers to, and can be removed."""
        return tuple(item for item in self.items if not item.kept and not item.problem)

    def of_kind(self, kind: str) -> Survey:
        """Return the part of one kind."""
        return Survey(base=self.base, items=tuple(item for item in self.items if item.kind == kind))

    @property
    def usage(self) -> DiskUsage:
        """What all of it takes."""
        return united(item.usage for item in self.items)

    @property
    def reclaimable(self) -> DiskUsage:
        """What is unused of it takes."""
        return united(item.usage for item in self.unused)

    def to_json(self) -> dict[str, Any]:
        """Return the survey as `milabench gc --json` prints it."""
        kinds = {kind: self.of_kind(kind) for kind in KINDS}
        return {
            "schema": 1,
            "base": str(self.base),
            "kinds": {kind: _totals(part) for kind, part in kinds.items()},
            "total": _totals(self),
            "items": [
                {
                    "kind": item.kind,
                    "path": str(item.path),
                    "bytes": item.usage.size,
                    "freed_bytes": item.usage.freed,
                    "kept": item.kept or item.problem or None,
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


def survey_base(base: Path | None, policy: Policy, *, forget: Sequence[str] = ()) -> Survey:
    """Return what lies in a base and what nothing refers to.

    `forget` names suites whose use no longer counts. Raises UsageError for a base or suite that is not there, RecordError.
    """
    folder = _existing(base)
    known = read_suites(folder)
    forgotten = tuple(suite for name in forget for suite in _named(name, known or (), folder))
    forgotten += tuple(suite for suite in known or () if not suite.exists and suite not in forgotten)
    runs = all_runs(folder)
    roots = _Roots(known, forgotten, runs)
    environments = tuple(_environments(folder, roots, runs))
    items = [
        *environments,
        *_programs(folder, roots),
        *_data(folder, roots),
        *_caches(folder, roots, environments),
        *_runs(folder, roots, runs, policy),
        *_leftovers(folder),
    ]
    outside = _links_outside({item.path.parent for item in items}, folder)
    items = [item for item in items if item.path.parent not in outside]
    items += _others(folder, items)
    notes = [f"{_UNKNOWN}; `milabench install --config SUITE` records it"] if known is None else []
    notes += [f"{link} leads out of the base: what is there is left as it is" for link in sorted(set(outside.values()))]
    return Survey(base=folder, items=tuple(items), note="; ".join(notes), forgotten=forgotten)


def _links_outside(folders: Iterable[Path], base: Path) -> dict[Path, Path]:
    """Return those of the folders that a link moves out of the base, where other bases may use them, each with that link."""
    outside = {}
    for folder in folders:
        if not folder.resolve().is_relative_to(base):
            above = [path for path in (folder, *folder.parents) if path.is_relative_to(base) and path.is_symlink()]
            outside[folder] = above[-1] if above else folder
    return outside


def _existing(base: Path | None) -> Path:
    """Return the base. Raises UsageError where there is none."""
    folder = base_folder(base)
    if not folder.is_dir():
        raise UsageError(
            f"{folder}: no such folder; --base names the one that `milabench install` and `run` were given"
        )
    return folder


def _named(name: str, known: Sequence[UsedSuite], base: Path) -> list[UsedSuite]:
    """Return the uses of a suite, by its name or path. Raises UsageError."""
    path = str(Path(name).expanduser().absolute())
    uses = [suite for suite in known if suite.config in (name, path) or str(suite.path) == path]
    if not uses:
        names = ", ".join(dict.fromkeys(suite.config for suite in known)) or "none"
        hint = "your own are named by their paths"
        raise UsageError(f"--forget {name}: no such suite was used in {display_path(base)}; {hint}; used: {names}")
    return uses


class _Roots:
    """What is referred to, and by what."""

    def __init__(
        self, known: Sequence[UsedSuite] | None, forgotten: Sequence[UsedSuite], runs: Sequence[RunHandle]
    ) -> None:
        self.is_known = known is not None
        self.suites = [suite for suite in known or () if suite not in forgotten]
        self.needed = {handle.run.name: handle for handle in runs if is_needed(handle)}
        if known is not None:
            last = _last_of_unrecorded(runs, {str(suite.path) for suite in known})
            self.needed |= {handle.run.name: handle for handle in last}
        self._plans = {name: json.dumps(handle.run.manifest.get("plan")) for name, handle in self.needed.items()}

    def kept_for(self, path: Path, of_suite: Callable[[UsedSuite], Iterable[str]], name: str) -> str:
        """Return what keeps a thing: a suite whose things, by `of_suite`, it is among, or a run whose plan names its path."""
        for suite in self.suites:
            if name in of_suite(suite):
                return f"the suite {suite}"
        # As JSON, in which the plans are too.
        text = json.dumps(str(path))[1:-1]
        for run, plan in self._plans.items():
            if re.search(re.escape(text) + r"(?![\w.+-])", plan):
                return f"the run {run}"
        return "" if self.is_known else _UNKNOWN


def is_needed(handle: RunHandle) -> bool:
    """Return whether a run is active, or was interrupted and can be resumed."""
    is_resumable = handle.run.phase == "run" and handle.state in ("cut off", "interrupted")
    return is_resumable or handle.state in ACTIVE


def _last_of_unrecorded(runs: Sequence[RunHandle], recorded: Collection[str]) -> list[RunHandle]:
    """Return the last run of each suite that exists and that only an older version has used."""
    last: dict[str, RunHandle] = {}
    for handle in runs:  # oldest first
        file = str(as_mapping(handle.run.manifest.get("options")).get("config_file"))
        if file not in recorded and not is_gone(Path(file)):
            last[file] = handle
    return list(last.values())


def _environments(base: Path, roots: _Roots, runs: Sequence[RunHandle]) -> Iterator[StoredItem]:
    store = base / "venv" / ".store"
    links = {link: link.resolve() for link in _entries(store.parent) if link.is_symlink()}
    # By their locks: plans of older versions name the link.
    runs_of: dict[str, list[str]] = {}
    for handle in runs:
        for name in recorded_folders(handle.run.manifest.get("locks")).values():
            runs_of.setdefault(name, []).append(handle.run.name)
    for folder in _entries(store):
        if not folder.is_dir() or folder.is_symlink() or folder.name.startswith("."):
            continue
        lock = store / f"{folder.name}.lock"
        own = tuple(link for link, target in links.items() if target == folder.resolve())
        beside = (*own, store / f"{folder.name}.log")
        if not (folder / COMPLETE).exists():
            kept = "" if _is_free(lock) else "it is being built"
            yield StoredItem(kind="leftovers", path=folder, kept=kept, lock=lock, beside=beside)
            continue
        kept = roots.kept_for(
            folder, lambda suite: (Path(name).name for name in suite.environments.values()), folder.name
        )
        of_runs = runs_of.get(folder.name, [])
        kept = kept or next((f"the run {name}" for name in of_runs if name in roots.needed), "")
        kept = kept or ("" if _is_free(lock) else "a command uses it")
        # Its lock goes into archives of runs that were made in it.
        saved = store / LOCKS / folder.name if of_runs else None
        yield StoredItem(kind="environments", path=folder, kept=kept, lock=lock, beside=beside, saved=saved)


def _programs(base: Path, roots: _Roots) -> Iterator[StoredItem]:
    code = base / "code"
    for folder in _entries(code):
        if folder.name.startswith(".") or not folder.is_dir():
            continue
        lock, marker = code / f".{folder.name}.lock", code / f".{folder.name}.complete"
        kept = roots.kept_for(
            folder, lambda suite: (name for names in suite.programs.values() for name in names), folder.name
        )
        kept = kept or ("" if _is_free(lock) else "a command uses it")
        yield StoredItem(kind="programs", path=folder, kept=kept, lock=lock, beside=(marker,))


def _data(base: Path, roots: _Roots) -> Iterator[StoredItem]:
    for folder in _entries(base / "data"):
        if folder.name.startswith(f"{REMOVED}-"):
            continue
        kept = roots.kept_for(folder, lambda suite: suite.data, folder.name)
        if not kept and not (folder / MARKERS).is_dir():
            kept = "it was not made by `milabench prepare`"
        yield StoredItem(kind="data", path=folder, kept=kept)


def _caches(base: Path, roots: _Roots, environments: Sequence[StoredItem]) -> Iterator[StoredItem]:
    cache = base / "cache"
    # An environment that was installed from a capsule may have the interpreter that lies there.
    pythons = [_text(item.path / "pyvenv.cfg") for item in environments if item.kept]
    current = f"benchmate-{benchmate_digest(BENCHMATE)[:16]}"
    for entry in _entries(cache):
        if entry.name == "wheels":
            for wheel in _entries(entry):
                if wheel.is_dir() and not wheel.name.startswith("."):
                    kept = "new environments" if wheel.name == current else ""
                    yield StoredItem(kind="caches", path=wheel, kept=kept, lock=entry / f"{wheel.name}.lock")
        elif entry.name == "images":
            for image in _entries(entry):
                kept = roots.kept_for(image, lambda suite: suite.images.values(), str(image))
                yield StoredItem(kind="images", path=image, kept=kept)
        elif entry.name == "capsules":
            for capsule in _entries(entry):
                if capsule.name.startswith("."):
                    continue
                suites = (f"the suite {suite}" for suite in roots.suites if suite.path.is_relative_to(capsule))
                # Without the base, which may have been moved since.
                has_python = any(f"/{capsule.relative_to(base)}/" in text for text in pythons)
                kept = next(suites, "an environment uses its interpreter" if has_python else "")
                yield StoredItem(kind="caches", path=capsule, kept=kept)
        elif entry.name != _CAPSULE_DRAFT:
            yield StoredItem(kind="caches", path=entry, kept="programs, which fill it themselves")


def _text(path: Path) -> str:
    try:
        return read_regular(path).decode(errors="replace")
    except OSError:
        return ""


def _runs(base: Path, roots: _Roots, runs: Sequence[RunHandle], policy: Policy) -> Iterator[StoredItem]:
    references = {suite.reference for suite in roots.suites} | {str(h.run.manifest.get("reference")) for h in runs}
    now = time.time()
    newest_first = sorted(runs, key=_ended, reverse=True)
    for number, handle in enumerate(newest_first):
        run = handle.run
        is_old = policy.older_than_s is None or now - _ended(handle) > policy.older_than_s
        is_beyond = policy.keep is None or number >= policy.keep
        if handle.state in ACTIVE:
            kept = "it is active"
        elif is_needed(handle):
            kept = "`milabench resume` can continue it"
        elif {run.name, str(run.path)} & references:
            kept = "scores are relative to it"
        elif policy.older_than_s is None and policy.keep is None:
            kept = "no option removes runs"
        else:
            kept = "" if is_old and is_beyond else "it is recent"
        yield StoredItem(kind="runs", path=run.path, kept=kept, lock=run.path / RUN_LOCK)


def _ended(handle: RunHandle) -> float:
    """Return when a run ended, in unix seconds; without a journal, when its folder was last written."""
    return handle.status.ended or handle.run.path.stat().st_mtime


def _leftovers(base: Path) -> Iterator[StoredItem]:
    """Yield what commands that were killed left behind."""
    for path in [
        *_entries(base / REMOVED),
        *(path for name in _PARENTS for path in (base / name).glob(f"{REMOVED}-*")),
    ]:
        yield StoredItem(kind="leftovers", path=path)
    for path in _entries(base / "venv"):
        if path.is_symlink() and not path.exists():
            yield StoredItem(kind="leftovers", path=path)
    for path, lock in (*_half_built(base), *_half_written(base)):
        yield _unfinished(path, lock)


def _half_built(base: Path) -> Iterator[tuple[Path, Path | None]]:
    """Yield the folders in which programs, wheels and capsules were being made, each with its lock."""
    code, wheels, cache = base / "code", base / "cache" / "wheels", base / "cache"
    yield from ((path, path.with_suffix(".lock")) for path in code.glob(".*.building"))
    yield from ((path, wheels / f"{path.stem[1:]}.lock") for path in wheels.glob(".*.building"))
    yield from ((path, None) for path in (*cache.glob(_CAPSULE_DRAFT), *(cache / "capsules").glob(".*")))


def _half_written(base: Path) -> Iterator[tuple[Path, Path | None]]:
    """Yield the drafts of files, and the runs in which nothing was recorded."""
    runs = [path for path in _entries(base / "runs") if path.is_dir()]
    yield from ((path, None) for folder in (base, *runs) for path in _entries(folder) if _DRAFT.fullmatch(path.name))
    yield from ((run, run / RUN_LOCK) for run in runs if all(path.name == RUN_LOCK for path in _entries(run)))


def _unfinished(path: Path, lock: Path | None) -> StoredItem:
    """Return something that was not finished; kept while a running command may use it."""
    with contextlib.suppress(OSError):
        if (lock is not None and not _is_free(lock)) or time.time() - path.lstat().st_mtime < SETTLED_S:
            return StoredItem(kind="leftovers", path=path, kept="a running command may use it", lock=lock)
    return StoredItem(kind="leftovers", path=path, lock=lock)


def _others(base: Path, items: Sequence[StoredItem]) -> Iterator[StoredItem]:
    """Yield what belongs to no other kind, so that the total is that of the folder."""
    surveyed = {item.path for item in items}
    inner = {parent for path in surveyed for parent in path.parents}
    waiting = [base]
    while waiting:
        for path in _entries(waiting.pop()):
            if path in surveyed:
                continue
            if path in inner:
                waiting.append(path)
            else:
                yield StoredItem(kind="other", path=path, kept="it is no kind of thing that `gc` removes")


def _entries(folder: Path) -> list[Path]:
    """Return what is in a folder, by name; nothing where it cannot be read."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _is_free(lock: Path) -> bool:
    """Return whether nobody holds the lock of a thing; true where it has none."""
    with _held(lock) as is_held:
        return is_held


@contextlib.contextmanager
def _held(lock: Path | None) -> Iterator[bool]:
    """Hold the lock of a thing alone; yields whether it could be had."""
    if lock is None:
        yield True
        return
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        yield True
        return
    except OSError:
        yield False
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        yield False
        return
    except OSError:  # a file system without locks
        pass
    try:
        yield True
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """What was removed, how many bytes that freed, and one line for each thing that could not be."""

    removed: tuple[StoredItem, ...]
    freed: int
    failures: tuple[str, ...]


def collect_garbage(
    base: Path | None, policy: Policy, session: Session, *, forget: Sequence[str] = ()
) -> tuple[Survey, Removal]:
    """Remove what nothing refers to; return what there was, and what was removed of it.

    Each thing is moved away whole before it is deleted: what an interrupt leaves is deleted by the next call. Waits for an
    install or a preparation to end. Raises what `survey_base` raises, and EnvironmentFailed for a base that cannot be locked.
    """
    folder = _existing(base)
    with hold_base(folder, "gc", say=session.note):
        survey = survey_base(folder, policy, forget=forget)
        removed, failures = [], [f"{item.path}: {item.problem}" for item in survey.items if item.problem]
        # On a full disk, what needs room to be removed comes when there is some.
        for item in sorted(survey.unused, key=lambda item: item.saved is not None):
            item.usage  # noqa: B018  read before it is gone
            try:
                if _remove(item, folder):
                    removed.append(item)
                else:
                    failures.append(f"{item.path}: is in use")
            except OSError as error:
                failures.append(f"{item.path}: cannot be removed: {(error.strerror or str(error)).lower()}")
        with contextlib.suppress(OSError):
            (folder / REMOVED).rmdir()
        if survey.forgotten:
            forget_suites(folder, survey.forgotten)
    freed = united(item.usage for item in removed).freed
    return survey, Removal(removed=tuple(removed), freed=freed, failures=tuple(failures))


def _remove(item: StoredItem, base: Path) -> bool:
    """Remove a thing; return False when somebody uses it. Raises OSError."""
    with _held(item.lock) as is_ours:
        if not is_ours:
            return False
        if item.saved is not None:
            for name in LOCK_FILES:
                if (item.path / name).is_file():
                    item.saved.mkdir(parents=True, exist_ok=True)
                    replace_file(item.saved / name, read_regular(item.path / name))
        moved = item.path if _is_moved(item.path, base) else _moved_away(item.path, base)
        for path in item.beside:
            with contextlib.suppress(OSError):
                path.unlink()
    if moved.is_dir() and not moved.is_symlink():
        _make_writable(moved)
        shutil.rmtree(moved)
    else:
        moved.unlink()
    return True


def _is_moved(path: Path, base: Path) -> bool:
    """Return whether an earlier call has moved a thing away."""
    return path.parent == base / REMOVED or path.name.startswith(f"{REMOVED}-")


def _moved_away(path: Path, base: Path) -> Path:
    """Move a thing to where nobody takes it for one; return where."""
    name = f"{path.name.lstrip('.')}-{secrets.token_hex(4)}"
    try:
        (base / REMOVED).mkdir(exist_ok=True)
        return path.rename(base / REMOVED / name)
    except OSError as error:
        # A disk that is full, or a folder of the base that is a link to another disk.
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EXDEV):
            raise
    return path.rename(path.with_name(f"{REMOVED}-{name}"))


def _make_writable(folder: Path) -> None:
    """Let us delete what is in our own folders, also where a program has made them read-only."""
    for path, folders, _ in [(str(folder.parent), [folder.name], []), *os.walk(folder)]:
        for name in folders:
            inner = Path(path, name)
            if not inner.is_symlink() and not os.access(inner, os.R_OK | os.W_OK | os.X_OK):
                inner.chmod(0o700)
