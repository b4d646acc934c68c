"""A capsule: everything that a suite needs on a machine without a network, in a tar file that shows whether it was altered.

The manifest is the first member and lists all others, with size and SHA-256. Its own SHA-256 is the capsule's digest.
Every byte of the file follows from the manifest and the members: the reader compares it with the writer's expected
bytes, so that names, links, sizes and kinds in the tar's own headers are never believed. A shell unpacks it with `tar
xf`.
"""

from __future__ import annotations

import hashlib
import json
import re
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import IO, Annotated

from milabench.analysis.json_codec import OPTIONAL, JsonKey, to_json_value
from milabench.archives.archive import copied, create_whole, pieces
from milabench.devices.regular_file import open_regular, read_regular
from milabench.errors import RecordError, os_reason
from milabench.events.removal import wrong_name
from milabench.events.stored_json import Whole, from_json_value
from milabench.events.wire import parse_object

NAME = "capsule.json"
SCHEMA = 1
MAX_ENTRIES = 2_000_000
MAX_MANIFEST = 512 * 2**20  # bytes; it is read into memory whole
MAX_DEPTH = 60  # of folders; links of the user's may form a circle
_STAMP = 315_532_800  # 1980, as in a bundle: when a capsule was made is no part of it, and tar warns of 1970
_BLOCK = 512  # bytes, tar's
_END = bytes(2 * _BLOCK)
_CHUNK = 2**20
_DIGEST = re.compile(r"[0-9a-f]{64}")
KIND = "milabench-capsule"
_OF_CONTENT = JsonKey(is_omitted=lambda entry: bool(entry.link))


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """A file to be packed. `link` is the relative target of a symbolic link, which has no content."""

    path: str
    content: bytes | Path = b""
    is_executable: bool = False
    link: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapsuleEntry:
    """A file of a capsule as its manifest lists it."""

    path: str
    size: Annotated[Whole, _OF_CONTENT] = 0
    sha256: Annotated[str, _OF_CONTENT] = ""
    executable: Annotated[bool, OPTIONAL] = False
    link: Annotated[str, OPTIONAL] = ""

    @property
    def header(self) -> bytes:
        """The header before its content in the tar file."""
        info = tarfile.TarInfo(self.path)
        info.size, info.mtime, info.mode = self.size, _STAMP, 0o755 if self.executable else 0o644
        if self.link:
            info.type, info.linkname = tarfile.SYMTYPE, self.link
        return info.tobuf(tarfile.GNU_FORMAT, "utf-8", "strict")

    @property
    def padding(self) -> bytes:
        """The filler of the last block of its content."""
        return bytes(-self.size % _BLOCK)


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedPython:
    """An interpreter that the capsule needs: `folder` is where it lies in it, empty where the machine must have it."""

    version: str
    folder: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedImage:
    """A container image, and its file in the capsule."""

    engine: str
    image: str
    path: str


@dataclass(frozen=True, kw_only=True)
class CapsuleManifest:
    """The content of a capsule, and the machine it is for.

    `version` is milabench's, `benchmate` is the digest of the instruments, and `suite` is the suite file in the capsule.
    `platform` is sys.platform and machine, and `glibc` is the oldest version that its wheels run with. `prepared` has the
    digests of the preparations whose data it holds, by benchmark.
    """

    version: str
    suite: str
    platform: str
    glibc: str
    benchmate: str
    benchmarks: tuple[str, ...]
    pythons: tuple[PackedPython, ...] = ()
    prepared: Annotated[Mapping[str, str], JsonKey(write=lambda prepared: dict(sorted(prepared.items())))] = field(
        default_factory=dict
    )
    images: tuple[PackedImage, ...] = ()
    notes: tuple[str, ...] = ()
    files: tuple[CapsuleEntry, ...] = ()

    @cached_property
    def content(self) -> bytes:
        """The manifest's file. The same content gives the same bytes."""
        value = {"schema": SCHEMA, "kind": KIND, **to_json_value(self)}
        return json.dumps(value, indent=1, ensure_ascii=False).encode() + b"\n"

    @property
    def digest(self) -> str:
        """The capsule's identity: it covers every byte of the file."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def own(self) -> CapsuleEntry:
        """The manifest's own entry, the first of the file."""
        return CapsuleEntry(path=NAME, size=len(self.content))

    @property
    def size(self) -> int:
        """Bytes of the whole file."""
        entries = (self.own, *self.files)
        return sum(len(entry.header) + entry.size + len(entry.padding) for entry in entries) + len(_END)

    def files_in(self, folder: str) -> tuple[CapsuleEntry, ...]:
        """Return the entries below a folder of the capsule."""
        return tuple(entry for entry in self.files if entry.path.startswith(f"{folder}/"))


def entry_of(file: Content, source: Iterator[bytes] | None = None) -> CapsuleEntry:
    """Return the entry of a file, which is read. `source` are its bytes where they are read here. Raises RecordError."""
    if what := wrong_name(file.path):
        raise RecordError(f"{file.path!r}: {what}: cannot be packed")
    try:
        file.path.encode()
    except UnicodeEncodeError:
        raise RecordError(f"{file.path!r}: has a name that is no UTF-8: cannot be packed") from None
    if file.link:
        return CapsuleEntry(path=file.path, link=file.link)
    size, sha256 = copied(pieces(file.content) if source is None else source)
    return CapsuleEntry(path=file.path, size=size, sha256=sha256, executable=file.is_executable)


def write_capsule(target: Path, manifest: CapsuleManifest, contents: Iterable[Content]) -> None:
    """Write the file, whole or not at all. `contents` are in the manifest's order. Raises RecordError.

    Changes since the manifest was made are found here: a capsule always equals its manifest.
    """
    if problem := _wrong_entries(manifest.files):
        raise RecordError(f"{target}: cannot be packed: {problem}")
    with create_whole(target, "a capsule") as file:
        file.write(manifest.own.header + manifest.content + manifest.own.padding)
        for entry, content in zip(manifest.files, contents, strict=True):
            file.write(entry.header)
            if entry.link:
                continue
            if copied(pieces(content.content), file) != (entry.size, entry.sha256):
                raise RecordError(f"{content.content!s}: was changed while it was packed. Try again")
            file.write(entry.padding)
        file.write(_END)


@dataclass(frozen=True, kw_only=True)
class Capsule:
    """A capsule that is open, at its first member. Its manifest, names and size have been checked."""

    path: Path
    manifest: CapsuleManifest
    file: IO[bytes]

    def unpack(self, into: Path, wanted: Callable[[str], bool]) -> None:
        """Compare every byte with the manifest. Write the wanted files below `into`, a new folder of ours.

        Nothing may be used before this has returned. Raises RecordError, and OSError for a file that cannot be written.
        """
        for entry in self.manifest.files:
            if self.file.read(len(entry.header)) != entry.header:
                raise self._altered(entry.path)
            target = into / entry.path if wanted(entry.path) else None
            if target is not None:
                target.parent.mkdir(parents=True, exist_ok=True)
            if entry.link:
                if target is not None:
                    target.symlink_to(entry.link)
                continue
            # x: whatever slipped through, no file is written over.
            with nullcontext() if target is None else target.open("xb") as file:
                found = copied(self._content(entry), file)
            if target is not None and entry.executable:
                target.chmod(0o755)
            if found != (entry.size, entry.sha256) or self.file.read(len(entry.padding)) != entry.padding:
                raise self._altered(entry.path)
        if self.file.read() != _END:
            raise self._altered("its end")

    def _content(self, entry: CapsuleEntry) -> Iterator[bytes]:
        left = entry.size
        while left and (piece := self.file.read(min(left, _CHUNK))):
            left -= len(piece)
            yield piece

    def _altered(self, what: str) -> RecordError:
        return RecordError(f"{self.path}: was altered: {what} differs from the manifest. Nothing was used")


@contextmanager
def open_capsule(path: Path) -> Iterator[Capsule]:
    """Open a capsule and check its manifest and its size. `unpack` checks the rest. Raises RecordError."""
    try:
        with open_regular(path) as file:
            size = file.seek(0, 2)
            file.seek(0)
            manifest = _read_manifest(file, size, path)
            _require_size(size, manifest, path)
            file.seek(len(manifest.own.header) + manifest.own.size + len(manifest.own.padding))
            yield Capsule(path=path, manifest=manifest, file=file)
    except OSError as error:
        if error.filename != str(path):
            raise
        raise RecordError(f"{path}: cannot be read: {os_reason(error)}") from None


def _require_size(size: int, manifest: CapsuleManifest, path: Path) -> None:
    # What is unpacked is never more than what is there: neither a bomb nor half a file goes further than this.
    if size != manifest.size:
        what = "is truncated" if size < manifest.size else "has more than its manifest says"
        raise RecordError(f"{path}: {what}: {size} of {manifest.size} bytes. Copy it again")


def _read_manifest(file: IO[bytes], size: int, path: Path) -> CapsuleManifest:
    header = file.read(_BLOCK)
    try:
        info = tarfile.TarInfo.frombuf(header, "utf-8", "strict")
    except (tarfile.HeaderError, ValueError):
        info = tarfile.TarInfo()
    if info.name != NAME or not 0 < info.size <= MAX_MANIFEST:
        raise RecordError(f"{path}: is not a capsule. Create it with `milabench capsule create`")
    # Python makes room for as many bytes as it is asked for, and a file with holes is as large as it likes.
    content = bytearray()
    while len(content) < min(info.size, size) and (piece := file.read(min(_CHUNK, info.size - len(content)))):
        if b"\0" in piece:
            raise RecordError(f"{path}: was altered: its manifest is not as milabench writes it")
        content += piece
    if len(content) < info.size:
        raise RecordError(f"{path}: is truncated: its manifest is not whole. Copy it again")
    manifest = manifest_of(bytes(content), str(path))
    own = manifest.own
    if header != own.header or manifest.content != content or file.read(len(own.padding)) != own.padding:
        raise RecordError(f"{path}: was altered: its manifest is not as milabench writes it")
    return manifest


def manifest_of(content: bytes, where: str) -> CapsuleManifest:
    """Return the manifest from its file. Raises RecordError."""
    try:
        value = parse_object(content)
        schema = value.get("schema")
        if isinstance(schema, int) and schema > SCHEMA:
            raise RecordError(
                f"{where}: was made by milabench {value.get('version')!s:.40}, with schema {schema}, but this version reads "
                f"{SCHEMA}. Install the milabench that lies in it: `tar -xf {where} install.sh && sh install.sh {where}`"
            )
        if schema != SCHEMA or value.get("kind") != KIND:
            raise ValueError("it is of another kind")  # noqa: TRY301
        manifest = from_json_value(CapsuleManifest, value)
    except ValueError as error:
        raise RecordError(f"{where}: cannot be read as a capsule: {error}") from None
    if problem := _wrong_entries(manifest.files) or _wrong_paths(manifest):
        raise RecordError(f"{where}: {problem}: refused, nothing was unpacked")
    return manifest


def _wrong_entries(entries: Sequence[CapsuleEntry]) -> str:
    """Return the problem with the names and links of a manifest. Empty when all stay in the folder of the capsule."""
    if len(entries) > MAX_ENTRIES:
        return f"has {len(entries)} files, more than {MAX_ENTRIES}"
    leaves = {entry.path for entry in entries}
    if len(leaves) < len(entries) or NAME in leaves:
        return "names a file twice"
    folders: set[str] = set()
    for entry in entries:
        if entry.path.count("/") > 2 * MAX_DEPTH:  # data of the deepest folder, below that of its part
            return f"the file {entry.path[:200]!r} lies more than {2 * MAX_DEPTH} folders deep"
        if what := wrong_name(entry.path):
            return f"the file {entry.path[:200]!r} {what}"
        if entry.size < 0 or not (entry.link or _DIGEST.fullmatch(entry.sha256)):
            return f"the file {entry.path[:200]!r} has no size or SHA-256"
        folders.update(str(parent) for parent in PurePosixPath(entry.path).parents)
        if entry.link and not _stays_inside(entry):
            return f"the link {entry.path[:200]!r} leads to {entry.link[:200]!r}, outside its folder"
    # A link that is a folder of another file would lead it elsewhere.
    if through := sorted(leaves & folders):
        return f"{through[0][:200]!r} is a file and a folder"
    return ""


def _wrong_paths(manifest: CapsuleManifest) -> str:
    """Return the problem with the files and folders that a manifest names outside its list. Empty when they are in it."""
    names = {entry.path for entry in manifest.files if not entry.link}
    named = {manifest.suite: "suite", **{image.path: "images" for image in manifest.images}}
    if wrong := next(
        (path for path, part in named.items() if path not in names or not path.startswith(f"{part}/")), ""
    ):
        return f"names {wrong[:200]!r}, which is not a file of the capsule"
    folders = {f"{parent}" for name in names for parent in list(PurePosixPath(name).parents)[:-1]}
    # A program's marker lies beside its folder, and names it.
    markers = [
        path for path in names if path.startswith("code/.") and path.endswith(".complete") and path.count("/") == 1
    ]
    owned = {f"code/{path.removeprefix('code/.').removesuffix('.complete')}": path for path in markers}
    owned |= {python.folder: python.folder for python in manifest.pythons if python.folder}
    wrong = next((path for folder, path in owned.items() if wrong_name(folder) or folder not in folders), "")
    return f"names {wrong[:200]!r}, which belongs to no folder of the capsule" if wrong else ""


def _stays_inside(entry: CapsuleEntry) -> bool:
    """Return whether a link leads to somewhere in the first folder of its own path."""
    up = 0
    words = entry.link.split("/")
    while words and words[0] == "..":
        up += 1
        words.pop(0)
    # `..` behind a name that may itself be a link would lead to where no name says.
    is_plain = all(word not in ("", ".", "..") for word in words) and "\0" not in entry.link
    return is_plain and up < len(PurePosixPath(entry.path).parts) - 1


def is_unpacked(home: Path) -> bool:
    """Return whether a folder is a capsule, completely unpacked: it holds the manifest of the digest in its name."""
    try:
        return hashlib.sha256(read_regular(home / NAME, MAX_MANIFEST)).hexdigest()[:16] == home.name
    except OSError:
        return False


def unpacked_digest(home: Path, folder: str) -> str:
    """Return the digest of the capsule that was unpacked to a folder, of which `folder` is unaltered. Raises RecordError."""
    try:
        manifest = manifest_of((home / NAME).read_bytes(), str(home / NAME))
        for entry in manifest.files_in(folder):
            path = home / entry.path
            if not entry.link and copied(pieces(path)) != (entry.size, entry.sha256):
                raise RecordError(
                    f"{path}: was changed since it was unpacked from a capsule. Copy its suite elsewhere to change it, or "
                    f"remove {home} and install again"
                )
    except OSError as error:
        raise RecordError(f"{error.filename}: cannot be read: {os_reason(error)}") from None
    return manifest.digest
