"""Starts the agent on another machine over one command of a connection: finds a Python, sends the file if it is not there."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import shlex
from collections.abc import Sequence
from functools import cache
from typing import Protocol

from milabench.errors import Unreachable
from milabench.execute.agent_client import RUN_MARKER, Reader, Writer
from milabench.facts.probe import AGENT

WORD = b"milabench-boot "
NOISE_BYTES = 1 << 16  # what a login shell's start-up files may print before us
BOOT_S = 30.0
PYTHONS = ("python3", *(f"python3.{minor}" for minor in range(14, 7, -1)), "/usr/bin/python3")

# Runs there, under any Python 3: says what it has, takes what is missing from its standard input, becomes the agent.
_BOOT = """
import hashlib, os, sys, tempfile
digest, size, marker = sys.argv[2], int(sys.argv[3]), sys.argv[4]
def say(text):
    os.write(1, ("milabench-boot " + text + "\\n").encode("utf-8", "replace"))
def read(path):
    try:
        with open(path, "rb") as file:
            content = file.read()
        return content if hashlib.sha256(content).hexdigest() == digest else None
    except OSError:
        return None
home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
folders = [os.path.join(home, "milabench"), os.path.join(tempfile.gettempdir(), "milabench-%d" % os.getuid())]
paths = [os.path.join(folder, "agent-" + digest[:16] + ".py") for folder in folders]
def is_ours(path):
    folder = os.path.dirname(path)
    return os.path.isdir(folder) and not os.path.islink(folder) and os.stat(folder).st_uid == os.getuid()
found = [path for path in paths if is_ours(path) and read(path) is not None]
if not found:
    say("need")
    content = b""
    while len(content) < size:
        piece = os.read(0, size - len(content))
        if not piece:
            sys.exit(4)
        content += piece
    reasons = []
    for path in paths:
        part = path + ".%d" % os.getpid()
        try:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            if not is_ours(path):
                raise OSError(13, "belongs to somebody else", os.path.dirname(path))
            with open(part, "wb") as file:
                file.write(content)
            os.replace(part, path)
            found = [path]
            break
        except OSError as error:
            reasons.append("%s: %s" % (os.path.dirname(path), error.strerror or error))
            try:
                os.unlink(part)
            except OSError:
                pass
    if not found:
        say("error no place for the agent: " + "; ".join(reasons))
        sys.exit(4)
if marker:
    os.environ["%(marker)s"] = marker
say("ready")
os.execv(sys.executable, [sys.executable, "-u", "-I", "-S", "-X", "utf8", found[0]] + sys.argv[5:])
"""


class Channel(Protocol):
    """One command that runs on another machine."""

    reader: Reader
    writer: Writer

    async def how_it_ended(self) -> str:
        """How the command ended, in words; waits for it. A connection that was lost is no end of the command."""

    def said(self) -> str:
        """The last line on its standard error."""


class Connection(Protocol):
    """A connection to another machine, over which any number of commands run."""

    async def start(self, command: str) -> Channel:
        """Starts a line of the login shell. Raises Unreachable."""

    @property
    def lost(self) -> str | None:
        """Why it can be used no longer; None while it can."""

    async def close(self) -> None:
        """Ends it and everything that runs over it."""


@cache
def agent_file() -> tuple[bytes, str]:
    """The agent and its sha256, by which it is called there."""
    content = AGENT.read_bytes()
    return content, hashlib.sha256(content).hexdigest()


def boot_line(words: Sequence[str], *, marker: str = "", python: str = "") -> str:
    """The line for the login shell there, whichever that is, that becomes the agent with these arguments."""
    content, digest = agent_file()
    encoded = base64.b64encode(_BOOT.replace("%(marker)s", RUN_MARKER).encode()).decode()
    candidates = " ".join(map(shlex.quote, [python] if python else PYTHONS))
    # No quote, backslash, newline or exclamation mark inside: csh and fish would read them in ways of their own.
    script = (
        f"for p in {candidates}; do "
        'if "$p" -c "import sys; sys.exit(sys.version_info < (3, 8))" 2>/dev/null; then '
        'exec "$p" -c "import base64, sys; exec(base64.b64decode(sys.argv[1]))" "$@"; fi; done; '
        f'echo milabench-boot python $("$1" -V 2>&1 || true); exit 127'
    ).replace('"$1" -V', f"{shlex.quote(python or 'python3')} -V")
    arguments = [encoded, digest, str(len(content)), marker, *words]
    return shlex.join(["exec", "/bin/sh", "-c", script, "sh", *arguments])


async def start_agent(
    name: str, connection: Connection, words: Sequence[str], *, marker: str = "", python: str = ""
) -> Channel:
    """The agent of the node `name`, started with these arguments. Raises Unreachable with what is missing there."""
    channel = await connection.start(boot_line(words, marker=marker, python=python))
    try:
        await asyncio.wait_for(_greet(name, channel, python), BOOT_S)
    except TimeoutError:
        channel.writer.close()
        raise Unreachable(
            f"{name}: nothing was heard from its shell within {BOOT_S:g} s; does it wait for something at login?"
        ) from None
    except BaseException:
        channel.writer.close()
        raise
    return channel


async def _greet(name: str, channel: Channel, python: str) -> None:
    noise = 0
    while line := await channel.reader.readline():
        noise += len(line)
        if not line.startswith(WORD):
            if noise > NOISE_BYTES:
                raise Unreachable(f"{name}: its shell prints without end at login; milabench needs a quiet one")
            continue
        what, _, rest = line.removeprefix(WORD).decode("utf-8", "replace").strip().partition(" ")
        match what:
            case "need":
                channel.writer.write(agent_file()[0])
                with contextlib.suppress(OSError):
                    await channel.writer.drain()
            case "ready":
                return
            case "python":
                found = rest.splitlines()[0] if rest else "none"
                wanted = f"{python} (system.nodes.python)" if python else "python3 on its PATH"
                raise Unreachable(
                    f"{name}: no Python 3.8 or later there: {wanted} gives {found!r}; install one,"
                    " or name it with `python:` in the node's entry of the system file"
                )
            case _:
                raise Unreachable(f"{name}: {rest}")
    how = await channel.how_it_ended()
    said = channel.said()
    raise Unreachable(f"{name}: the agent could not be started: {how}{': ' if said else ''}{said}")
