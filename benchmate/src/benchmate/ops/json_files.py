"""JSON in files of others: read whole, unpacked where it is packed, and problems of a file reported in a line."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import zlib
from collections.abc import Callable
from typing import Any

from benchmate.devices.vendors.regular_file import MAX_WHOLE, MIB, read_regular
from benchmate.ops.base import OpsError

MAX_RATIO = 100  # unpacked over packed, from 16 MiB on


def read_unpacked(path: str, expected: str, most: int = MAX_WHOLE) -> str:
    """Return the text of a file, also of one in gzip or in a tar archive. Raises OpsError, with the `expected` kind of file."""
    try:
        content = read_regular(path, most, is_pipe_allowed=True)
    except OSError as error:
        raise OpsError(f"{path}: {error.strerror}. {expected}") from error
    try:
        return _unpack(content, path, most).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise OpsError(f"{path}: not UTF-8 at byte {error.start}. {expected}") from None
    except (EOFError, OSError, tarfile.TarError, zlib.error) as error:
        raise OpsError(f"{path}: cut off or damaged: {str(error).lower()}. Write or copy it again") from None


def parse_json(text: str, source: str, make_object: Callable[[list[tuple[str, Any]]], object] | None = None) -> object:
    """Return the value of a text in JSON, its objects by `make_object`. Raises OpsError with line and column."""
    try:
        return json.loads(text, object_pairs_hook=make_object)
    except json.JSONDecodeError as error:
        where = f"{source}:{error.lineno}:{error.colno}"
        is_at_end = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string")
        if text.lstrip().startswith("{") and is_at_end:
            raise OpsError(
                f"{where}: cut off in the middle: the program that wrote it ended too early, or the copy did. "
                "Write or copy it again"
            ) from None
        raise OpsError(f"{where}: not JSON: {error.msg.lower()}") from None
    except (RecursionError, ValueError) as error:  # Python's limits
        raise OpsError(f"{source}: its JSON cannot be read: {error}") from None


def _unpack(content: bytes, path: str, most: int) -> bytes:
    # By what it begins with: a name may have lost its ending on the way.
    if content[:2] == b"\x1f\x8b":
        content = _gunzip(content, path, most)
    if content[257:262] != b"ustar":
        return content
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for member in archive:
            _require_size(member.size, path, most)  # a sparse one may have more than the archive
            file = archive.extractfile(member) if member.name.endswith(".json") else None
            if file is not None:
                return file.read()
    raise OpsError(f"{path}: an archive without a .json in it")


def _gunzip(content: bytes, path: str, most: int) -> bytes:
    pieces, size, limit = [], 0, 16 * MIB
    with io.BytesIO(content) as packed, gzip.GzipFile(fileobj=packed) as file:
        # Piece by piece: Python makes room for as many bytes as it is asked for.
        while size <= limit and (piece := file.read(MIB)):
            pieces.append(piece)
            size += len(piece)
            # A trace of repeated operators is packed to a thirtieth of its size, from its beginning on.
            limit = min(most, max(limit, MAX_RATIO * packed.tell()))
    _require_size(size, path, limit)
    return b"".join(pieces)


def _require_size(size: int, path: str, most: int) -> None:
    if size > most:
        raise OpsError(f"{path}: unpacks to more than the limit of {most // MIB} MiB")
