"""What the kernel tells in its files, below /proc and /sys."""

from __future__ import annotations

import re
from pathlib import Path


def read_kernel_file(path: str | Path) -> bytes:
    """Return the content of a file of /proc or /sys. Empty when it cannot be read."""
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - pathlib takes half as long again
            return file.read()
    except OSError:
        return b""


def read_text(path: str | Path) -> str | None:
    """Return the text of a file of /proc or /sys. None when it cannot be read, or is empty."""
    return read_kernel_file(path).decode("utf-8", "replace").strip() or None


def kernel_bytes(path: str, name: bytes) -> int | None:
    """Return a size that a file of the kernel lists as `NAME: 12 kB`. None where it does not."""
    # Bytes: the name of a process, in the first line of its status, may be in any encoding.
    for line in read_kernel_file(path).splitlines():
        if line.startswith(name + b":"):
            return int(line.split()[1]) * 1024
    return None


def process_stat(pid: int | str, proc: str = "/proc") -> list[bytes]:
    """Return the fields of a process's `stat` behind its name: state, parent, ... Empty when it has gone."""
    # The name in brackets may hold spaces and brackets; what follows the last one does not.
    return read_kernel_file(f"{proc}/{pid}/stat").rpartition(b")")[2].split()


def control_group(path: str) -> str:
    """Return the path of a control group of version 2. Empty without a group."""
    for line in read_kernel_file(path).decode("utf-8", "replace").splitlines():
        if line.startswith("0::"):
            return line[3:]
    return ""


def cpu_model() -> str | None:
    """Return the model of the processor. None where /proc does not have it."""
    match = re.search(r"^model name\s*:(.*)", read_text("/proc/cpuinfo") or "", re.MULTILINE)
    return " ".join(match[1].split()) if match else None
