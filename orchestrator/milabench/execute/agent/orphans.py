"""Removes leftovers (processes, containers and folders) of a dead agent, by a sweep or by the agent's guard."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import signal
import subprocess
import time

from .procfs import (
    UNKILLABLE_S,
    Process,
    argv_of,
    cgroups_of,
    command_of,
    environment_of,
    list_folder,
    processes,
    read_process,
)
from .protocol import RUN_MARKER

BASES = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")  # of cgroups of version 2, alone or beside version 1
LOCK_FILE = "agent.json"


def container_name(marker: str, step: str, attempt: str) -> str:
    """Return the name of an attempt's container, in the letters that engines allow. `attempt` is empty for the first."""
    name = "-".join(part for part in (marker, step, attempt) if part)
    return "milabench-" + re.sub(r"[^A-Za-z0-9_.-]", "_", name)


def keeps_container(process: Process, markers: list[str]) -> bool:
    """Tell whether a process is podman's keeper of a container with any of these markers.

    Podman gives it an environment of its own. If the creation of the container was interrupted, it stays for ever, and
    with it the locks that it inherited.
    """
    if process.name != "conmon":
        return False
    argv = argv_of(process.pid)
    return any(word.startswith(container_name(marker, "", "") + "-") for word in argv for marker in markers)


def remove_containers(markers: list[str]) -> list[tuple[str, str]]:
    """Let the engines end and remove the containers with any of these markers. Return engine and name of each."""
    containers = containers_of(markers)
    for engine, name in containers:
        engine_output(engine, "rm", "--force", name)
    return containers


def containers_of(markers: list[str]) -> list[tuple[str, str]]:
    """Return engine and name of the containers with any of these markers. Empty for an engine that does not answer.

    Containers that do not run are included: a client that was killed early leaves a container that never started.
    """
    from shutil import which

    containers = []
    for engine in ("docker", "podman"):
        if which(engine) is None:
            continue
        for marker in markers:
            label = "label=milabench.marker=" + marker
            names = engine_output(engine, "ps", "--all", "--filter", label, "--format", "{{.Names}}").split()
            containers += [(engine, name) for name in names]
    return containers


def engine_output(*argv: str) -> str:
    """Return the output of a container engine. Empty when it fails or hangs."""
    from ...devices.command import command_output  # not before there is a container to look for

    try:
        return command_output(*argv)
    except (OSError, subprocess.SubprocessError):
        return ""


def sweep_orphans(markers: list[str], grace_s: float) -> dict[str, object]:
    """End every process with any of these markers, except ourselves and our ancestors. Remove dead agents' folders."""
    ended: dict[int, str] = {}
    containers = remove_containers(markers)
    deadline = time.monotonic() + grace_s
    number = signal.SIGTERM
    while True:
        left = processes_marked(markers)
        for process in left:
            if process.pid not in ended or number == signal.SIGKILL:
                ended[process.pid] = ended.get(process.pid) or command_of(process)
                process.signal(number)
                process.signal(signal.SIGCONT)  # a stopped process cannot heed TERM
        if not left:
            break
        if time.monotonic() > deadline:
            if number == signal.SIGKILL:
                break
            number, deadline = signal.SIGKILL, time.monotonic() + UNKILLABLE_S
        time.sleep(0.02)  # they are not our children: we are not notified of their end
    remove_dead_runtime_dirs()
    # A client may have created its container after the first search, until it was killed itself.
    containers += remove_containers(markers)
    remaining = containers_of(markers) if containers else []
    removed = [container for container in dict.fromkeys(containers) if container not in remaining]
    return {
        "ended": describe_orphans(removed, ended),
        "left": describe_orphans(remaining, {process.pid: command_of(process) for process in left}),
    }


def list_orphans(markers: list[str]) -> dict[str, object]:
    """Return the processes and containers that `sweep` would end."""
    commands = {process.pid: command_of(process) for process in processes_marked(markers)}
    return {"left": describe_orphans(containers_of(markers), commands)}


def describe_orphans(containers: list[tuple[str, str]], commands: dict[int, str]) -> list[dict[str, object]]:
    """Return containers and processes alike. Containers have no pid that means something here."""
    named = [(0, "%s container %s" % container) for container in containers]
    return [{"pid": pid, "command": command} for pid, command in [*named, *commands.items()]]


def processes_marked(markers: list[str]) -> list[Process]:
    """Return the live processes that carry any of these run markers."""
    table = processes()
    ancestors = {os.getpid()}
    while True:
        parents = {table[pid].parent for pid in ancestors if pid in table} - ancestors
        if not parents:
            break
        ancestors |= parents
    entries = {os.fsencode("%s=%s" % (RUN_MARKER, marker)) for marker in markers}
    return [
        process
        for pid, process in table.items()
        if pid not in ancestors and (entries & environment_of(pid) or keeps_container(process, markers))
    ]


class Cgroup:
    """A cgroup of version 2 for everything that is started: the kernel kills the whole group on a single write."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._procs = os.open(os.path.join(folder, "cgroup.procs"), os.O_WRONLY | os.O_CLOEXEC)

    @classmethod
    def make(cls) -> Cgroup | None:
        """Return a new cgroup below our own. None where that is not permitted."""
        for above in (base + path for controllers, path in cgroups_of("self") if not controllers for base in BASES):
            folder = "%s/milabench-%d" % (above, os.getpid())
            # Moving a process between two cgroups needs write permission on their nearest common ancestor.
            if not os.access(above + "/cgroup.procs", os.W_OK):
                continue
            cls._remove_dead(above)
            with contextlib.suppress(OSError):
                os.mkdir(folder)
                if os.path.exists(folder + "/cgroup.kill"):
                    return cls(folder)
                os.rmdir(folder)
        return None

    @staticmethod
    def _remove_dead(above: str) -> None:
        """Remove groups of agents whose guard was killed too. The kernel refuses groups that hold a process."""
        for path in _folders_in(above):
            pid = path.rpartition("-")[2]
            if pid.isdigit() and (int(pid) == os.getpid() or read_process(int(pid)) is None):
                with contextlib.suppress(OSError):
                    os.rmdir(path)

    def enter(self) -> None:
        """Put the calling process in. It stays outside where the kernel refuses."""
        with contextlib.suppress(OSError):
            os.write(self._procs, b"0")

    def empty(self) -> None:
        """Kill everything in it, and remove it."""
        with contextlib.suppress(OSError):
            with open(self.folder + "/cgroup.kill", "w") as file:
                file.write("1")
        for _ in range(100):
            try:
                os.rmdir(self.folder)
                return
            except OSError as error:
                if error.errno != errno.EBUSY:
                    return
            time.sleep(0.02)  # we are not notified when the last one has died


def start_guard(run_id: str, grace_s: float, cgroup: Cgroup | None) -> None:
    """Start a process that waits for our end, whatever its cause, and then kills processes with the run's marker.

    It is no child of ours, so that nobody takes it for part of a step.
    """
    reading, writing = os.pipe()  # the writing end is ours alone: it is not inherited over exec
    child = os.fork()
    if child:
        os.close(reading)
        os.waitpid(child, 0)
        return
    try:
        # Out of our session, so that what ends our group spares it; the second fork makes it a child of init.
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


def make_runtime_dir(run_id: str) -> str:
    """Return a new folder for sinks and rings that only we can enter.

    In memory where possible: a ring's page on a disk is write-protected while it is written back, which stalls its
    writer. A short path: a socket's may have 107 bytes. The file in it is locked as long as we live, so that others
    see which folders may be removed.
    """
    for candidate in runtime_dir_candidates():
        try:
            space = os.statvfs(candidate)
            if len(candidate) > 60 or space.f_bavail * space.f_frsize < 1 << 25:
                continue
            folder = os.path.join(candidate, "milabench-" + os.urandom(6).hex())
            os.mkdir(folder, 0o700)
            # Not inherited over exec: a step that outlives us must not keep the folder.
            lock = os.open(os.path.join(folder, LOCK_FILE), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX)
            os.write(lock, json.dumps({"run": run_id, "pid": os.getpid()}).encode())
            return folder
        except OSError:
            continue
    raise SystemExit("no folder for sockets: none of %s can be written" % ", ".join(runtime_dir_candidates()))


def runtime_dir_candidates() -> list[str]:
    """Return where agents make their folders, the best first."""
    candidates = (os.environ.get("XDG_RUNTIME_DIR"), "/dev/shm", os.environ.get("TMPDIR"), "/tmp")
    return list(dict.fromkeys(candidate for candidate in candidates if candidate))


def _folders_in(path: str) -> list[str]:
    """Return the folders of agents in another."""
    return [os.path.join(path, name) for name in list_folder(path) if name.startswith("milabench-")]


def remove_folder(path: str) -> None:
    """Remove a folder of an agent, or of a step, with its contents, as far as possible."""
    with contextlib.suppress(OSError):
        # Not by its path: somebody may put a link in its place.
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            for name in os.listdir(folder):
                os.unlink(name, dir_fd=folder)
        finally:
            os.close(folder)
        os.rmdir(path)
        return
    from shutil import rmtree  # takes 3 ms to import, and these hold hardly anything but files

    rmtree(path, ignore_errors=True)


def remove_dead_runtime_dirs() -> None:
    """Remove the folders of our user's agents that were killed."""
    for candidate in runtime_dir_candidates():
        for folder in _folders_in(candidate):
            try:
                lock = os.open(os.path.join(folder, LOCK_FILE), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            except OSError:
                continue
            try:
                is_written = os.fstat(lock).st_size > 0  # else its owner is just about to lock it
                if is_written and os.fstat(lock).st_uid == os.getuid():
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    remove_folder(folder)
            except OSError:
                pass  # its owner lives
            finally:
                os.close(lock)
