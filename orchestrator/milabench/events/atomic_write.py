"""Replaces files so that a reader, also after a power cut, finds the old content or the new one and nothing between."""

from __future__ import annotations

import os
from pathlib import Path


def replace_file(path: Path, content: bytes) -> None:
    """Write a file, or replace it. Raises OSError; the old file is then as it was, and nothing is left beside it."""
    # A name of its own: of two that write at once, one would put the other's half-written file in place.
    draft = path.with_name(f"{path.name}.{os.urandom(4).hex()}.tmp")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        # Synced before it gets its name: else a power cut may leave the name on an empty file (ext4, delayed allocation).
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    # A new name is durable only when its folder is, too (fsync(2)).
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
