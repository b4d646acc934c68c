"""The queue of QUEUE_FOLDER: a folder for each job, with its name, its process, and its exit code once it has ended."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from milabench.errors import UsageError
from milabench.facts.allocated_nodes import AllocatedNode, Allocation
from milabench.schedulers.scheduler import JobHandle, JobRequest, JobState, JobText

if TYPE_CHECKING:
    from milabench.config.schema import SystemConfig

HERE = socket.gethostname()
# The job begins when those before it have ended; its process and exit code are there whole, or not yet.
WAITS = 'for one in $AFTER; do while [ ! -e "../$one/code" ]; do sleep 0.05; done; done'
LIFE = f"echo $$ > p; mv p pid; {WAITS}; touch began; sh script; echo $? > c; mv c code"


class Queue:
    """The four verbs, on processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def submit(self, jobs: Sequence[JobRequest]) -> list[JobHandle]:
        """Start a process for each job, in order."""
        handles = []
        for job in jobs:
            if job.tasks:
                raise UsageError(f"job {job.name}: the queue has no arrays; leave out --array")
            if not job.script:
                raise UsageError(f"job {job.name}: an empty script")
            number = len(list(self.folder.iterdir())) + 1
            own = self.folder / str(number)
            own.mkdir()
            (own / "name").write_text(job.name)
            (own / "script").write_text(job.script)
            environ = {**os.environ, "QUEUE_JOB": str(number), "AFTER": " ".join(job.after)}
            subprocess.run(
                ["setsid", "--fork", "sh", "-c", LIFE],
                cwd=own,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=True,
            )
            handles.append(JobHandle(id=str(number), name=job.name))
        return handles

    def observe(self, handles: Sequence[JobHandle], *, is_doubted: bool = False) -> Mapping[str, JobState]:
        """Return the state of each job, as its folder has it."""
        return {handle.id: self._state(self.folder / handle.id) for handle in handles}

    def _state(self, own: Path) -> JobState:
        if not own.exists():
            return JobState(phase="absent")
        if (own / "code").exists():
            code = int((own / "code").read_text())
            return JobState(phase="ended", result="failed" if code else "completed", exit_code=code, nodes=(HERE,))
        if (own / "cancelled").exists():
            return JobState(phase="ended", result="cancelled", nodes=(HERE,))
        return JobState(phase="running", nodes=(HERE,)) if (own / "began").exists() else JobState(phase="pending")

    def cancel(self, handles: Sequence[JobHandle]) -> None:
        """End the processes of jobs."""
        for own in (self.folder / handle.id for handle in handles):
            if not (own / "code").exists() and not (own / "cancelled").exists():
                (own / "cancelled").touch()
                while not (own / "pid").exists():  # a job that was submitted a moment ago
                    time.sleep(0.01)
                os.killpg(int((own / "pid").read_text()), signal.SIGTERM)

    def adopt(self, marker: str) -> list[JobHandle]:
        """Return the jobs of a run."""
        names = {own.name: (own / "name").read_text() for own in self.folder.iterdir()}
        return [JobHandle(id=id_, name=name) for id_, name in names.items() if name.startswith(f"mb-{marker}-")]


class QueueJobs:
    """How milabench speaks to the queue, writes its jobs, and knows one from within."""

    def connect(self, *, timeout_s: float | None = None, say: Callable[[str], object] = lambda _: None) -> Queue:
        """Return the queue of this machine."""
        return Queue(Path(os.environ["QUEUE_FOLDER"]))

    def script(self, system: SystemConfig, job: JobText) -> str:
        """Return the script of a job."""
        return f"exec >> {shlex.quote(str(job.output))} 2>&1\nexec {shlex.join(job.command)}\n"

    def allocation(self, environ: Mapping[str, str]) -> Allocation | None:
        """Return this machine, where a job of the queue runs."""
        job = environ.get("QUEUE_JOB")
        return (job and Allocation(job=job, nodes=(AllocatedNode(name=HERE, job=job),), here=HERE)) or None

    def job_id(self, environ: Mapping[str, str]) -> str:
        """Return the number of the job."""
        return environ.get("QUEUE_JOB", "")


QUEUE = QueueJobs()
