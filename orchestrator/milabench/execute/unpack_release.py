"""Unpacks release files by a check of our own: the filter of tarfile has holes in versions of Python that we run on."""

from __future__ import annotations

import lzma
import os
import shutil
import stat
import tarfile
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from milabench.errors import EnvironmentFailed
from milabench.events.removal import put, remove

MAX_MEMBERS = 1_000_000
MAX_BYTES = 64 * 2**30  # unpacked, all together
MAX_RATIO = 200  # unpacked over packed
_RATIO_FROM = 2**30  # bytes


def unpack_release(archive_file: Path, name: str, into: Path) -> None:
    """Unpack a release file into a new folder: a wheel as it is, an sdist without its outer folder.

    Raises EnvironmentFailed when the archive is broken, too large, or a member or a link would lead outside.
    """
    loose = into.parent / f"{into.name}.loose"
    loose.mkdir()
    try:
        _Unpacking(name, archive_file.stat().st_size, loose).unpack(archive_file)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError) as error:
        raise EnvironmentFailed(f"{name}: cannot be unpacked: {error}") from None
    inside = list(loose.iterdir())
    is_wrapped = not name.endswith(".whl") and len(inside) == 1 and inside[0].is_dir() and not inside[0].is_symlink()
    put(inside[0] if is_wrapped else loose, into)
    remove(loose, into.parent)


class _Unpacking:
    """The unpacking of an archive: the members so far, and the links, which are made when all files are there."""

    def __init__(self, name: str, packed: int, into: Path) -> None:
        self.name, self.into = name, into
        self._most = min(MAX_BYTES, max(_RATIO_FROM, MAX_RATIO * packed))
        self._members = self._bytes = 0

    def unpack(self, archive_file: Path) -> None:
        if not self.name.endswith((".whl", ".zip")):
            with tarfile.open(archive_file) as tar:
                self._untar(tar)
            return
        with zipfile.ZipFile(archive_file) as zipped:
            for entry in zipped.infolist():
                path = self._place(entry.filename, entry.file_size)
                if stat.S_ISLNK(entry.external_attr >> 16):
                    raise self._refused(entry.filename)
                if entry.is_dir():
                    path.mkdir(parents=True, exist_ok=True)
                else:
                    with zipped.open(entry) as source, _new(path).open("xb") as file:
                        shutil.copyfileobj(source, file)

    def _untar(self, tar: tarfile.TarFile) -> None:
        links: list[tuple[Path, tarfile.TarInfo]] = []
        for member in tar:
            path = self._place(member.name, member.size)
            if member.isdir():
                path.mkdir(parents=True, exist_ok=True)
            elif member.issym() or member.islnk():
                links.append((path, member))
            elif member.isreg() and (source := tar.extractfile(member)) is not None:
                with source, _new(path).open("xb") as file:
                    shutil.copyfileobj(source, file)
                path.chmod(0o755 if member.mode & 0o100 else 0o644)
            else:
                raise self._refused(member.name)
        # Symbolic links last: no file is written, and no other link made, through one.
        for path, member in sorted(links, key=lambda link: link[1].issym()):
            if member.issym():
                _new(path).symlink_to(member.linkname)
            elif not (source_file := self._place(member.linkname, 0)).is_file():
                raise self._refused(member.name)
            else:
                os.link(source_file, _new(path))
        top = os.path.realpath(self.into)
        for path, member in links:
            if PurePosixPath(member.linkname).is_absolute() or not Path(os.path.realpath(path)).is_relative_to(top):
                raise self._refused(member.name)
            try:
                # Strict: what cannot be followed to its end, as a path that is too long, may end anywhere.
                os.path.realpath(path, strict=True)
            except FileNotFoundError:
                remove(path)  # it leads nowhere, and nobody can have used it

    def _place(self, name: str, size: int) -> Path:
        """Return where a member goes, which is counted. Raises EnvironmentFailed."""
        self._members, self._bytes = self._members + 1, self._bytes + size
        if self._members > MAX_MEMBERS or self._bytes > self._most:
            raise EnvironmentFailed(f"{self.name}: would unpack to more than {self._most / 2**30:.0f} GiB: refused")
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or "\0" in name:
            raise self._refused(name)
        return self.into / path

    def _refused(self, name: str) -> EnvironmentFailed:
        return EnvironmentFailed(f"{self.name}: cannot be unpacked: the member {name[:200]!r} would land outside")


def _new(path: Path) -> Path:
    """Return the path of a file that can be made: its folder is there, and no earlier member of its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if os.path.lexists(path) and (path.is_symlink() or not path.is_dir()):
        remove(path)
    return path
