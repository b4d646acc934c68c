"""Paths that can clone, download and edit: pathlib's, and the operations of a benchfile's `install` and `prepare`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from .effects import require_effects


class XPath(type(Path())):  # type: ignore[misc]  # before Python 3.12 only the concrete class can be derived from
    """A path. Its length is the length of its text."""

    def __len__(self) -> int:
        return len(str(self))

    def open(
        self, mode: str = "r", buffering: int = -1, encoding: str | None = None, *args: Any, **options: Any
    ) -> Any:
        """Open the file, text as UTF-8."""
        is_plain_text = encoding is None and "b" not in mode
        return super().open(mode, buffering, "utf-8" if is_plain_text else encoding, *args, **options)

    def prepend_lines(self, *lines: str) -> None:
        """Put the lines before the first of the file."""
        self.write_text("".join(f"{line}\n" for line in lines) + self.read_text())

    def append_lines(self, *lines: str) -> None:
        """Put the lines after the last of the file."""
        self.write_text(self.read_text() + "".join(f"{line}\n" for line in lines))

    def sub(self, pattern: str, replacement: Any) -> None:
        """Replace matches of the regular expression in the file."""
        self.write_text(re.sub(pattern, str(replacement), self.read_text()))

    def copy(self, path: str | Path, **_options: Any) -> None:
        """Copy the file or the folder to `path`."""
        target = XPath(path)
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
        if self.is_dir():
            shutil.copytree(self, target)
        else:
            shutil.copy(self, target)

    def rm(self) -> None:
        """Remove the file or the folder, if it exists."""
        if self.is_dir() and not self.is_symlink():
            shutil.rmtree(self)
        else:
            self.unlink(missing_ok=True)

    def merge_into(self, dest: Path, manifest: str | Path = "*", move: bool = False, readonly: bool = False) -> None:
        """Copy or move the files below this folder that match the patterns of a .gitignore to the same place below `dest`."""
        if isinstance(manifest, Path):
            manifest = manifest.read_text() if manifest.exists() else ""
        patterns = [*_patterns(manifest.splitlines())]
        for file in sorted(each for each in self.rglob("*") if not each.is_dir()):
            relative = file.relative_to(self)
            matching = [is_included for pattern, is_included in patterns if pattern.fullmatch(relative.as_posix())]
            if not (matching and matching[-1]):
                continue
            target = Path(dest) / relative
            target.parent.mkdir(parents=True, exist_ok=True)
            if readonly and target.exists():
                target.chmod(target.stat().st_mode | 0o200)
            if move:
                shutil.move(file, target)
            else:
                shutil.copy2(file, target)
            if readonly:
                target.chmod(target.stat().st_mode & 0o555)

    def download(self, url: str, dest: str | None = None) -> None:
        """Download a file into this folder, whole or not at all. Raises RuntimeError when it cannot be had."""
        require_effects("download")
        if urlparse(url).scheme not in ("http", "https", "ftp", "file"):
            raise ValueError(f"{url}: no URL that can be downloaded")
        target = self / (dest or urlparse(url).path.rsplit("/", 1)[-1])
        partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
        try:
            with urllib.request.urlopen(url) as source, partial.open("wb") as file:
                shutil.copyfileobj(source, file)
            partial.replace(target)
        except OSError as error:
            raise RuntimeError(f"cannot download {url}: {error}") from None
        finally:
            partial.unlink(missing_ok=True)

    def clone_subtree(
        self, remote: str, commit: str, subtree: str | None = None, dest: str | Path | None = None
    ) -> XPath:
        """Clone a revision of a git repository, or a folder in it, to this path or to `dest`. Return where it lies.

        A path that does not exist, or is empty, gets the whole clone at once, with `.git`. In a folder that holds
        something the files are put in, without `.git`. The commit is printed. Raises RuntimeError with the last
        line of git's message when it cannot be had.
        """
        require_effects("clone_subtree")
        target = self if dest is None else self / dest
        target.parent.mkdir(parents=True, exist_ok=True)
        # Beside the target, so that it can be renamed.
        with tempfile.TemporaryDirectory(
            dir=target.parent, prefix=f".{target.name}.", ignore_cleanup_errors=True
        ) as name:
            clone = XPath(name) / "clone"
            clone.mkdir()
            found = _clone(remote, commit, clone)
            source = clone / subtree if subtree else clone
            if not source.is_dir():
                raise RuntimeError(f"cannot clone {remote}: there is no folder {subtree} at {commit}")
            if target.exists() and any(target.iterdir()):
                shutil.copytree(source, target, dirs_exist_ok=True, symlinks=True, ignore=_git_folder)
            else:
                os.replace(source, target)  # noqa: PTH105  # onto an empty folder too
        print(f"cloned {remote} at {found} to {target}", flush=True)
        return target


def _git_folder(folder: str, names: Sequence[str]) -> list[str]:
    del folder
    return [name for name in names if name == ".git"]


def _clone(remote: str, commit: str, folder: Path) -> str:
    """Check `commit` (or a branch, or a tag) of the repository out in the empty folder. Return the commit's full hash."""
    _git(folder, remote, "init", "--quiet")
    _git(folder, remote, "remote", "add", "origin", remote)
    _git(folder, remote, "fetch", "--quiet", "--depth=1", "origin", commit)
    _git(folder, remote, "checkout", "--quiet", "--detach", "FETCH_HEAD")
    return _git(folder, remote, "rev-parse", "HEAD").strip()


def _git(folder: Path, remote: str, *words: str) -> str:
    environ = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    try:
        done = subprocess.run(
            ["git", *words],
            cwd=folder,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except FileNotFoundError:
        raise RuntimeError(f"cannot clone {remote}: git is not installed") from None
    if done.returncode:
        message = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[0]
        raise RuntimeError(f"cannot clone {remote}: git {words[0]}: {message.removeprefix('fatal: ')}")
    return done.stdout


def _patterns(lines: Sequence[str]) -> Iterator[tuple[re.Pattern[str], bool]]:
    """Yield each line of a .gitignore as (expression for whole relative paths, whether it takes them in)."""
    for line in map(str.rstrip, lines):
        pattern = line.removeprefix("!")
        if not pattern.strip("/") or line.startswith("#"):
            continue
        is_anchored = "/" in pattern.rstrip("/")
        body = _expression(pattern.strip("/"))
        below = "/.+" if pattern.endswith("/") else "(?:/.+)?"
        yield re.compile(("" if is_anchored else "(?:.*/)?") + body + below), not line.startswith("!")


_WILDCARD = re.compile(r"\*\*/|\*\*|\*|\?|\[!?\]?[^\]]*\]")


def _expression(pattern: str) -> str:
    """Return the wildcards of git (*, **, ?, [...]) as a regular expression."""
    known = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    end, parts = 0, []
    for wildcard in _WILDCARD.finditer(pattern):
        group = wildcard[0]
        parts += [re.escape(pattern[end : wildcard.start()]), known.get(group) or group.replace("[!", "[^", 1)]
        end = wildcard.end()
    return "".join([*parts, re.escape(pattern[end:])])
