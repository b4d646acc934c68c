"""End a run's processes when its agent was killed."""

from __future__ import annotations

import errno
import glob
import os
import time
from typing import Optional

from .orphans import sweep_orphans
from .procfs import cgroups_of, read_process

BASES = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")  # of version 2, alone or beside version 1


class Cgroup:
    """A cgroup of version 2 for everything that is started: the kernel kills all of it on one write."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._procs = os.open(os.path.join(folder, "cgroup.procs"), os.O_WRONLY | os.O_CLOEXEC)

    @classmethod
    def make(cls) -> "Optional[Cgroup]":
        """Return a new cgroup below our own; None where that is not permitted."""
        for above in (base + path for controllers, path in cgroups_of("self") if not controllers for base in BASES):
            folder = "%s/milabench-%d" % (above, os.getpid())
            # Moving a process between two cgroups needs write permission on their nearest common ancestor.
            if not os.access(above + "/cgroup.procs", os.W_OK):
                continue
            cls._remove_dead(above)
            try:
                os.mkdir(folder)
                if os.path.exists(folder + "/cgroup.kill"):
                    return cls(folder)
                os.rmdir(folder)
            except OSError:
                pass
        return None

    @staticmethod
    def _remove_dead(above: str) -> None:
        """Remove those that agents left whose guard was killed too; the kernel refuses one that holds a process."""
        for path in glob.glob(glob.escape(above) + "/milabench-*"):
            pid = path.rpartition("-")[2]
            if pid.isdigit() and read_process(int(pid)) is None:
                try:
                    os.rmdir(path)
                except OSError:
                    pass

    def enter(self) -> None:
        """Put the calling process in; it stays outside where the kernel refuses."""
        try:
            os.write(self._procs, b"0")
        except OSError:
            pass

    def empty(self) -> None:
        """Kill everything in it, and remove it."""
        try:
            with open(self.folder + "/cgroup.kill", "w") as file:
                file.write("1")
        except OSError:
            pass
        for _ in range(100):
            try:
                os.rmdir(self.folder)
                return
            except OSError as error:
                if error.errno != errno.EBUSY:
                    return
            time.sleep(0.02)  # we are not notified when the last one has died


def start_guard(run_id: str, grace_s: float, cgroup: Optional[Cgroup]) -> None:
    """Start a process that waits for our end, whatever its cause, and then kills what carries the run's marker.

    It is no child of ours, so that nobody takes it for part of a step.
    """
    reading, writing = os.pipe()  # the writing end is ours alone: it is not inherited over exec
    child = os.fork()
    if child:
        os.close(reading)
        os.waitpid(child, 0)
        return
    try:
        os.setsid()
        if os.fork():
            os._exit(0)
        os.close(writing)
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        while os.read(reading, 1):
            pass
        sweep_orphans([run_id], grace_s)
        if cgroup is not None:
            cgroup.empty()
    finally:
        os._exit(0)
