"""Containers of docker and podman that carry a run's marker."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import List, Tuple

from .procfs import Process, ask_command, words_of


def container_name(marker: str, step: str, attempt: str) -> str:
    """What the container of an attempt is called, in the letters that engines allow; `attempt` is empty for the first."""
    name = "-".join(part for part in (marker, step, attempt) if part)
    return "milabench-" + re.sub(r"[^A-Za-z0-9_.-]", "_", name)


def keeps_container(process: Process, markers: List[str]) -> bool:
    """Whether it is podman's keeper of a container with one of these markers.

    Podman gives it an environment of its own; of a container that was struck while it was made, it stays for ever, and
    with it the locks that it inherited.
    """
    if process.name != "conmon":
        return False
    words = words_of(process.pid)
    return any(word.startswith(container_name(marker, "", "") + "-") for word in words for marker in markers)


def end_containers(markers: List[str]) -> List[Tuple[str, str]]:
    """Lets the engines end and remove the containers with one of these markers; engine and name of each."""
    found = containers_of(markers)
    for engine, name in found:
        ask_engine(engine, "rm", "--force", name)
    return found


def containers_of(markers: List[str]) -> List[Tuple[str, str]]:
    """Engine and name of the containers with one of these markers; none of an engine that does not answer.

    Those that do not run are among them: a client that was killed early leaves one that was made and never started.
    """
    found = []
    for engine in ("docker", "podman"):
        if shutil.which(engine) is None:
            continue
        for marker in markers:
            label = "label=milabench.marker=" + marker
            names = ask_engine(engine, "ps", "--all", "--filter", label, "--format", "{{.Names}}").split()
            found += [(engine, name) for name in names]
    return found


def ask_engine(*words: str) -> str:
    """What a container engine prints; nothing when it fails or hangs."""
    try:
        return ask_command(*words)
    except (OSError, subprocess.SubprocessError):
        return ""
