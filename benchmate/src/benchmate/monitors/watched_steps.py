"""The steps that a monitor watches, and the connection over which the agent gets the readings of each."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmate.records import encode

BACKLOG_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedStep:
    """A step of the group: where its records go, the pid of its leader, and its devices by number and UUID.

    `is_container`: its processes may be children of a container engine's service, or of Slurm's, not of the leader.
    """

    name: str
    sink: str
    pid: int
    devices: tuple[int, ...] = ()
    uuids: tuple[str, ...] = ()
    is_container: bool = False


def parse_steps(text: str) -> tuple[WatchedStep, ...]:
    """Parse `{"steps": [{"step", "sink", "pid", "devices", "uuids", "container"}]}`. Raise ValueError or KeyError."""
    return tuple(
        WatchedStep(
            name=str(step.get("step", "")),
            sink=str(step["sink"]),
            pid=int(step["pid"]),
            devices=tuple(step.get("devices") or ()),
            uuids=tuple(step.get("uuids") or ()),
            is_container=bool(step.get("container")),
        )
        for step in json.loads(text)["steps"]
    )


class StepSink:
    """Sends records to the agent: queued, sent together, dropped and counted when the agent does not read.

    Never waits: a monitor that blocks on a full socket would miss its readings.
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
        except OSError:  # the step ended before the monitor was up
            self._socket.close()
            return
        self.is_open = True
        self._pending += encode({"hello": hello}) + b"\n"
        self.flush()

    def fileno(self) -> int:
        """Return the socket's descriptor, to wait for the agent."""
        return self._socket.fileno()

    def record(self, event: str, data: Mapping[str, object]) -> None:
        """Queue a record. The closing brace is last, where the agent puts its time stamp."""
        if len(self._pending) > BACKLOG_BYTES:
            self.dropped += 1
        elif self.is_open:
            self._pending += encode({"event": event, "data": data, "pipe": "data"}) + b"\n"

    def message(self, text: str) -> None:
        """Queue a line for the reader of the run."""
        self.record("message", {"message": text})

    def flush(self) -> None:
        """Send as much as the socket takes without waiting."""
        while self._pending and self.is_open:
            try:
                sent = self._socket.send(self._pending)
            except BlockingIOError:
                return
            except OSError:
                self.close()
                return
            del self._pending[:sent]

    def is_over(self) -> bool:
        """Return whether the agent has written anything, or has gone: either means that the step is over."""
        try:
            self._socket.recv(65536)
        except BlockingIOError:
            return False
        except OSError:
            pass
        return True

    def close(self) -> None:
        """Send the rest, if the socket takes it at once."""
        if self.is_open:
            with contextlib.suppress(OSError):
                self._socket.send(self._pending)
            self._pending.clear()
            self.is_open = False
            self._socket.close()


def steps_holding(steps: Sequence[WatchedStep], index: int, uuid: str, order: int) -> list[WatchedStep]:
    """Return the steps that hold a device: by UUID where it is known, else by number.

    `order` is the index of the device among those that were detected. A plan for simulated devices counts by it.
    """
    by_uuid = [step for step in steps if uuid in step.uuids]
    return by_uuid or [step for step in steps if index in step.devices or order in step.devices]
