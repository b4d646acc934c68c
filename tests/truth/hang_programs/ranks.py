"""Two ranks of a job over gloo, one of which may hang: `python ranks.py FAULT RANK FIRST WORLD PORT`.

The ranks are forked, so that torch is imported once. Each tells the agent who it is, as a program of milabench does.
"""

import os
import re
import signal
import sys
import tempfile
import threading
import time


class Starting:
    """Says every half second that the program starts, so that it is not silent before it hangs."""

    def __init__(self):
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._say)
        self._thread.start()

    def _say(self):
        while not self._is_over.wait(0.5):
            print("starting", flush=True)

    def end(self):
        """Say no more."""
        self._is_over.set()
        self._thread.join()


starting = Starting()
import torch
import torch.distributed as dist

import benchmate
from benchmate.session import current
from benchmate.stack_dump import dump_stacks_on_signal

starting.end()

STEPS = 10_000
HANGS_AT = 5


def load_batch(fault):
    """Hang as the fault says."""
    if fault == "sleep":
        time.sleep(10_000)
    elif fault == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif fault == "c-loop":
        re.match(r"(a+)+$", "a" * 64 + "b")
    elif fault == "exit":
        os._exit(0)
    elif fault == "state-d":
        # Until the child has executed the program its parent is in state D, and nobody opens the other end for the child.
        fifo = os.path.join(tempfile.mkdtemp(), "fifo")
        os.mkfifo(fifo)
        os.posix_spawn("/bin/true", ["true"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, fifo, os.O_RDONLY, 0)])
    elif fault == "full-pipe":
        _, writer = os.pipe()
        while True:
            os.write(writer, b"x" * 4096)


def other_collective(values, group):
    """Call another collective than the other ranks, in another group: in the same one gloo sees it, and raises."""
    dist.all_gather([torch.zeros_like(values) for _ in range(dist.get_world_size())], values, group=group)


def train(fault, hangs, starting):
    """Add numbers over all ranks, step after step."""
    values = torch.ones(1000)
    group = dist.new_group() if fault == "mismatch" else None
    for step in benchmate.observed(range(STEPS), batch_size=1):
        if step == HANGS_AT:
            starting.end()
            print("training", flush=True)
        if step == HANGS_AT and hangs:
            other_collective(values, group) if fault == "mismatch" else load_batch(fault)
        if step >= HANGS_AT and fault in ("killed-agent", "exit"):
            wait_for_peers(values)
        dist.all_reduce(values)


def wait_for_peers(values):
    """Add numbers over and over; peers that are gone are waited for, as NCCL does."""
    while True:
        try:
            dist.all_reduce(values)
            time.sleep(0.05)
        except RuntimeError:
            time.sleep(10_000)


def main():
    fault, hanging, first, world, port = sys.argv[1], *map(int, sys.argv[2:])
    torch.set_num_threads(1)
    for local in range(2):
        if os.fork() == 0:
            rank = first + local
            os.environ.update(RANK=str(rank), LOCAL_RANK=str(local), WORLD_SIZE=str(world))
            os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
            starting = Starting()
            dump_stacks_on_signal(current().sink.ring_folder)
            dist.init_process_group("gloo")
            train(fault, rank == hanging, starting)
            os._exit(0)
    while True:
        try:
            os.wait()
        except ChildProcessError:
            return


main()
