"""Asks the fork server for a command; as a program it is `milabench` in a shell's script, which starts in a tenth of the time.

    python -I -S fork_client.py SOCKET PYTHON ARGUMENTS...

Imports nothing but the standard library, and little of it.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys

REFUSED = b"0\n"  # instead of a process number: these variables need a start


def ask(
    address: str, module: str, argv: list[str], environ: dict[str, str], cwd: str, streams: list[int], memory: int = 0
) -> socket.socket:
    """Return where the server answers: the number of the fork, and when it has ended its status, a line each. Raises OSError."""
    request = os.memfd_create("request")
    connection = socket.socket(socket.AF_UNIX)
    try:
        os.write(request, json.dumps([module, argv, environ, cwd, memory]).encode())
        connection.connect(address)
        socket.send_fds(connection, [b"!"], [request, *streams])
    except BaseException:
        connection.close()
        raise
    finally:
        os.close(request)
    return connection


def main(address: str, python: str, *argv: str) -> int:
    """Run `milabench` as a shell does, and return what the shell should see as its exit code."""
    with ask(address, "milabench", list(argv), dict(os.environ), os.getcwd(), [0, 1, 2]) as connection:  # noqa: PTH109
        answers = connection.makefile("rb")
        number = answers.readline()
        if number == REFUSED:
            os.execv(python, [python, "-m", "milabench", *argv])
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(each, lambda sent, _: os.kill(int(number), sent))
        code = os.waitstatus_to_exitcode(int(answers.readline()))
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
