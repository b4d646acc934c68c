"""A small agent for tests: listens on a socket, keeps every line, opens each ring that is announced."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmate.ring import RingEntry, take_entries, take_losses

QUICK = {"measure": {"warmup_steps": 2, "warmup_s": 0, "window_steps": 5, "window_s": 0}}


@dataclass
class Ran:
    """How a program ended."""

    code: int
    stdout: str
    stderr: str


@dataclass
class Agent:
    """Use as a context manager; `lines` holds what came, control lines and records alike."""

    lines: list[dict[str, Any]] = field(default_factory=list)
    rings: list[tuple[dict[str, Any], mmap.mmap]] = field(default_factory=list)
    malformed: list[bytes] = field(default_factory=list)

    def __enter__(self) -> Agent:
        self.folder = Path(tempfile.mkdtemp(prefix="bm-"))
        self.path = self.folder / "sink"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self.path))
        self._listener.listen(64)
        self._readers: list[threading.Thread] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
        shutil.rmtree(self.folder)

    def close(self) -> None:
        """Stop listening, having read everything that was sent."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(10)
        for reader in self._readers:
            reader.join(10)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            reader = threading.Thread(target=self._read, args=(connection,), daemon=True)
            self._readers.append(reader)
            reader.start()

    def _read(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as file:
            for line in file:
                try:
                    parsed = json.loads(line, parse_constant=_refuse)
                except ValueError:
                    self.malformed.append(line)
                    continue
                if parsed.get("event") is not None and not (line.startswith(b'{"event": ') and line.endswith(b"}\n")):
                    self.malformed.append(line)
                if "ring" in parsed:
                    with Path(parsed["ring"]["path"]).open("r+b") as ring:
                        self.rings.append((parsed["ring"], mmap.mmap(ring.fileno(), 0)))
                if "ready" in parsed:
                    connection.sendall(b'{"go": 1.0}\n')
                self.lines.append(parsed)

    def run(
        self,
        *arguments: str,
        config: dict[str, Any] | None = QUICK,
        env: dict[str, str] | None = None,
        cwd: Path | None = None,
        module: str = "benchmate.run",
    ) -> Ran:
        """Run a program to its end, with this agent as its sink, and read all that it sent."""
        file = self.folder / "config.json"
        file.write_text(json.dumps(config or {}))
        own = {**os.environ, "MILABENCH_SINK": f"unix:{self.path}", "MILABENCH_BENCH_CONFIG": str(file), **(env or {})}
        command = [sys.executable, "-m", module, *arguments] if module else [sys.executable, *arguments]
        done = subprocess.run(command, capture_output=True, env=own, cwd=cwd or self.folder, timeout=120, check=False)
        self.close()
        return Ran(done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace"))

    # What came

    def records(self, event: str = "data") -> list[dict[str, Any]]:
        """The data of all records of one event."""
        return [line["data"] for line in self.lines if line.get("event") == event]

    def controls(self, name: str) -> list[Any]:
        """The values of all control lines of one kind."""
        return [line[name] for line in self.lines if name in line and "event" not in line]

    def entries(self, task: str = "train") -> list[RingEntry]:
        """The observations of a task, from all its rings."""
        found: list[RingEntry] = []
        for meta, memory in self.rings:
            if meta["task"] == task and meta["kind"] == "rate":
                found += take_entries(memory)
        return found

    def losses(self) -> list[float]:
        """The losses, from all rings of them."""
        return [loss for meta, memory in self.rings if meta["kind"] == "loss" for _, _, loss in take_losses(memory)]

    def metrics(self) -> dict[str, Any]:
        """Every metric by name."""
        return {data["metric"]: data["value"] for data in self.records() if "metric" in data}

    def windows(self) -> list[dict[str, Any]]:
        """Every window."""
        return [data["window"] for data in self.records() if "window" in data]


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
