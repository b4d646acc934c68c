"""What agent and control plane exchange: the names, limits and frames of docs/protocol.md."""

from __future__ import annotations

import itertools
import json
import os
from collections import deque
from typing import Any, Deque, Dict, Optional

from .event_loop import READ_BYTES

VERSION = 1
TAIL_CHARACTERS = 500
RUN_MARKER = "MILABENCH_RUN_MARKER"
STEP_MARKER = "MILABENCH_STEP"
# `fail` lines with these reasons say more than the exit code or signal that follows them.
TELLING = ("probe", "invalid", "out-of-memory", "no-space", "environment")
REASONS = (*TELLING, "exit", "no-data")


class Outbox:
    """Frames on their way to the control plane; they wait here when it does not read."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.size = 0
        self.broken = False
        self._waiting: Deque[memoryview] = deque()

    def send(self, kind: str, payload: bytes, step: Optional[str] = None, **more: Any) -> None:
        """Queues one frame."""
        if self.broken:
            return
        header: Dict[str, Any] = {"k": kind, "n": len(payload)}
        if step is not None:
            header["step"] = step
        header.update(more)
        head = json.dumps(header, separators=(",", ":")).encode() + b"\n"
        self._waiting.append(memoryview(head + payload))
        self.size += len(head) + len(payload)

    def flush(self) -> None:
        """Writes what the pipe takes."""
        while self._waiting and not self.broken:
            count, size = 0, 0
            for chunk in itertools.islice(self._waiting, 64):
                count, size = count + 1, size + len(chunk)
                if size > READ_BYTES:
                    break
            try:
                written = os.writev(self.fd, list(itertools.islice(self._waiting, count)))
            except BlockingIOError:
                return
            except OSError:
                self.broken = True
                self._waiting.clear()
                self.size = 0
                return
            self.size -= written
            while self._waiting and written >= len(self._waiting[0]):
                written -= len(self._waiting.popleft())
            if written:
                self._waiting[0] = self._waiting[0][written:]


def said_of(error: OSError) -> str:
    """An OSError for a person."""
    text = error.strerror or str(error)
    text = text[:1].lower() + text[1:]
    return "%s: %s" % (error.filename, text) if error.filename else text
