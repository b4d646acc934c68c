"""What following jobs costs: `python tests/perf/jobs.py [JOBS] [MINUTES]` (2,000 and 60), of simulated time.

Prints the CPU that a tracker of so many jobs takes as a share of one core (the promise: at most 2 %), that of the commands that
it runs, its memory (at most 200 MB) and its questions for each tick (at most one). The jobs begin and end all the time; squeue
is a script that prints a file.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path

from milabench.jobs.job_tracker import JobTracker
from milabench.schedulers.scheduler import JobHandle
from milabench.slurm.scheduler import SlurmScheduler

SEPARATOR = "\x1f"


def states(jobs: int, share: float) -> list[str]:
    """The states of jobs of which some have ended, forty run and the others wait."""
    ended = int(share * jobs)
    return ["COMPLETED"] * ended + ["RUNNING"] * min(40, jobs - ended) + ["PENDING"] * max(0, jobs - ended - 40)


def answer(jobs: int, share: float) -> str:
    """What squeue prints."""
    rows = enumerate(states(jobs, share))
    cells = (
        (
            str(100_000 + n),
            str(100_000 + n),
            state,
            "" if state == "PENDING" else f"gpu-[{n % 40:03}]",
            f"mb-k3v9x2-s{n}",
        )
        for n, state in rows
    )
    return "".join(SEPARATOR.join((*row, "Priority")) + "\n" for row in cells)


def main(jobs: int, minutes: float) -> None:
    """Follow jobs for so many simulated minutes, and print what it took."""
    with tempfile.TemporaryDirectory(prefix="mb") as name:
        folder = Path(name)
        squeue = folder / "squeue"
        squeue.write_text(f"#!/bin/sh\nprintf x >> {name}/calls\ncat {name}/answer\n")
        squeue.chmod(0o755)
        scheduler = SlurmScheduler({"PATH": f"{name}:/usr/bin:/bin"})
        now, ticks, cpu_s = 0.0, 0, 0.0
        handles = [JobHandle(id=str(100_000 + n), name=f"mb-k3v9x2-s{n}") for n in range(jobs)]
        tracker = JobTracker(scheduler, handles, clock=lambda: now)
        (folder / "calls").touch()
        children_s = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        while now < minutes * 60:
            (folder / "answer").write_text(answer(jobs, now / (minutes * 60)))
            begin = time.process_time()
            tracker.tick()
            tracker.changes()
            cpu_s += time.process_time() - begin
            ticks += 1
            now += tracker.interval_s
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        children_s = usage.ru_utime + usage.ru_stime - children_s
        left = len(tracker.unfinished)
        status = Path("/proc/self/status").read_text()
        peak = int(status.partition("VmHWM:")[2].split()[0]) / 1024
        calls = (folder / "calls").stat().st_size
        print(
            f"{jobs} jobs, {minutes:g} min: {cpu_s / now:.2%} of a core"
            f" ({cpu_s / ticks * 1000:.0f} ms a tick), its commands {children_s / now:.2%}; {peak:.0f} MB;"
            f" {calls / ticks:.2f} questions a tick, {ticks} ticks; {left} jobs left"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000, float(sys.argv[2]) if len(sys.argv) > 2 else 60.0)
