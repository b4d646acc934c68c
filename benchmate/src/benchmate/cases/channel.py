"""The child's end of the private pipe: one line of JSON, written whole, and only if the pipe is still ours."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

CLOSED_MEANWHILE = 113
"""Exit code, one that programs do not use, of a child whose case closed the pipe: the parent that waits sees nothing else."""


class Channel:
    """A descriptor from the parent. Taken at the start, so that a file that gets its number later is not mistaken for it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._inode = _inode(descriptor)
        # What the case starts must not hold the parent's pipe open.
        os.set_inheritable(descriptor, False)

    def send(self, result: Mapping[str, Any]) -> bool:
        """Write the result; False when the case has closed the pipe, or the parent is gone."""
        from benchmate.records import encode  # now that nothing is measured any more

        try:
            if _inode(self._descriptor) != self._inode:
                return False
            rest = memoryview(encode(result) + b"\n")
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError:
            return False
        return True


def _inode(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino
