"""The steps that a monitor watches, and the connection over which each is told its readings."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmate.records import encode

BACKLOG_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedStep:
    """A step of the group: where its records go, its leader, and its devices by number and UUID."""

    name: str
    sink: str
    pid: int
    devices: tuple[int, ...] = ()
    uuids: tuple[str, ...] = ()


def parse_steps(text: str) -> tuple[WatchedStep, ...]:
    """What the agent says: `{"steps": [{"step", "sink", "pid", "devices", "uuids"}]}`. Raises ValueError or KeyError."""
    return tuple(
        WatchedStep(
            name=str(one.get("step", "")),
            sink=str(one["sink"]),
            pid=int(one["pid"]),
            devices=tuple(one.get("devices") or ()),
            uuids=tuple(one.get("uuids") or ()),
        )
        for one in json.loads(text)["steps"]
    )


class StepSink:
    """Records on their way to the agent: gathered, sent together, dropped and counted when nobody takes them.

    Never waits: a monitor that hangs in a full socket would miss its readings.
    """

    def __init__(self, step: WatchedStep) -> None:
        self.step = step
        self.dropped = 0
        self.is_open = False
        self._pending = bytearray()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        hello = {"pid": os.getpid(), "role": "monitor", "rank": 0, "local_rank": 0, "world_size": 1}
        try:
            self._socket.connect(step.sink.removeprefix("unix:"))
            self._socket.setblocking(False)
        except OSError:  # the step has ended before we were up
            self._socket.close()
            return
        self.is_open = True
        self._pending += encode({"hello": hello}) + b"\n"
        self.flush()

    def fileno(self) -> int:
        """The socket's, to wait for what the agent says."""
        return self._socket.fileno()

    def record(self, event: str, data: Mapping[str, Any]) -> None:
        """Queue one record; the closing brace is last, where the agent puts its stamp."""
        if len(self._pending) > BACKLOG_BYTES:
            self.dropped += 1
        elif self.is_open:
            self._pending += encode({"event": event, "data": data, "pipe": "data"}) + b"\n"

    def message(self, text: str) -> None:
        """One line for the reader of the run."""
        self.record("message", {"message": text})

    def flush(self) -> None:
        """Send what the socket takes."""
        while self._pending and self.is_open:
            try:
                sent = self._socket.send(self._pending)
            except BlockingIOError:
                return
            except OSError:
                self.close()
                return
            del self._pending[:sent]

    def is_told_to_stop(self) -> bool:
        """Whether the agent has said anything, or has gone: either means that the step is over."""
        try:
            self._socket.recv(65536)
        except BlockingIOError:
            return False
        except OSError:
            pass
        return True

    def close(self) -> None:
        """Send what is left, if somebody takes it at once."""
        if self.is_open:
            with contextlib.suppress(OSError):
                self._socket.send(self._pending)
            self._pending.clear()
            self.is_open = False
            self._socket.close()


def steps_holding(steps: Sequence[WatchedStep], index: int, uuid: str, order: int) -> list[WatchedStep]:
    """The steps that hold a device: by UUID where it is known, else by number.

    `order` is its place among the devices, which is what a plan for devices that do not exist counts.
    """
    by_uuid = [step for step in steps if uuid in step.uuids]
    return by_uuid or [step for step in steps if index in step.devices or order in step.devices]
