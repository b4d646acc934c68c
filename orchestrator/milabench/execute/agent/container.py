"""Containers of docker and podman: how ours are named, found and removed."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import List, Tuple

from .procfs import Process, argv_of


def container_name(marker: str, step: str, attempt: str) -> str:
    """Return what the container of an attempt is called, in the letters that engines allow; `attempt` is empty for the first."""
    name = "-".join(part for part in (marker, step, attempt) if part)
    return "milabench-" + re.sub(r"[^A-Za-z0-9_.-]", "_", name)


def keeps_container(process: Process, markers: List[str]) -> bool:
    """Tell whether a process is podman's keeper of a container with one of these markers.

    Podman gives it an environment of its own; of a container whose creation was interrupted, it stays for ever, and
    with it the locks that it inherited.
    """
    if process.name != "conmon":
        return False
    argv = argv_of(process.pid)
    return any(word.startswith(container_name(marker, "", "") + "-") for word in argv for marker in markers)


def remove_containers(markers: List[str]) -> List[Tuple[str, str]]:
    """Let the engines end and remove the containers with one of these markers; return engine and name of each."""
    containers = containers_of(markers)
    for engine, name in containers:
        engine_output(engine, "rm", "--force", name)
    return containers


def containers_of(markers: List[str]) -> List[Tuple[str, str]]:
    """Return engine and name of the containers with one of these markers; none of an engine that does not answer.

    Those that do not run are among them: a client that was killed early leaves one that was made and never started.
    """
    containers = []
    for engine in ("docker", "podman"):
        if shutil.which(engine) is None:
            continue
        for marker in markers:
            label = "label=milabench.marker=" + marker
            names = engine_output(engine, "ps", "--all", "--filter", label, "--format", "{{.Names}}").split()
            containers += [(engine, name) for name in names]
    return containers


def engine_output(*argv: str) -> str:
    """Return what a container engine prints; nothing when it fails or hangs."""
    from ...devices.command import command_output  # not before there is a container to look for

    try:
        return command_output(*argv)
    except (OSError, subprocess.SubprocessError):
        return ""
