"""Prints what this process was given by its start, as JSON."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sys
import threading


def stream(file: object) -> list[object]:
    """How a standard stream is set up."""
    names = ("encoding", "errors", "line_buffering", "write_through", "newlines")
    return [getattr(file, name) for name in names]


def open_files() -> list[str]:
    """The numbers of open files. libffi, which ctypes loads, may keep its own file open."""
    links = {}
    for number in os.listdir("/proc/self/fd"):  # noqa: PTH208
        with contextlib.suppress(FileNotFoundError):  # the folder that was listed
            links[number] = os.readlink(f"/proc/self/fd/{number}")  # noqa: PTH115
    return sorted(number for number, link in links.items() if ".so" not in link)


given = {
    "argv": sys.argv,
    "executable": sys.executable,
    "flags": str(sys.flags),
    "path": sys.path,
    "environ": dict(os.environ),
    "folder": os.getcwd(),  # noqa: PTH109
    "umask": os.umask(0o22),
    "group": os.getpgrp(),
    "session": os.getsid(0),
    "nice": os.nice(0),
    "user": [os.getresuid(), os.getresgid(), os.getgroups()],
    "signals": {str(each): str(signal.getsignal(each)) for each in signal.Signals},
    "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
    "files": open_files(),
    "inherited": [number for number in range(3) if os.get_inheritable(number)],
    "streams": [stream(sys.stdin), stream(sys.stdout), stream(sys.stderr)],
    "input": sys.stdin.read(),
    "limits": {
        name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")
    },
    "threads": threading.active_count(),
    "main": [__name__, __package__, __file__],
}
print(json.dumps(given))
sys.stdout.flush()
print("to err", file=sys.stderr)
sys.exit(int(sys.argv[1]))
