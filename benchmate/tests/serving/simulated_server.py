"""The simulated server as a process of its own, for tests: its address, and what it logged of each request."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass
class SimulatedProcess:
    """Use as a context manager; `options` are those of its command line, `--slots 4`."""

    folder: Path
    options: str = ""
    port: int = 0

    def __enter__(self) -> SimulatedProcess:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log = self.folder / "truth.jsonl"
        command = [
            sys.executable,
            "-m",
            "benchmate.serving.simulated",
            "--port",
            str(self.port),
            "--log",
            str(self.log),
        ]
        self.process = subprocess.Popen([*command, *self.options.split()], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().rpartition(" ")[2].strip()
        assert self.url, "the server did not start"
        self.port = int(self.url.rpartition(":")[2])
        return self

    def __exit__(self, *error: object) -> None:
        self.process.terminate()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.process.wait(30)

    def requests(self, least: int = 0) -> list[dict[str, Any]]:
        """What it logged, in the order in which the requests came; it logs a request only after its last byte.

        So many are waited for, or a minute.
        """
        deadline = time.monotonic() + 60
        while self.log.read_text().count("\n") < least and time.monotonic() < deadline:
            time.sleep(0.01)
        return sorted(map(json.loads, self.log.read_text().splitlines()), key=lambda line: line["request"])
