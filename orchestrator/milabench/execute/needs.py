"""Downloads and disk space of an installation, from the indexes, before anything is downloaded."""

from __future__ import annotations

import contextlib
import http.client
import io
import re
import tomllib
import urllib.request
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

from milabench.execute.sizes import size_text

# A wheel's list of contents is at its end, and is asked for only where it matters.
LARGE = 5_000_000
TAILS = (300_000, 3_000_000)  # of nearly all wheels, and of those with tens of thousands of files
# Of the wheels of this project's locks below that size: unpacked, and the Python in them, per byte of the archive.
UNPACKED, PYTHON = 3.4, 1.4
PYTHON_OF_LARGE = 0.4
BYTE_CODE = 1.6  # per byte of Python, in whole blocks and with the folders
_UNCACHED = re.compile(r"Identified uncached distribution: (\S+)==(\S+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageFile:
    """A file that would be installed. Sizes are in bytes, `size` None where nobody tells it. `python` is unpacked too."""

    name: str
    version: str
    url: str
    size: int | None = None
    unpacked: int | None = None
    python: int | None = None

    @property
    def is_remote(self) -> bool:
        """It comes over a network."""
        return self.url.startswith(("http://", "https://"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """The files of an environment, of which those in `fetched` are not in the cache yet, by URL."""

    files: tuple[PackageFile, ...]
    fetched: frozenset[str]

    @property
    def byte_code(self) -> float:
        """Bytes of byte code, which no other environment shares."""
        return sum(BYTE_CODE * (file.python or 0) for file in self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """The needs of one or several environments together. A shared file counts once.

    `download` is in bytes, without `unknown` files, whose size nobody tells. `cache` and `base` are the bytes on the disks
    of uv's cache and of the environments, and there are more where `is_partial`.
    """

    packages: int
    download: int
    unknown: int
    is_partial: bool
    cache: float
    base: float

    def __str__(self) -> str:
        """Return `34 packages, 843 MB to download, about 1.9 GB of disk`."""
        download = f"{size_text(self.download)} to download" if self.download else ""
        if self.unknown:
            download += " and " if download else ""
            download += f"{self.unknown} {'file' if self.unknown == 1 else 'files'} of unknown size to download"
        size = self.cache + self.base
        disk = f"{'at least' if self.is_partial else 'about'} {size_text(size)} of disk" if size else "disk unknown"
        packages = "1 package" if self.packages == 1 else f"{self.packages} packages"
        return f"{packages}, {download or 'nothing to download'}, {disk}"


def total(needs: Iterable[Need], *, is_linked: bool) -> Total:
    """Return the needs of environments together. `is_linked`: they share their files with the cache."""
    needs = list(needs)
    files = {file.url: file for need in needs for file in need.files}
    fetched = [file for url, file in files.items() if any(url in need.fetched for need in needs)]
    remote = [file for file in fetched if file.is_remote]
    copied = 0 if is_linked else sum(file.unpacked or 0 for need in needs for file in need.files)
    return Total(
        packages=len(files),
        download=sum(file.size or 0 for file in remote),
        unknown=sum(file.size is None for file in remote),
        is_partial=any(file.unpacked is None for file in files.values()),
        cache=sum(file.unpacked or 0 for file in fetched),
        base=copied + sum(need.byte_code for need in needs),
    )


def uncached(output: str) -> frozenset[tuple[str, str]]:
    """Return the packages, each with its version, that `uv pip sync --dry-run --verbose` did not find in the cache."""
    return frozenset((canonicalize_name(name), version) for name, version in _UNCACHED.findall(output))


def files_of(pylock: str, python: str) -> tuple[PackageFile, ...]:
    """Return the file of each package of a pylock.toml that this Python ("3.11") would install here."""
    chosen = []
    for package in tomllib.loads(pylock).get("packages", ()):
        ranked = ((wheel_rank(_name(wheel), python), wheel) for wheel in package.get("wheels", ()))
        wheels = [(rank, wheel) for rank, wheel in ranked if rank is not None]
        best = min(wheels, key=lambda each: each[0])[1] if wheels else package.get("sdist")
        if best is not None and (url := best.get("url") or best.get("path")):
            known = {"name": package["name"], "version": package.get("version", ""), "url": str(url)}
            chosen.append(PackageFile(**known, size=best.get("size")))
    return tuple(chosen)


def _name(wheel: Mapping[str, object]) -> str:
    """Return the file name of an entry of a pylock.toml."""
    place = urlsplit(str(wheel.get("url") or wheel.get("path"))).path
    return str(wheel.get("name") or unquote(place).rpartition("/")[2])


def version_of(name: str) -> Version | None:
    """Return the version of a release by the name of its file. None for a file that is no release."""
    try:
        return parse_wheel_filename(name)[1] if name.endswith(".whl") else parse_sdist_filename(name)[1]
    except (InvalidSdistFilename, InvalidVersion, InvalidWheelFilename):
        return None


def wheel_rank(name: str, python: str) -> int | None:
    """Return how well a wheel of this file name fits this Python ("3.11") on this machine, 0 best. None when it does not."""
    try:
        tags = parse_wheel_filename(name)[3]
    except InvalidWheelFilename:
        return None
    ranks = _ranks(".".join(python.split(".")[:2]))
    return min((ranks[tag] for tag in tags if tag in ranks), default=None)


@cache
def _ranks(python: str) -> Mapping[Tag, int]:
    version = tuple(int(part) for part in python.split("."))
    tags = [*cpython_tags(version), *compatible_tags(version, f"cp{version[0]}{version[1]}")]
    return {tag: rank for rank, tag in reversed(list(enumerate(tags)))}


def measured(file: PackageFile, opener: urllib.request.OpenerDirector | None) -> PackageFile:
    """Return a file with its sizes: from its list of contents where it is large, else from typical files.

    `opener` None asks no server.
    """
    size, listed = file.size, list[zipfile.ZipInfo]()
    path, is_wheel = _local(file.url), file.url.endswith(".whl")
    with contextlib.suppress(OSError, ValueError, TypeError, http.client.HTTPException, zipfile.BadZipFile):
        if path is not None:
            size = path.stat().st_size
            listed = _contents(path) if size >= LARGE and is_wheel else []
        elif opener is not None and (size is None or (size >= LARGE and is_wheel)):
            size, listed = _on_server(file.url, opener)
    if listed:
        unpacked = sum(entry.file_size for entry in listed)
        python = sum(entry.file_size for entry in listed if entry.filename.endswith(".py"))
    elif size is not None:
        unpacked, python = int(size * UNPACKED), int(size * (PYTHON if size < LARGE else PYTHON_OF_LARGE))
    else:
        return file
    return replace(file, size=size, unpacked=unpacked, python=python)


def _local(url: str) -> Path | None:
    if url.startswith("file://"):
        return Path(unquote(urlsplit(url).path))
    return None if "://" in url else Path(url)


def _contents(archive: Path | io.BytesIO) -> list[zipfile.ZipInfo]:
    with zipfile.ZipFile(archive) as opened:
        return opened.infolist()


def _on_server(url: str, opener: urllib.request.OpenerDirector) -> tuple[int, list[zipfile.ZipInfo]]:
    """Return the size of a file on a server, and the list of contents of a large wheel. Empty where its end does not hold it.

    Raises OSError, ValueError, TypeError and http.client.HTTPException.
    """
    size = 0
    for tail in TAILS:
        request = urllib.request.Request(url, headers={"Range": f"bytes=-{tail}"})
        with opener.open(request, timeout=10) as answer:
            if answer.headers.get_content_type() == "text/html":
                raise ValueError("not a file")
            part = re.fullmatch(r"bytes \d+-\d+/(\d+)", answer.headers.get("Content-Range", ""))
            # A server that gives whole files only tells the length, which is all that is known then.
            size = int(part[1] if part else answer.headers["Content-Length"])
            if part is None or size < LARGE or not url.endswith(".whl"):
                break
            end = io.BytesIO(answer.read(tail))
        with contextlib.suppress(zipfile.BadZipFile):  # the list is longer
            return size, _contents(end)
    return size, []
