"""Collects the state of a step's processes, with a program of a feature, before a hanging step is ended."""

from __future__ import annotations

import json
import subprocess
import time

from .helpers import verb_command

TYPE_CHECKING = False  # see unpack.py
if TYPE_CHECKING:
    from typing import Any, Callable

    from .step import RunningStep

    Then = Callable[[], None]

WITHIN_S = 1.9  # from the request to the evidence
COLLECT_S = 2.4  # a collector that takes longer is ended, and the step without its evidence


class EvidenceCollector:
    """The evidence of a step, collected once, whoever asks for it. `module` is the feature's."""

    def __init__(self, step: RunningStep, module: str) -> None:
        self._step = step
        self._module = module
        self._waiting: list[Then] = []
        self._is_done = False

    def collect(self, then: Then) -> None:
        """Call `then` when the evidence has been sent, or there is none."""
        if self._is_done:
            then()
            return
        self._waiting.append(then)
        if len(self._waiting) == 1:
            self._start()

    def _start(self) -> None:
        step, host = self._step, self._step.host
        pids = ",".join(str(process.pid) for process in host.members(step))
        ranks = ",".join(":".join(map(str, one.identity)) for one in step.connections if one.world_size > 1)
        words = ["--step", step.id, "--marker", host.run_id, "--pids", pids, "--ranks", ranks]
        words += ["--by", "%.3f" % (time.monotonic() + WITHIN_S)]
        try:
            command = verb_command("feature", self._module, *words)
            pid = host.helpers.start(command, self._send, stderr=subprocess.DEVNULL)
        except (OSError, ValueError, subprocess.SubprocessError):
            self._send(-1, b"")
            return
        host.loop.after(COLLECT_S, lambda: host.helpers.kill(pid))

    def _send(self, _: int, output: bytes) -> None:
        self._is_done = True
        step = self._step
        try:
            evidence: dict[str, Any] = json.loads(output.decode())
        except ValueError:
            evidence = {"step": step.id, "absent": ["its processes could not be looked at in time"]}
        if not step.is_over:
            evidence["progress"] = step.progress()
            step.frames.send_now("evidence", json.dumps(evidence).encode())
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then()
