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

is_imported = threading.Event()


def say_so():
    """Be no silent program while torch is imported."""
    while not is_imported.wait(0.5):
        print("importing", flush=True)


saying = threading.Thread(target=say_so)
saying.start()
import torch
import torch.distributed as dist

import benchmate
from benchmate.session import current
from benchmate.stack_dump import dump_stacks_on_signal

is_imported.set()
saying.join()

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


def other_collective(values):
    """Call another collective than the other ranks."""
    dist.all_gather([torch.zeros_like(values) for _ in range(dist.get_world_size())], values)


def train(fault, hangs):
    """Add numbers over all ranks, step after step."""
    values = torch.ones(1000)
    for step in benchmate.observed(range(STEPS), batch_size=1):
        if step == HANGS_AT and hangs:
            other_collective(values) if fault == "mismatch" else load_batch(fault)
        if step == HANGS_AT and fault == "killed-agent":
            print("waiting", flush=True)
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
            dump_stacks_on_signal(current().sink.ring_folder)
            dist.init_process_group("gloo")
            train(fault, rank == hanging)
            os._exit(0)
    while True:
        try:
            os.wait()
        except ChildProcessError:
            return


main()
