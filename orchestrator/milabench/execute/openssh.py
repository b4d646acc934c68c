"""Connections by the system's own ssh, for logins that need Kerberos, FIDO keys or a ProxyCommand: a master per machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from milabench.errors import Unreachable
from milabench.events.removal import remove
from milabench.execute.command_channel import CommandChannel, end_of, start_command
from milabench.execute.ssh import (
    CLOSING_S,
    CONNECT_S,
    KEEPALIVE_COUNT,
    KEEPALIVE_S,
    Address,
    last_words,
    require_key_files,
)

PERSIST_S = 30  # a master without a session outlives us for so long
FAILED = 255  # of ssh itself, not of the command


class OpensshChannel(CommandChannel):
    """A command over a master connection."""

    program = "ssh"

    async def describe_end(self) -> str:
        """Return how the command ended. ssh's own code says that the connection was lost."""
        how = await super().describe_end()
        if self._process.returncode == FAILED:
            stderr = self.last_stderr_line()
            return f"the connection was lost{': ' if stderr else ''}{stderr}"
        return how


class OpensshConnection:
    """A master connection of the system's ssh. Each command is its client."""

    is_our_file_system = False

    def __init__(self, address: Address, folder: Path, options: Sequence[str]) -> None:
        self._address = address
        self._folder = folder
        self._options = options
        self._children: list[asyncio.subprocess.Process] = []

    @property
    def lost(self) -> str | None:
        """Why it can be used no longer: nobody listens at the master's socket, which a master that is killed leaves behind."""
        with socket.socket(socket.AF_UNIX) as probe:
            probe.setblocking(False)
            try:
                probe.connect(str(self._folder / "s"))
            except BlockingIOError:
                return None
            except OSError:
                return "the connection was lost"
        return None

    async def start(self, command: str) -> OpensshChannel:
        """Start a line of the login shell. Raises Unreachable."""
        if self.lost:
            raise Unreachable(f"{self._address.name}: {self.lost}")
        words = ("ssh", "-T", "-o", "ControlMaster=no", *self._options, self._address.host, command)
        process = await start_command(words)
        self._children.append(process)
        return OpensshChannel(process)

    async def close(self) -> None:
        """End the master and everything that runs over it."""
        if self.lost is None:
            await _quiet("ssh", "-O", "exit", *self._options, self._address.host, within_s=CLOSING_S)
        # A master that hangs is left: when it goes on, it ends by itself, PERSIST_S after its last client.
        for child in self._children:
            if child.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    child.kill()
                await end_of(child, CLOSING_S)
        remove(self._folder, is_quiet=True)


async def connect_openssh(address: Address) -> OpensshConnection:
    """Open a master connection to a machine. Raises Unreachable, with the node's name and ssh's message."""
    if shutil.which("ssh") is None:
        raise Unreachable(f"{address.name}: no ssh on PATH. Install it, or set transport: asyncssh")
    require_key_files(address)
    folder = Path(tempfile.mkdtemp(prefix="milabench-ssh-"))  # short: a socket's path may have 107 bytes
    options = _options(address, folder / "s")
    words = folder / "stderr"
    if address.accept_new:
        with contextlib.suppress(OSError):  # ssh creates the file, not the folder; a failure is reported below
            address.known_hosts_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    master = ("ssh", "-f", "-N", "-o", "ControlMaster=yes", "-o", f"ControlPersist={PERSIST_S}", *options, address.host)
    try:
        try:
            with words.open("wb") as file:  # not a pipe: the master keeps it open
                code = await _run(*master, within_s=3 * CONNECT_S, stderr=file)
        except TimeoutError:
            raise Unreachable(
                f"{address.name}: {address.shown}: ssh was not ready within {3 * CONNECT_S:g} s"
            ) from None
        if "Failed to add the host" in words.read_text(errors="backslashreplace"):
            await _quiet("ssh", "-O", "exit", *options, address.host)
            raise Unreachable(f"{address.name}: its new host key cannot be recorded in {address.known_hosts_file}")  # noqa: TRY301
        if code != 0:
            raise Unreachable(f"{address.name}: {address.shown}: {_why(words, address)}")  # noqa: TRY301 - the folder goes
    except BaseException:
        remove(folder, is_quiet=True)
        raise
    return OpensshConnection(address, folder, options)


def _options(address: Address, socket: Path) -> list[str]:
    settings = {
        "BatchMode": "yes",  # a password prompt would hang
        "StrictHostKeyChecking": "accept-new" if address.accept_new else "yes",
        "ServerAliveInterval": f"{KEEPALIVE_S:g}",
        "ServerAliveCountMax": str(KEEPALIVE_COUNT),
        "ConnectTimeout": f"{CONNECT_S:g}",
        "ControlPath": str(socket),
    }
    if address.known_hosts:
        settings["UserKnownHostsFile"] = str(address.known_hosts_file)
    words = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
    words += ["-p", str(address.port)] if address.port != 22 else []
    words += ["-l", address.user] if address.user else []
    words += ["-i", str(Path(address.key).expanduser()), "-o", "IdentitiesOnly=yes"] if address.key else []
    words += ["-J", address.proxy_jump] if address.proxy_jump else []
    return words


def _why(words: Path, address: Address) -> str:
    text = words.read_text(errors="backslashreplace")
    file = address.known_hosts_file
    if "IDENTIFICATION HAS CHANGED" in text:
        return (
            f"its host key differs from the one in {file}: possible man-in-the-middle attack."
            " Remove the old key if the machine was reinstalled"
        )
    if "Host key verification failed" in text:
        return f"its host key is not in {file}. Add it, or record the current key with --accept-new-host-keys"
    if "Permission denied" in text:
        return "no key was accepted. Set a key with system.sshkey, or load it into an ssh agent"
    return last_words(words.read_bytes()) or "ssh failed without an error message"


async def _quiet(*words: str, within_s: float = CONNECT_S) -> None:
    with contextlib.suppress(TimeoutError):
        await _run(*words, within_s=within_s)


async def _run(*words: str, within_s: float, stderr: IO[bytes] | int = asyncio.subprocess.DEVNULL) -> int:
    """Return the exit code of a command, which is killed with all that it started where it is not waited for to its end.

    Raises TimeoutError.
    """
    null = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        *words, stdin=null, stdout=null, stderr=stderr, start_new_session=True
    )
    try:
        async with asyncio.timeout(within_s):
            return await process.wait()
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        raise
