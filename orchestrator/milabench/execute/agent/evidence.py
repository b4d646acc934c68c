"""Collects the state of a step's processes, with a program of a feature, before a hanging step is ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

TYPE_CHECKING = False  # see unpack.py
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Protocol, Tuple

    from .event_loop import EventLoop
    from .helpers import HelperProcesses
    from .procfs import Process
    from .protocol import StepFrames
    from .streams import ObservationConnection

    class Host(Protocol):
        """The part of the agent that is needed here."""

        run_id: str
        loop: EventLoop
        helpers: HelperProcesses

    class Step(Protocol):
        """The part of the step that is needed here."""

        id: str
        frames: StepFrames
        connections: List[ObservationConnection]
        is_over: bool

        def members(self) -> List[Process]:
            """Return its live processes."""

        def progress(self) -> List[Tuple[int, int, float]]:
            """Return rank, steps, and seconds since the last step, of each process whose steps are observed."""

    Then = Callable[[], None]

WITHIN_S = 1.9  # from the request to the evidence
COLLECT_S = 2.4  # a collector that takes longer is ended, and the step without its evidence
PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "__main__.py")


class EvidenceCollector:
    """The evidence of a step, collected once, whoever asks for it. `module` is the feature's. Without it nothing is collected."""

    def __init__(self, step: Step, host: Host, module: str) -> None:
        self._step = step
        self._host = host
        self._module = module
        self._waiting: List[Then] = []
        self._is_done = not module

    def collect(self, then: Then) -> None:
        """Call `then` when the evidence has been sent, or there is none."""
        if self._is_done:
            then()
            return
        self._waiting.append(then)
        if len(self._waiting) == 1:
            self._start()

    def _start(self) -> None:
        host, step = self._host, self._step
        pids = ",".join(str(process.pid) for process in step.members())
        ranks = ",".join(":".join(map(str, one.identity)) for one in step.connections if one.world_size > 1)
        words = ["--step", step.id, "--marker", host.run_id, "--pids", pids, "--ranks", ranks]
        words += ["--by", "%.3f" % (time.monotonic() + WITHIN_S)]
        command = [sys.executable, "-I", "-S", PROGRAM, "feature", self._module, *words]
        try:
            pid = host.helpers.start(command, self._send, stderr=subprocess.DEVNULL)
        except (OSError, ValueError, subprocess.SubprocessError):
            self._send(-1, b"")
            return
        host.loop.after(COLLECT_S, lambda: host.helpers.kill(pid))

    def _send(self, _: int, output: bytes) -> None:
        self._is_done = True
        step = self._step
        try:
            evidence: Dict[str, Any] = json.loads(output.decode())
        except ValueError:
            evidence = {"step": step.id, "absent": ["its processes could not be looked at in time"]}
        if not step.is_over:
            evidence["progress"] = step.progress()
            step.frames.send_now("evidence", json.dumps(evidence).encode())
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then()
