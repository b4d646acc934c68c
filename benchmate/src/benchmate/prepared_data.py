"""Data that a prepare.py makes: made once for each recipe, and complete or not there at all.

Others wait while they are made. Leftovers of a killed maker are hidden, and removed by the next.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import json
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

RECIPE = "recipe.json"


def make_folder(folder: Path, recipe: Mapping[str, object], make: Callable[[Path], object]) -> None:
    """See benchmate.prepare_folder."""
    text = json.dumps(recipe, sort_keys=True)

    def put(work: Path) -> None:
        fresh = work / folder.name
        fresh.mkdir()
        make(fresh)
        (fresh / RECIPE).write_text(text)
        try:
            fresh.rename(folder)
        except OSError:  # there is one
            # Of another machine that was faster, where the file system has no locks; else of another recipe.
            if not _is_made_by(folder / RECIPE, text):
                require_ours(folder, folder / RECIPE, text)
                folder.rename(work / "replaced")
                fresh.rename(folder)

    _make_unless_there(folder, folder / RECIPE, text, put)


def make_file(file: Path, recipe: Mapping[str, object], make: Callable[[Path], object]) -> None:
    """See benchmate.prepare_file."""
    text = json.dumps(recipe, sort_keys=True)
    marker = file.with_name(f".{file.name}.{RECIPE}")

    def put(work: Path) -> None:
        fresh, fresh_marker = work / file.name, work / RECIPE
        make(fresh)
        # A kill from here on costs one more making, and no more: the file has a marker of ours at any time.
        for content in ("{}", text):
            fresh_marker.write_text(content)
            fresh_marker.replace(marker)
            if content != text:
                fresh.replace(file)

    _make_unless_there(file, marker, text, put)


def _make_unless_there(path: Path, marker: Path, recipe: str, put: Callable[[Path], None]) -> None:
    if not (path.exists() and _is_made_by(marker, recipe)):
        path.parent.mkdir(parents=True, exist_ok=True)
        with exclusive(path):
            if not (path.exists() and _is_made_by(marker, recipe)):
                require_ours(path, marker, recipe)
                with hidden_folder(path) as work:
                    put(work)
                print(f"{path}: made")
                return
    print(f"{path}: already there")


def require_ours(path: Path, marker: Path, recipe: str) -> None:
    """Exit where something that was not made here is in the way. An empty folder is nothing."""
    is_empty = path.is_dir() and not path.is_symlink() and not any(path.iterdir())
    if os.path.lexists(path) and not marker.is_file() and not is_empty:
        use = f"echo {shlex.quote(recipe)} > {shlex.quote(str(marker))}"
        sys.exit(f"{path}: was not made by milabench, so it stays. Use it as it is (`{use}`), or move it away")


def _is_made_by(marker: Path, recipe: str) -> bool:
    return marker.is_file() and marker.read_text().rstrip("\n") == recipe


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Wait while another process makes `path`, and remove leftovers of a killed process of this machine."""
    with path.with_name(f".{path.name}.lock").open("a") as lock:
        # Where a file system has no locks two may make the same at once, which costs time only.
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
            # Of this machine only: a lock may hold on each machine by itself.
            for left in path.parent.glob(glob.escape(_prefix(path)) + "*"):
                shutil.rmtree(left, ignore_errors=True)
        yield


@contextlib.contextmanager
def hidden_folder(path: Path) -> Iterator[Path]:
    """Make a working folder next to `path`, for the time of the context. `exclusive` removes leftovers of a kill."""
    with tempfile.TemporaryDirectory(prefix=_prefix(path), dir=path.parent, ignore_cleanup_errors=True) as work:
        yield Path(work)


def _prefix(path: Path) -> str:
    return f".{path.name}.partial.{os.uname().nodename}."
