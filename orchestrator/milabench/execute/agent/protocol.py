"""Exchange messages with the control plane: the names, reasons and frames of protocol.md."""

from __future__ import annotations

import itertools
import json
import os
import time
from collections import deque

from .event_loop import READ_BYTES

TYPE_CHECKING = False  # see unpack.py
if TYPE_CHECKING:
    from typing import Any, Callable

    from ...redaction import Masker  # not at the start of verbs without steps

MOST_PIECES = 8  # of a frame: what few readings of a busy writer have brought travels as it is
TAIL_CHARACTERS = 500  # of an output line that a detail quotes
RUN_MARKER = "MILABENCH_RUN_MARKER"
STEP_MARKER = "MILABENCH_STEP"

# `fail` lines with these reasons say more than the exit code or signal that follows them.
DECISIVE_WHYS = ("probe", "invalid", "wrong", "out-of-memory", "no-space", "environment")
WHYS = (*DECISIVE_WHYS, "exit", "no-data")


class Outbox:
    """Frames on their way to the control plane. They wait here while it does not read."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.size = 0
        self.is_broken = False
        self._chunks: deque[memoryview] = deque()

    def send(self, kind: str, *pieces: bytes, step: str | None = None, **fields: Any) -> None:
        """Queue a frame, whose payload may come in pieces. They are copied only where they are many."""
        if self.is_broken:
            return
        if len(pieces) > MOST_PIECES:
            pieces = (b"".join(pieces),)
        if not pieces[-1].endswith(b"\n"):
            pieces += (b"\n",)  # srun passes on whole lines only: without their end it would keep the last bytes
        size = sum(map(len, pieces))
        header: dict[str, Any] = {"k": kind, "n": size}
        if step is not None:
            header["step"] = step
        header.update(fields)
        head = json.dumps(header, separators=(",", ":")).encode() + b"\n"
        self._chunks += map(memoryview, (head, *pieces))
        self.size += len(head) + size

    def flush(self) -> None:
        """Write as much as the pipe takes."""
        while self._chunks and not self.is_broken:
            try:
                # Far fewer than IOV_MAX; the pipe takes what fits, and the rest is written when it has room.
                written = os.writev(self.fd, list(itertools.islice(self._chunks, 64)))
            except BlockingIOError:
                return
            except OSError:
                self.is_broken = True
                self._chunks.clear()
                self.size = 0
                return
            self.size -= written
            while self._chunks and written >= len(self._chunks[0]):
                written -= len(self._chunks.popleft())
            if written:
                self._chunks[0] = self._chunks[0][written:]


class StepFrames:
    """The frames of a step, gathered so that many small records travel in a single frame. Their order is kept.

    Records given to `emit` hold no secret any more. Records and messages of the agent's own are masked here.
    """

    def __init__(self, outbox: Outbox, step: str, masker: Masker, schedule_gathering: Callable[[], None]) -> None:
        self.masker = masker
        self._outbox = outbox
        self._step = step
        self.schedule_gathering = schedule_gathering
        self._pending: list[tuple[str, dict[str, Any], list[bytes]]] = []
        self._pending_bytes = 0

    def emit(self, kind: str, payload: bytes, **fields: Any) -> None:
        """Queue bytes for the control plane."""
        if not payload:
            return
        if self._pending and self._pending[-1][0] == kind and not fields:
            self._pending[-1][2].append(payload)
        else:
            self._pending.append((kind, fields, [payload]))
        self._pending_bytes += len(payload)
        if self._pending_bytes > READ_BYTES:
            self.flush()
        else:
            self.schedule_gathering()

    def record(self, event: str, data: dict[str, Any]) -> None:
        """Queue a record of the agent's own."""
        text = json.dumps(
            {"event": event, "data": data, "pipe": None, "t": round(time.time(), 6)}, separators=(",", ":")
        )
        self.emit("rec", self.masker.mask_bytes(text.encode()) + b"\n")

    def message(self, text: str) -> None:
        """Queue a message for whoever reads the records."""
        self.record("message", {"message": text})

    def send_now(self, kind: str, payload: bytes = b"{}") -> None:
        """Send a frame at once, after everything that is queued."""
        self.flush()
        self._outbox.send(kind, self.masker.mask_bytes(payload), step=self._step)

    def flush(self) -> None:
        """Send the queued bytes."""
        for kind, fields, payloads in self._pending:
            self._outbox.send(kind, *payloads, step=self._step, **fields)
        self._pending.clear()
        self._pending_bytes = 0


def format_oserror(error: OSError) -> str:
    """Return an OSError as a line: the file, if there is one, and the error."""
    text = error.strerror or str(error)
    text = text[:1].lower() + text[1:]
    return "%s: %s" % (error.filename, text) if error.filename else text
