"""Starts a program whose time is measured: without a copy of the agent, which the program's time would have to tear down."""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Sequence
from contextlib import ExitStack


def spawn(
    command: list[str], cwd: str | None, env: dict[str, str], inherited: Sequence[int], file_limits: tuple[int, int]
) -> tuple[int, int, int, int] | None:
    """Start a program in a session of its own.

    Returns its pid, the descriptors that read its output and its errors, and when it was started (monotonic clock, ns). None
    where it is on no PATH, where more files are open here than it may open, or where the system's library is too old.

    The caller has no other threads: folder, limits and descriptors of the child are for a moment its own. Raises OSError.
    """
    program = _program(command[0], cwd, env)
    if program is None:
        return None
    with ExitStack() as after, ExitStack() as on_failure:
        here = os.open(".", os.O_PATH | os.O_DIRECTORY)
        after.callback(os.close, here)
        output, errors = os.pipe(), os.pipe()
        for reader, writer in (output, errors):
            on_failure.callback(os.close, reader)
            after.callback(os.close, writer)
        if max(output[1], errors[1]) >= file_limits[0]:  # the system's library takes no descriptor beyond that for one
            return None
        for fd in inherited:
            os.set_inheritable(fd, True)
            after.callback(os.set_inheritable, fd, False)
        if cwd:
            after.callback(os.fchdir, here)
            os.chdir(cwd)
        after.callback(resource.setrlimit, resource.RLIMIT_NOFILE, resource.getrlimit(resource.RLIMIT_NOFILE))
        resource.setrlimit(resource.RLIMIT_NOFILE, file_limits)
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, output[1], 1),
            (os.POSIX_SPAWN_DUP2, errors[1], 2),
        ]
        began_ns = time.monotonic_ns()
        try:
            pid = os.posix_spawn(
                program,
                command,
                env,
                file_actions=actions,
                setsid=True,
                setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],  # which Python ignores
            )
        except NotImplementedError:
            return None
        on_failure.pop_all()
        return pid, output[0], errors[0], began_ns


def _program(name: str, cwd: str | None, env: dict[str, str]) -> str | None:
    if "/" in name:
        return name
    paths = [os.path.join(folder, name) for folder in os.get_exec_path(env)]
    return next((path for path in paths if os.access(os.path.join(cwd or "", path), os.X_OK)), None)
