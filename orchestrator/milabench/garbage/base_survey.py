"""The items of a base, and the unused ones among them.

Only items below the base are checked: folders that a system file moves elsewhere may serve other bases too.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from milabench.archives.bundle_runs import LOCKS, recorded_folders
from milabench.capsule.contents import is_unpacked
from milabench.devices.regular_file import read_regular
from milabench.errors import UsageError
from milabench.events.removal import is_scratch, mounted, obstacle
from milabench.events.values import as_mapping
from milabench.execute.inventory import COMPLETE, benchmate_digest, is_made, is_own_program
from milabench.execute.locks import RUN_LOCK, is_lock_free
from milabench.garbage.disk_use import StoredItem, Survey
from milabench.plan.container import FETCHED
from milabench.plan.prepare import OWN_DATA, data_lock, data_mark
from milabench.shown import grouped
from milabench.workflow.environments import BENCHMATE
from milabench.workflow.files import base_folder, display_path
from milabench.workflow.run_lookup import ACTIVE_STATES, RunHandle, all_runs
from milabench.workflow.suites_used import UsedSuite, is_gone, read_suites

REMOVED = ".removed"
"""The folder of the base into which things are moved before they are deleted."""
_PARENTS = ("venv/.store", "code", "data", "runs", "cache", "cache/wheels", "cache/images", "cache/capsules")
SETTLED_S = 3600.0  # an unfinished thing that is younger may be in the making
_DRAFT = re.compile(r"\.([0-9a-f]{16}\.tmp|milabench-[0-9a-f]{16}-.+)")
_MOVED = re.compile(rf"({re.escape(REMOVED)}-)?.+-[0-9a-f]{{8}}")
_STORED = re.compile(r"\.store/[^/]+-[0-9a-f]{16}")
_INSTRUMENTS = re.compile(r"benchmate-[0-9a-f]{16}")
NOT_MADE = "it does not carry the mark of milabench. Remove it yourself"
_CAPSULE_DRAFT = ".capsule.building"
_UNKNOWN = "which suites were used here is not recorded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The runs that may be removed: older than this many seconds, all but this number of the newest. None for both: no run."""

    older_than_s: float | None = None
    keep: int | None = None


def survey_base(base: Path | None, policy: Policy, *, forget: Sequence[str] = ()) -> Survey:
    """Return the items of a base and which of them are unused.

    `forget` names suites whose use no longer counts. Raises UsageError for a base or suite that is not there, RecordError.
    """
    folder = existing_base(base)
    known = read_suites(folder)
    forgotten = tuple(suite for name in forget for suite in _named(name, known or (), folder))
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
    mounts = mounted()
    items = [replace(item, kept=item.kept or obstacle(item.path, folder, mounts)) for item in items]
    items += _others(folder, items)
    notes = [f"{_UNKNOWN}. `milabench install --config SUITE` records it"] if known is None else []
    notes += [
        f"{suite} cannot be found, and its files are kept. --forget {suite.config} counts them as unused"
        for suite in roots.suites
        if not suite.exists
    ]
    notes += [f"{link} leads out of the base: its target is not touched" for link in sorted(set(outside.values()))]
    return Survey(base=folder, items=tuple(items), note="; ".join(notes), forgotten=forgotten)


def _links_outside(folders: Iterable[Path], base: Path) -> dict[Path, Path]:
    """Return the folders that a link moves out of the base, where other bases may use them, each with its link."""
    outside = {}
    for folder in folders:
        if not folder.resolve().is_relative_to(base):
            above = [path for path in (folder, *folder.parents) if path.is_relative_to(base) and path.is_symlink()]
            outside[folder] = above[-1] if above else folder
    return outside


def existing_base(base: Path | None) -> Path:
    """Return the base. Raises UsageError where there is none."""
    folder = base_folder(base)
    if not folder.is_dir():
        raise UsageError(
            f"{folder}: no such folder. Name the folder that `milabench install` and `run` used with --base"
        )
    return folder


def _named(name: str, known: Sequence[UsedSuite], base: Path) -> list[UsedSuite]:
    """Return the uses of a suite, by its name or path. Raises UsageError."""
    path = str(Path(name).expanduser().absolute())
    uses = [suite for suite in known if suite.config in (name, path) or str(suite.path) == path]
    if not uses:
        names = ", ".join(dict.fromkeys(suite.config for suite in known)) or "none"
        hint = "Your own are named by their paths"
        raise UsageError(f"--forget {name}: no such suite was used in {display_path(base)}. Used: {names}. {hint}")
    return uses


class _Roots:
    """The referenced items, and their users."""

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
        """Return the user of an item: a suite whose items, by `of_suite`, include it, or a run whose plan names its path."""
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
    return is_resumable or handle.state in ACTIVE_STATES


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
    locks_of = {handle.run.name: recorded_folders(handle.run.manifest.get("locks")) for handle in runs}
    runs_of = grouped((name, run) for run, folders in locks_of.items() for name in folders.values())
    for folder in _folders(store):
        lock = store / f"{folder.name}.lock"
        own = tuple(link for link, target in links.items() if target == folder.resolve())
        beside = (*own, store / f"{folder.name}.log", store / f"{folder.name}.commits")
        if not (folder / COMPLETE).exists():
            kept = "" if is_lock_free(lock) else "it is being built"
            kept = kept or ("" if (store / f"{folder.name}.log").is_file() else NOT_MADE)
            yield StoredItem(kind="leftovers", path=folder, kept=kept, lock=lock, beside=beside)
            continue
        kept = roots.kept_for(
            folder, lambda suite: (Path(name).name for name in suite.environments.values()), folder.name
        )
        of_runs = runs_of.get(folder.name, [])
        kept = kept or next((f"the run {name}" for name in of_runs if name in roots.needed), "")
        kept = kept or ("" if is_lock_free(lock) else "a command uses it")
        kept = kept or ("" if is_made(folder) else NOT_MADE)
        # Its lock goes into archives of runs that were made in it.
        saved = store / LOCKS / folder.name if of_runs else None
        yield StoredItem(kind="environments", path=folder, kept=kept, lock=lock, beside=beside, saved=saved)


def _programs(base: Path, roots: _Roots) -> Iterator[StoredItem]:
    code = base / "code"
    for folder in _folders(code):
        lock, marker = code / f".{folder.name}.lock", code / f".{folder.name}.complete"
        kept = roots.kept_for(
            folder, lambda suite: (name for names in suite.programs.values() for name in names), folder.name
        )
        kept = kept or ("" if is_lock_free(lock) else "a command uses it")
        kept = kept or ("" if is_own_program(folder) else NOT_MADE)
        yield StoredItem(kind="programs", path=folder, kept=kept, lock=lock, beside=(marker,))


def _data(base: Path, roots: _Roots) -> Iterator[StoredItem]:
    data = base / "data"
    for folder in _entries(data):
        if folder.name.startswith(f"{REMOVED}-") or folder.name == OWN_DATA:
            continue
        mark, lock = data_mark(data, folder.name), data_lock(data, folder.name)
        kept = roots.kept_for(folder, lambda suite: suite.data, folder.name)
        kept = kept or ("" if mark.is_file() else "it was not made by `milabench prepare`")
        kept = kept or ("" if is_lock_free(lock) else "a command uses it")
        yield StoredItem(kind="data", path=folder, kept=kept, lock=lock, beside=(mark,))


def _caches(base: Path, roots: _Roots, environments: Sequence[StoredItem]) -> Iterator[StoredItem]:
    cache = base / "cache"
    # An environment that was installed from a capsule may have the interpreter that lies there.
    pythons = [_text(item.path / "pyvenv.cfg") for item in environments if item.kept]
    current = f"benchmate-{benchmate_digest(BENCHMATE)[:16]}"
    for entry in _entries(cache):
        if entry.name == "wheels":
            for wheel in _folders(entry):
                kept = "new environments" if wheel.name == current else ""
                kept = kept or ("" if _holds_wheels(wheel) else NOT_MADE)
                yield StoredItem(kind="caches", path=wheel, kept=kept, lock=entry / f"{wheel.name}.lock")
        elif entry.name == "images":
            yield from _images(entry, roots)
        elif entry.name == "capsules":
            yield from _capsules(base, roots, pythons)
        elif entry.name != _CAPSULE_DRAFT:
            yield StoredItem(kind="caches", path=entry, kept="programs, which fill it themselves")


def _images(folder: Path, roots: _Roots) -> Iterator[StoredItem]:
    for image in _entries(folder):
        if image.name.startswith(f"{REMOVED}-") or image.suffix == FETCHED:
            continue
        mark = image.with_name(image.name + FETCHED)
        kept = roots.kept_for(image, lambda suite: suite.images.values(), str(image))
        kept = kept or ("" if mark.is_file() else NOT_MADE)
        yield StoredItem(kind="images", path=image, kept=kept, beside=(mark,))


def _capsules(base: Path, roots: _Roots, pythons: Sequence[str]) -> Iterator[StoredItem]:
    for capsule in _folders(base / "cache" / "capsules"):
        suites = (f"the suite {suite}" for suite in roots.suites if suite.path.is_relative_to(capsule))
        # Without the base, which may have been moved since.
        has_python = any(f"/{capsule.relative_to(base)}/" in text for text in pythons)
        kept = next(suites, "an environment uses its interpreter" if has_python else "")
        kept = kept or roots.kept_for(capsule, lambda _: (), "") or ("" if is_unpacked(capsule) else NOT_MADE)
        yield StoredItem(kind="caches", path=capsule, kept=kept)


def _holds_wheels(folder: Path) -> bool:
    """Return whether an installation made a folder for the instruments: it holds nothing but their wheel."""
    is_ours = _INSTRUMENTS.fullmatch(folder.name) is not None
    return is_ours and all(path.match("benchmate-*.whl") and path.is_file() for path in _entries(folder))


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
        if handle.state in ACTIVE_STATES:
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
    """Return when a run ended, in unix seconds. Without a journal, when its folder was last written."""
    return handle.status.ended or handle.run.path.stat().st_mtime


def _leftovers(base: Path) -> Iterator[StoredItem]:
    """Yield leftovers of killed commands."""
    for path in [
        *_entries(base / REMOVED),
        *(path for name in _PARENTS for path in (base / name).glob(f"{REMOVED}-*")),
    ]:
        if _MOVED.fullmatch(path.name):
            yield StoredItem(kind="leftovers", path=path)
    for path in _entries(base / "venv"):
        if path.is_symlink() and not path.exists() and _STORED.fullmatch(str(path.readlink())):
            yield StoredItem(kind="leftovers", path=path)
    for path, lock in (*_half_built(base), *_half_written(base)):
        yield _unfinished(path, lock)


def _half_built(base: Path) -> Iterator[tuple[Path, Path | None]]:
    """Yield the folders in which programs, wheels and capsules were being made, each with its lock."""
    code, wheels, cache = base / "code", base / "cache" / "wheels", base / "cache"
    found = [
        *((path, path.with_suffix(".lock")) for path in code.glob(".*.building")),
        *((path, wheels / f"{path.stem[1:]}.lock") for path in wheels.glob(".*.building")),
        *((path, None) for path in (*cache.glob(_CAPSULE_DRAFT), *(cache / "capsules").glob(".*"))),
    ]
    yield from ((path, lock) for path, lock in found if is_scratch(path))


def _half_written(base: Path) -> Iterator[tuple[Path, Path | None]]:
    """Yield the drafts of files, and the runs in which nothing was recorded."""
    runs = [path for path in _entries(base / "runs") if path.is_dir()]
    yield from ((path, None) for folder in (base, *runs) for path in _entries(folder) if _DRAFT.fullmatch(path.name))
    yield from ((run, run / RUN_LOCK) for run in runs if [path.name for path in _entries(run)] == [RUN_LOCK])


def _unfinished(path: Path, lock: Path | None) -> StoredItem:
    """Return something that was not finished. Kept while a running command may use it."""
    with contextlib.suppress(OSError):
        if (lock is not None and not is_lock_free(lock)) or time.time() - path.lstat().st_mtime < SETTLED_S:
            return StoredItem(kind="leftovers", path=path, kept="a running command may use it", lock=lock)
    return StoredItem(kind="leftovers", path=path, lock=lock)


def _others(base: Path, items: Sequence[StoredItem]) -> Iterator[StoredItem]:
    """Yield items of no other kind, so that the total equals the folder's."""
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


def _folders(folder: Path) -> list[Path]:
    """Return the folders in a folder, by name, but for hidden ones and links."""
    return [path for path in _entries(folder) if path.is_dir() and not path.is_symlink() and path.name[0] != "."]


def _entries(folder: Path) -> list[Path]:
    """Return the entries of a folder, by name. Empty where it cannot be read."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []
