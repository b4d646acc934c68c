"""Virtual environments: their needs are looked up first, then they are built several at a time and linked atomically."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from milabench.errors import EnvironmentFailed, os_reason
from milabench.events.removal import NOT_OURS, remove
from milabench.events.removal import replace as replace_own
from milabench.execute.activities import Activities
from milabench.execute.install_session import Installed, InstallOptions, InstallSession, hold_lock
from milabench.execute.interrupts import abandonable, thread_map
from milabench.execute.inventory import (
    is_complete,
    is_linked,
    is_made,
    store_folder,
    venv_link,
)
from milabench.execute.needs import Need, PackageFile, measured, total
from milabench.execute.package_indexes import opener_of, uv_env
from milabench.execute.sizes import size_text
from milabench.execute.venv_build import VenvBuild
from milabench.plan.context import Dirs
from milabench.plan.venvs import VenvSpec

# Room that is wanted beyond an estimate: of quickstart's five environments 2.8 GB were announced and 3.3 GB taken.
MARGIN = 1.25
MEASURING_S = 10.0


def install_venvs(
    specs: Sequence[VenvSpec], dirs: Dirs, options: InstallOptions, activities: Activities
) -> tuple[Installed, ...]:
    """Make every environment ready, several at a time. A failed environment does not keep the others from being built.

    Complete environments are left alone, at the cost of reading a file. `activities` show the current work. Raises
    EnvironmentFailed when the base folder cannot be written, or, before anything is downloaded, where its disk has not the room.
    On KeyboardInterrupt everything that was started is ended first.
    """
    if not any(_must_build(dirs, spec, options) or not is_linked(dirs, spec) for spec in specs):
        return tuple(Installed(name=spec.group) for spec in specs)
    work = _Installation(dirs, options, activities)
    work.require_space([spec for spec in specs if _must_build(dirs, spec, options)])
    return thread_map(work.make_ready, specs, jobs=options.jobs, stop=work.stop)


class _Installation(InstallSession):
    """The environments of an install."""

    def require_space(self, specs: Sequence[VenvSpec]) -> None:
        """Report the needs of building these environments. Raises EnvironmentFailed where a disk has too little room."""
        if not specs:
            return
        found = thread_map(self._files, specs, jobs=self.options.jobs, stop=self.stop)
        needs = self._measured([need for need in found if need is not None])
        cache = self._cache()
        is_linked = cache is not None and _is_one_disk(cache, self.store, self.options.environ)
        remaining = iter(needs)
        for spec, need in zip(specs, found, strict=True):
            if need is not None:
                self.packages[spec.group] = len(need.files)
            known = total([next(remaining)], is_linked=is_linked) if need is not None else None
            self.activities.report(f"{spec.group}: needs: {known or 'the size of the download is unknown'}")
        takes = total(needs, is_linked=is_linked)
        if len(specs) > 1 and needs:
            self.activities.report(f"all environments, shared packages counted once: {takes}")
        wanted = {self.store: takes.base}
        if cache is not None:
            there = self.store if _is_one_disk(cache, self.store, {}) else cache
            wanted[there] = wanted.get(there, 0) + takes.cache
        for folder, size in wanted.items():
            free = shutil.disk_usage(folder).free
            self.activities.report(f"free: {size_text(free)} for {folder}")
            if MARGIN * size > free and not self.options.ignore_space:
                raise EnvironmentFailed(
                    f"{folder}: too little space: about {size_text(size)} are needed on its disk, a quarter more for "
                    f"unknown needs, and {size_text(free)} are free. "
                    "Make room, choose another folder with --base (UV_CACHE_DIR for the cache of uv), or begin all the same "
                    "with --ignore-space"
                )

    def _files(self, spec: VenvSpec) -> Need | None:
        """Return the files that an environment needs, not measured yet. None where nobody tells."""
        self.activities.now(spec.group, "looking up the downloads")
        try:
            with Path(os.devnull).open("w", encoding="utf-8") as log:
                return VenvBuild(self, spec, store_folder(self.dirs, spec), log, log.fileno()).need()
        except (EnvironmentFailed, OSError):
            if self.is_stopped:
                raise
            return None  # the installation finds it too, and says it better
        finally:
            self.activities.over(spec.group)

    def _measured(self, needs: Sequence[Need]) -> list[Need]:
        """Return them with the sizes of their files. Servers are asked only for files that are not cached."""
        files = {file.url: file for need in needs for file in need.files}
        missing = {url for need in needs for url in need.fetched}
        opener = None
        try:
            if not self.options.is_sealed:
                opener = opener_of({**self.options.environ, **uv_env(self.pip_settings, self.options.environ)})
        except OSError:  # the certificates cannot be read, which uv will say
            pass

        def measure(file: PackageFile) -> PackageFile:
            if file.url not in missing or opener is None:
                return measured(file, None)
            try:
                return abandonable(partial(measured, file, opener), lambda: self.is_stopped, MEASURING_S)
            except TimeoutError:
                return measured(file, None)

        sizes = dict(zip(files, thread_map(measure, files.values(), jobs=8, stop=self.stop), strict=True))
        return [replace(need, files=tuple(sizes[file.url] for file in need.files)) for need in needs]

    def _cache(self) -> Path | None:
        """Return the nearest existing folder of uv's cache. None without uv."""
        if self.options.uv is None:
            return None
        argv = (self.options.uv, "cache", "dir")
        try:
            answer = subprocess.run(argv, env=dict(self.options.environ), capture_output=True, text=True, check=False)
        except OSError:
            return None
        folder = Path(answer.stdout.strip() or "/")
        return next(parent for parent in (folder, *folder.parents) if parent.exists())

    def make_ready(self, spec: VenvSpec) -> Installed:
        """Build the environment unless it is complete, and link it."""
        folder, log = store_folder(self.dirs, spec), self.store / f"{spec.folder}.log"
        notes: tuple[str, ...] = ()
        began, is_ours = time.monotonic(), False
        try:
            held = self.store / f"{spec.folder}.lock"
            with hold_lock(held, lambda: not self.is_stopped, lambda: self._report_wait(spec)) as lock:
                is_new = _must_build(self.dirs, spec, self.options)
                is_ours = not os.path.lexists(folder) or is_made(folder) or log.is_file()
                if not is_ours:
                    raise EnvironmentFailed(f"{folder}: {NOT_OURS}")  # noqa: TRY301
                if is_new:
                    with log.open("w", encoding="utf-8") as output:
                        notes = VenvBuild(self, spec, folder, output, lock).build()
                link_to(venv_link(self.dirs, spec.group), folder)
        except (EnvironmentFailed, OSError) as error:
            why = _reason(error) if isinstance(error, OSError) else str(error)
            # An unfinished environment never counts, but a gigabyte of it would stay on a disk that may be full.
            if is_ours and not is_complete(self.dirs, spec):
                remove(folder, self.store, is_quiet=True)
            self.activities.report(f"{spec.group}: failed: {why}")
            return Installed(name=spec.group, why=why, log=log if log.is_file() else None)
        finally:
            self.activities.over(spec.group)
        self.activities.report(
            f"{spec.group}: ready: " + (f"{time.monotonic() - began:.1f} s" if is_new else "already there")
        )
        return Installed(name=spec.group, is_new=is_new, notes=notes)

    def _report_wait(self, spec: VenvSpec) -> None:
        self.activities.report(f"{spec.group}: waiting: another process builds or uses it")
        self.activities.now(spec.group, "waiting for another process")


def link_to(link: Path, folder: Path) -> None:
    """Point the link to the folder, atomically. Raises EnvironmentFailed when something else has its name."""
    target = os.path.relpath(folder, link.parent)
    if link.is_symlink():
        if str(link.readlink()) == target:
            return
    elif link.exists():
        raise EnvironmentFailed(f"{link}: exists where a link to {target} belongs. Move it away")
    # A link cannot be replaced by a link, but by a rename: whoever looks finds the old one or the new one.
    fresh = link.parent / f".{link.name}.{os.getpid()}.link"
    remove(fresh)
    fresh.symlink_to(target)
    replace_own(fresh, link)


def _is_one_disk(cache: Path, store: Path, environ: Mapping[str, str]) -> bool:
    """Return whether both are on the same file system, and cached files are linked from the environments."""
    is_copied = environ.get("UV_LINK_MODE") in ("copy", "symlink")
    return cache.stat().st_dev == store.stat().st_dev and not is_copied


def _reason(error: OSError) -> str:
    """Return why a file operation failed, in a line. Copying a tree reports all its failures in a single text."""
    text = str(error)
    if error.errno == errno.ENOSPC or "No space left on device" in text:
        return "no space left on the disk"
    return f"{os_reason(error)}: {error.filename}" if error.strerror else text.splitlines()[0][:200]


def _must_build(dirs: Dirs, spec: VenvSpec, options: InstallOptions) -> bool:
    return options.force or (options.update and not spec.is_pinned) or not is_complete(dirs, spec)
