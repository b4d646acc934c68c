"""Each step takes 10 ms of a processor by the program's own clock, so that disturbances make it longer and nothing else does.

`launch.PID` tells others where it runs, `own.PID` holds its steps and their nanoseconds on the processor.
"""

import os
import pathlib
import time

import benchmate

STEP_NS = 10_000_000

processor = min(os.sched_getaffinity(0))
os.sched_setaffinity(0, {processor})
told = pathlib.Path(f"told.{os.getpid()}")
told.write_text(str(processor))
told.rename(f"launch.{os.getpid()}")
steps, begun = 0, time.thread_time_ns()
for _ in benchmate.observed(range(10**6), units="steps/s", batch_size=1, stop=True):
    until = time.thread_time_ns() + STEP_NS
    while time.thread_time_ns() < until:
        pass
    steps += 1
pathlib.Path(f"own.{os.getpid()}").write_text(f"{steps} {time.thread_time_ns() - begun}")
