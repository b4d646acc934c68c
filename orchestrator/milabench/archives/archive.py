"""Zip files: written with the same bytes each time, and read without trusting a name or a size in them."""

from __future__ import annotations

import hashlib
import lzma
import stat
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO

from milabench.devices.regular_file import open_regular
from milabench.errors import RecordError, os_reason
from milabench.events.atomic_write import draft_of, require_no_record
from milabench.events.removal import wrong_name

MAX_ENTRIES = 200_000
MAX_BYTES = 64 * 2**30  # unpacked, all together
MAX_RATIO = 200  # unpacked over packed; records of a benchmark come to 10 to 40
_RATIO_FROM = 16 * 2**20  # bytes; a small file may be as repetitive as it likes
_SMALL = 2**14  # bytes; the header of its entry keeps such a file's ratio low enough
_MAX_MEMBER = 256 * 2**20  # bytes; of what is read into memory whole
_CHUNK = 2**20
_STAMP = (1980, 1, 1, 0, 0, 0)  # the first that zip knows: when a bundle was made is no part of it
_LEVEL = 6
# What the decompressors of zip files raise for bytes that are none of theirs; bz2 has no exception of its own.
_DAMAGED = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError, OSError, RuntimeError)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveMember:
    """A file in an archive. `size` is unpacked."""

    path: str
    size: int
    sha256: str


@contextmanager
def create_archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """Write a new archive under a temporary name until it is complete. Raises RecordError."""
    with (
        create_whole(path, "a bundle") as file,
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL) as archive,
    ):
        yield archive


@contextmanager
def create_whole(path: Path, what: str) -> Iterator[BinaryIO]:
    """Write a new file under a temporary name until it is complete. Raises RecordError.

    A link stays a link. Other paths than files (/dev/null) are refused: they would be replaced for good.
    """
    if path.exists() and not path.is_file():
        raise RecordError(f"{path}: not a regular file, as {what} must be. Choose another name")
    try:
        require_no_record(path)
    except OSError as error:
        raise RecordError(f"{path}: {os_reason(error)}") from None
    path = path.resolve()
    try:
        with draft_of(path) as file:
            yield file
    except OSError as error:
        reason = os_reason(error)
        if error.filename and Path(error.filename).parent == path.parent and error.filename.endswith(".tmp"):
            raise RecordError(f"{path}: cannot be written: {reason}") from None
        raise RecordError(f"{error.filename or path}: cannot be packed: {reason}") from None


def add_file(archive: zipfile.ZipFile, name: str, content: bytes | Path) -> ArchiveMember:
    """Add a file. Nothing of the file's date, owner or mode goes with it."""
    info = zipfile.ZipInfo(name, _STAMP)
    info.compress_type = zipfile.ZIP_STORED if _looks_like_a_bomb(content) else zipfile.ZIP_DEFLATED
    # Unix: elsewhere zip files carry no mode, and the mode tells a link from a file.
    info.create_system = 3
    info.external_attr = (stat.S_IFREG | 0o644) << 16
    # The size decides on the form of the entry's header, which must not depend on when it became known.
    info.file_size = len(content) if isinstance(content, bytes) else content.stat().st_size
    with archive.open(info, "w") as target:
        size, sha256 = copied(pieces(content), target)
    return ArchiveMember(path=name, size=size, sha256=sha256)


def open_checked(path: Path) -> zipfile.ZipFile:
    """Open an archive after checking every name and size. Nothing has been extracted yet.

    Raises RecordError when it is none, or would write outside of where it is unpacked, or is a bomb.
    """
    try:
        open_regular(path).close()
        archive = zipfile.ZipFile(path)
    except FileNotFoundError:
        raise RecordError(f"{path}: no such file") from None
    except (zipfile.BadZipFile, NotImplementedError, ValueError, EOFError) as error:
        raise RecordError(f"{path}: not a readable zip file: {_clause(error)}") from None
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {os_reason(error)}") from None
    try:
        _look_at(archive, path)
    except RecordError:
        archive.close()
        raise
    return archive


def files(archive: zipfile.ZipFile, below: str = "") -> list[str]:
    """Return the names of the files in an archive, or below a folder in it, in order, without folders."""
    head = f"{below}/" if below else ""
    return [info.filename for info in archive.infolist() if not info.is_dir() and info.filename.startswith(head)]


def archived_digest(archive: zipfile.ZipFile, name: str) -> tuple[int, str]:
    """Return (bytes, SHA-256) of a file as unpacked. Raises RecordError when its packed bytes are damaged."""
    return copied(contents(archive, name))


def copied(source: Iterator[bytes], target: IO[bytes] | None = None) -> tuple[int, str]:
    """Write the pieces, where there is a target, and return (bytes, SHA-256) of them."""
    digest, size = hashlib.sha256(), 0
    for piece in source:
        digest.update(piece)
        size += len(piece)
        if target is not None:
            target.write(piece)
    return size, digest.hexdigest()


def read_member(archive: zipfile.ZipFile, name: str) -> bytes:
    """Return a file's bytes, up to a size limit. Raises RecordError."""
    if archive.getinfo(name).file_size > _MAX_MEMBER:
        raise RecordError(f"{archive.filename}: {name}: is larger than {_MAX_MEMBER // 2**20} MiB")
    return b"".join(contents(archive, name))


def contents(archive: zipfile.ZipFile, name: str) -> Iterator[bytes]:
    """Yield the bytes of a file in pieces. Never more than its entry declares."""
    try:
        with archive.open(name) as source:
            yield from iter(lambda: source.read(_CHUNK), b"")
    except _DAMAGED as error:
        raise RecordError(f"{archive.filename}: {name}: is damaged: {_clause(error)}") from None


def unpack_archive(archive: zipfile.ZipFile, below: str, target: Path) -> None:
    """Write the files below a folder of a checked archive, or all, into `target`. Raises RecordError."""
    for name in files(archive, below):
        path = target / PurePosixPath(name).relative_to(below or ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        # x: whatever slipped through, no file is written over.
        with path.open("xb") as file:
            file.writelines(contents(archive, name))


def _look_at(archive: zipfile.ZipFile, path: Path) -> None:
    infos = archive.infolist()
    if len(infos) > MAX_ENTRIES:
        raise RecordError(f"{path}: has {len(infos)} entries, more than {MAX_ENTRIES}: refused")
    total, seen = 0, set()
    for info in infos:
        name = info.orig_filename
        if (what := wrong_name(name)) or (what := _wrong_kind(info)):
            raise RecordError(f"{path}: the entry {name[:200]!r} {what}: refused, nothing was unpacked")
        # Two names that differ by case only are one file on macOS and Windows: the second would replace the first.
        folded = name.rstrip("/").casefold()
        if folded in seen:
            raise RecordError(f"{path}: duplicate entry {name[:200]!r}: refused, nothing was unpacked")
        seen.add(folded)
        total += info.file_size
        if info.file_size > _RATIO_FROM and info.file_size > MAX_RATIO * max(1, info.compress_size):
            raise RecordError(
                f"{path}: the entry {name[:200]!r} unpacks to {info.file_size // max(1, info.compress_size)} times its size, "
                f"more than {MAX_RATIO}: refused, nothing was unpacked"
            )
    if total > MAX_BYTES or (total > _RATIO_FROM and total > MAX_RATIO * max(1, path.stat().st_size)):
        raise RecordError(f"{path}: would unpack to {total / 2**20:.0f} MiB: refused, nothing was unpacked")


def _wrong_kind(info: zipfile.ZipInfo) -> str:
    mode = info.external_attr >> 16
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "is a link or a device"
    return "is encrypted" if info.flag_bits & 0x1 else ""


def pieces(content: bytes | Path) -> Iterator[bytes]:
    """Yield bytes, or the bytes of a file, in pieces."""
    if isinstance(content, bytes):
        yield content
        return
    with open_regular(content) as file:
        yield from iter(lambda: file.read(_CHUNK), b"")


def _looks_like_a_bomb(content: bytes | Path) -> bool:
    """Return whether the ratio indicates a zip bomb. A program that prints a line a million times is not one."""
    size, packed, deflate = 0, 0, zlib.compressobj(_LEVEL)
    for piece in pieces(content):
        size += len(piece)
        packed += len(deflate.compress(piece))
    return size > _SMALL and size > MAX_RATIO / 2 * (packed + len(deflate.flush()))


def _clause(error: Exception) -> str:
    text = str(error) or type(error).__name__
    return text[:1].lower() + text[1:]
