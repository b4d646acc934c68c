"""Starts the agent on another machine over a connection: finds a Python, sends the files if they are missing there."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import os
import shlex
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Protocol

from milabench import seams
from milabench.errors import Unreachable
from milabench.execute.agent.unpack import digest_of
from milabench.execute.command_channel import CommandChannel
from milabench.execute.local_agent import RUN_MARKER
from milabench.execute.ssh import SshChannel
from milabench.facts.probe import AGENT
from milabench.shown import visible_line

NOISE_BYTES = 1 << 16  # what a login shell's start-up files may print before us
END_TEXT_S = 2.0
MOST_SHOWN = 1000  # characters of what it says
OLDEST_ZIP = (1980, 1, 1, 0, 0, 0)  # the format knows no earlier time
PYTHONS = ("python3", *(f"python3.{minor}" for minor in range(14, 7, -1)), "/usr/bin/python3")


Channel = SshChannel | CommandChannel
"""A command that runs on another machine."""


class HostConnection(Protocol):
    """A connection to another machine, over which any number of commands run. `lost` says how it was.

    `is_our_file_system`: its files are ours, and so is the path of our Python.
    """

    is_our_file_system: bool

    @property
    def lost(self) -> str | None:
        """How it was lost. None while it stands."""

    async def start(self, command: str) -> Channel:
        """Start a line of the login shell. Raises Unreachable."""

    async def close(self) -> None:
        """End all that runs over it."""


async def full_end_text(channel: Channel) -> str:
    """Wait for the end of a command. Return how it ended, with the last line on its standard error."""
    try:
        async with asyncio.timeout(END_TEXT_S):
            how = await channel.describe_end()
    except TimeoutError:
        how = "its output ended, and its agent did not"
    stderr = channel.last_stderr_line()
    return f"{how}: {stderr}" if stderr else how


@cache
def agent_files() -> tuple[tuple[str, bytes], ...]:
    """Return the agent's files, by their paths below the folder that they are imported from."""
    agent, package = AGENT.parent, AGENT.parents[2]
    paths = [*agent.glob("*.py"), *(package / "devices").glob("*.py"), package / "redaction.py"]
    for module in filter(None, map(seams.module_on_nodes, seams.ON_NODES)):
        folder = package.joinpath(*module.split(".")).parent
        paths += [*folder.parent.glob("__init__.py"), *folder.glob("*.py")]
    return tuple((f"milabench/{path.relative_to(package).as_posix()}", path.read_bytes()) for path in sorted(paths))


def deterministic_zip(files: Iterable[tuple[str, bytes]]) -> bytes:
    """Return a zip archive of these files, names and contents: sorted, without the times of the originals."""
    import zipfile  # takes 15 ms to import, needed only to send files

    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in sorted(files):
            archive.writestr(zipfile.ZipInfo(name, OLDEST_ZIP), data, compress_type=zipfile.ZIP_DEFLATED)
    return content.getvalue()


@cache
def agent_digest() -> str:
    """Return the SHA-256 of the agent's files, by which they are called on other machines."""
    return digest_of(agent_files())


def boot_line(
    words: Sequence[str], *, sign: str, marker: str = "", python: str = "", preferred: Sequence[str] = ()
) -> str:
    """Return the line for the remote login shell, whichever that is, that becomes the agent with these arguments.

    Its output on the way begins with `sign`, which nothing else there can know. Without a `python` that it must be,
    the first of those `preferred`, then of the usual names, that is recent enough becomes the agent.
    """
    program = dict(agent_files())["milabench/execute/agent/unpack.py"]
    candidates = " ".join(map(shlex.quote, [python] if python else [*preferred, *PYTHONS]))
    # No quote, backslash, newline or exclamation mark inside: csh and fish interpret them differently.
    # -I -S: neither the variables nor the packages of whoever logs in there, which may take longer than all the rest.
    script = (
        f"for p in {candidates}; do "
        'if "$p" -I -S -c "import sys; sys.exit(sys.version_info < (3, 8))" 2>/dev/null; then '
        'exec "$p" -I -S -c "import base64, sys; exec(base64.b64decode(sys.argv[1]))" "$@"; fi; done; '
        f'echo "$2" python $({shlex.quote(python or "python3")} -V 2>&1 || true); exit 127'
    )
    environment = f"{RUN_MARKER}={marker}" if marker else ""
    arguments = [base64.b64encode(program).decode(), sign, agent_digest(), environment, *words]
    return shlex.join(["exec", "/bin/sh", "-c", script, "sh", *arguments])


async def start_agent(
    name: str, connection: HostConnection, words: Sequence[str], *, by: float, marker: str = "", python: str = ""
) -> Channel:
    """Start the agent of the node `name` with these arguments, until `by` on the loop's clock.

    Raises Unreachable with the missing part there, or the stage it reached.
    """
    sign = f"milabench-boot-{os.urandom(8).hex()}"
    # srun passes on the PATH of whoever calls it, and nodes share our file system: not that, but we say which Python it is.
    preferred = [sys.executable] if connection.is_our_file_system and sys.executable else []
    channel: Channel | None = None
    boot = _Boot()
    try:
        async with asyncio.timeout_at(by):
            line = boot_line(words, sign=sign, marker=marker, python=python, preferred=preferred)
            channel = await connection.start(line)
            await boot.greet(name, channel, sign.encode(), python)
    except BaseException as error:
        if channel is not None:
            channel.writer.close()
        if isinstance(error, TimeoutError):
            raise Unreachable(f"{name}: the agent did not start in time: {boot.stage}") from None
        raise
    return channel


class _Boot:
    """The output of an agent before it is ready. `stage` is the next stage, for a person."""

    stage = "its shell ran no command. Does it wait for input at login?"

    async def greet(self, name: str, channel: Channel, sign: bytes, python: str) -> None:
        """Answer the lines until the agent is ready. Raises Unreachable."""
        noise = 0
        while line := await _line_of(channel):
            # Not only at the beginning of a line: what a start-up file prints may end without a newline.
            what, _, detail = line.partition(sign)[2].decode("utf-8", "replace").strip().partition(" ")
            match what:
                case "need":
                    self.stage = "it did not take and unpack the agent's files"
                    archive = deterministic_zip(agent_files())
                    channel.writer.write(len(archive).to_bytes(8, "big") + archive)
                    with contextlib.suppress(OSError):
                        await channel.writer.drain()
                case "ready":
                    return
                case "python":
                    version = detail.splitlines()[0] if detail else "none"
                    needed = f"{python} (system.nodes.python)" if python else "python3 on its PATH"
                    raise Unreachable(
                        f"{name}: no Python 3.8 or later: {needed} gives {version!r}. Install it,"
                        " or name it with `python:` in the node's entry of the system file"
                    )
                case "error":
                    raise Unreachable(f"{name}: {visible_line(detail[:MOST_SHOWN])}")
                case _:
                    noise += len(line)
                    if noise > NOISE_BYTES:
                        what = "its shell never stops printing at login. milabench needs a shell that prints nothing"
                        raise Unreachable(f"{name}: {what}")
        raise Unreachable(f"{name}: the agent could not be started: {await full_end_text(channel)}")


async def _line_of(channel: Channel) -> bytes:
    """Return the next line of a command's output, or the kept part of a longer line."""
    try:
        return await channel.reader.readline()
    except ValueError:
        return b"?" * (NOISE_BYTES + 1)
