"""Processes and containers that a dead run left behind."""

from __future__ import annotations

import os
import signal
import time
from typing import Any, Dict, List, Tuple

from .container import containers_of, keeps_container, remove_containers
from .procfs import UNKILLABLE_S, Process, command_of, environment_of, processes
from .protocol import RUN_MARKER
from .runtime_dir import remove_dead_runtime_dirs


def sweep_orphans(markers: List[str], grace_s: float) -> Dict[str, Any]:
    """End every process with one of these markers, except ourselves and our ancestors; remove dead agents' folders."""
    ended: Dict[int, str] = {}
    containers = remove_containers(markers)
    deadline = time.monotonic() + grace_s
    number = signal.SIGTERM
    while True:
        left = processes_marked(markers)
        for process in left:
            if process.pid not in ended or number == signal.SIGKILL:
                ended[process.pid] = ended.get(process.pid) or command_of(process)
                process.signal(number)
                process.signal(signal.SIGCONT)
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
        "ended": [*describe_containers(removed), *({"pid": pid, "command": command} for pid, command in ended.items())],
        "left": [
            *describe_containers(remaining),
            *({"pid": process.pid, "command": command_of(process)} for process in left),
        ],
    }


def processes_marked(markers: List[str]) -> List[Process]:
    """Return the live processes that carry one of these markers of runs."""
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


def list_orphans(markers: List[str]) -> Dict[str, Any]:
    """Return the processes that `sweep` would end."""
    orphans = [{"pid": process.pid, "command": command_of(process)} for process in processes_marked(markers)]
    return {"left": [*describe_containers(containers_of(markers)), *orphans]}


def describe_containers(containers: List[Tuple[str, str]]) -> List[Dict[str, Any]]:
    """Return containers as processes are listed: they have no pid that means something here."""
    return [{"pid": 0, "command": "%s container %s" % container} for container in containers]
