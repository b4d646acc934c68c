"""The real agent behind a proxy that changes what it answers: a node that is hostile, broken, or newer than we are.

In a test, `hostile_machine(change)` is such a machine, for `remote_node`, `RemoteFiles` and whatever else asks one.
For a process of its own, `hostile_python(folder, code)` writes the program that a system file names as a node's `python`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import select
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

ROOT = Path(__file__).resolve().parents[1]

if TYPE_CHECKING:
    from milabench.execute.remote_host import RemoteHost

LINE_BYTES = 1 << 16  # as the channels of ssh and srun


class Stay(Exception):
    """Raised by a change: say nothing more, and stay until nobody listens."""


@dataclass(frozen=True)
class Message:
    """One message of the real agent: a frame of `serve`, with its payload, or a line of any other verb, or of the boot.

    `number` counts the messages of one agent, those of its boot included. `kind` is a frame's, else the verb, or `boot`.
    """

    verb: str
    number: int
    kind: str
    header: bytes
    payload: bytes = b""

    @property
    def whole(self) -> bytes:
        """The message as the agent sent it."""
        return self.header + self.payload


Change = Callable[[Message], Iterable[bytes]]
"""What is called with each message; it returns the bytes to send in its place, in pieces, or raises Stay."""


def frame(header: dict[str, object], payload: bytes = b"") -> bytes:
    """A frame with these bytes as its payload."""
    return json.dumps({"n": len(payload), **header}).encode() + b"\n" + payload


def replacing(kind: str, payload: bytes, **header: object) -> Change:
    """A change of the messages of one kind: a frame with this payload, and these fields of the header; a line in place of one."""

    def change(message: Message) -> Iterable[bytes]:
        if message.kind != kind:
            return [message.whole]
        if not message.payload:
            return [payload]
        return [frame({**json.loads(message.header), "n": len(payload), **header}, payload)]

    return change


def dropping(*kinds: str) -> Change:
    """A change that lets no message of these kinds pass; the agent goes on."""
    return lambda message: [] if message.kind in kinds else [message.whole]


def staying(kind: str, words: bytes = b"") -> Change:
    """A change that sends these bytes in place of the first message of a kind, then nothing more, and stays."""

    def change(message: Message) -> Iterable[bytes]:
        if message.kind == kind:
            yield words
            raise Stay
        yield message.whole

    return change


def flooding(kind: str, pieces: Callable[[Message], Iterator[bytes]]) -> Change:
    """A change that sends what `pieces` yields after the first message of a kind, perhaps without end."""

    def change(message: Message) -> Iterable[bytes]:
        yield message.whole
        if message.kind == kind:
            yield from pieces(message)

    return change


def relay(source: IO[bytes], target: int, arguments: Sequence[str], change: Change) -> None:
    """Pass on what an agent with these arguments of its boot says, changed, until its end or until nobody listens."""
    sign_at = next(at for at, word in enumerate(arguments) if word.startswith("milabench-boot-"))
    sign, verb = arguments[sign_at], arguments[sign_at + 3]  # after the digest, and a variable of the environment
    try:
        for message in _messages(source, sign.encode(), verb):
            for piece in change(message):
                _write(target, piece)
    except BrokenPipeError:
        pass
    except Stay:
        poll = select.poll()
        poll.register(target, 0)  # an error of the pipe: nobody reads it any more
        poll.poll()


def _messages(source: IO[bytes], sign: bytes, verb: str) -> Iterator[Message]:
    number, is_booting = 0, True
    while line := source.readline():
        payload, kind = b"", "boot" if is_booting else verb
        if is_booting:
            is_booting = not line.startswith(sign + b" ready")
        elif verb == "serve":
            header = json.loads(line)
            kind, payload = header["k"], source.read(header["n"])
        yield Message(verb=verb, number=number, kind=kind, header=line, payload=payload)
        number += 1


def _write(target: int, piece: bytes) -> None:
    while piece:
        piece = piece[os.write(target, piece) :]


class HostileChannel:
    """A command on a hostile machine."""

    def __init__(self, process: subprocess.Popen[bytes], arguments: Sequence[str], change: Change) -> None:
        assert process.stdout is not None
        self._process = process
        self._ended = asyncio.Event()
        self._read_end, write_end = os.pipe()
        loop = asyncio.get_running_loop()

        def work() -> None:
            assert process.stdout is not None
            try:
                relay(process.stdout, write_end, arguments, change)
            finally:
                os.close(write_end)
                process.stdout.close()
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(self._ended.set)

        self._relay = threading.Thread(target=work, daemon=True)

    @classmethod
    async def start(cls, command: str, change: Change) -> HostileChannel:
        """Start a line of the login shell; the agent that it becomes speaks through the proxy."""
        process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        channel = cls(process, shlex.split(command), change)
        loop = asyncio.get_running_loop()
        channel.reader = asyncio.StreamReader(limit=LINE_BYTES)
        channel._reading, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(channel.reader), os.fdopen(channel._read_end, "rb", buffering=0)
        )
        writing, protocol = await loop.connect_write_pipe(
            lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), process.stdin
        )
        channel.writer = asyncio.StreamWriter(writing, protocol, None, loop)
        channel._relay.start()
        return channel

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    _reading: asyncio.ReadTransport

    async def describe_end(self) -> str:
        """Return how the command ended; it waits as long as the proxy stays."""
        await self._ended.wait()
        return f"the agent ended with exit code {await asyncio.to_thread(self._process.wait)}"

    async def ended(self) -> None:
        """Wait until the proxy has ended, and let the loop close what it has of it."""
        await self._ended.wait()
        await asyncio.sleep(0)

    def last_stderr_line(self) -> str:
        """Return nothing: it is not kept."""
        return ""

    def kill(self) -> None:
        """End the agent, and listen to the proxy no longer."""
        self.writer.close()
        self._reading.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class HostileConnection:
    """A connection to a machine whose agents are real, and whose answers pass through `change`."""

    is_our_file_system = False

    lost: str | None = None

    def __init__(self, change: Change) -> None:
        self.change = change
        self._channels: list[HostileChannel] = []

    async def start(self, command: str) -> HostileChannel:
        """Start a line of the login shell."""
        self._channels.append(await HostileChannel.start(command, self.change))
        return self._channels[-1]

    async def close(self) -> None:
        """End all that was started over it."""
        for channel in self._channels:
            channel.kill()
            await channel.ended()


def hostile_machine(change: Change, name: str = "h0") -> RemoteHost:
    """A machine as `remote_node`, `RemoteFiles.open` and the questions of `gc processes` reach it, with its connection open."""
    from milabench.execute.remote_host import RemoteHost  # not in the program, which starts with every agent
    from milabench.execute.ssh import Address

    machine = RemoteHost(Address(name=name, host="192.0.2.1"))
    machine._connection = HostileConnection(change)  # type: ignore[assignment]
    return machine


def hostile_system(folder: Path, environ: dict[str, str], nodes: Mapping[str, str]) -> dict[str, str]:
    """Write a system file of this machine and these nodes, each with the code of its `change`, and return the variables
    with which a command reaches them, by an `ssh` that only knows this machine.
    """
    programs = folder / "bin"
    programs.mkdir(parents=True)
    ssh = programs / "ssh"
    ssh.write_text(
        f'#!/bin/sh\nexec {shlex.join([sys.executable, str(ROOT / "tests" / "programs" / "fake_ssh.py")])} "$@"\n'
    )
    ssh.chmod(0o755)
    others = [
        {
            "name": name,
            "ip": f"192.0.2.{number}",
            "base": str(folder / name),
            "python": str(hostile_python(folder / f"py-{name}", code)),
        }
        for number, (name, code) in enumerate(nodes.items(), start=1)
    ]
    known = folder / "known_hosts"
    known.touch()
    system = {
        "system": {
            "transport": "openssh",
            "known_hosts": str(known),
            "nodes": [{"name": "here", "ip": "localhost", "main": True}, *others],
        }
    }
    file = folder / "system.yaml"
    file.write_text(json.dumps(system))
    return {**environ, "PATH": f"{programs}:{environ['PATH']}", "MILABENCH_SYSTEM": str(file)}


def hostile_python(folder: Path, code: str) -> Path:
    """Write the program that is a node's `python` in a system file; `code` defines `change(message)`, with what is here."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "change.py").write_text(code)
    program = folder / "python"
    words = [sys.executable, __file__, str(folder / "change.py")]
    # Locks of its own: it is this machine, and would be refused as one that is named twice.
    locks = shlex.quote(str(folder / "locks"))
    program.write_text(f'#!/bin/sh\nMILABENCH_LOCK_DIR={locks} exec {shlex.join(words)} "$@"\n')
    program.chmod(0o755)
    return program


def main(file: str, arguments: Sequence[str]) -> int:
    """Be a node's python: what it becomes at the boot is an agent behind the proxy."""
    if "sys.version_info" in arguments[-1]:
        os.execv(sys.executable, [sys.executable, *arguments])
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # whoever is killed as our connection takes us along
    names = dict(globals())
    exec(Path(file).read_text(), names)
    # Its input is ours: the agent reads what we are sent, and learns of the end of it.
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE)
    assert process.stdout is not None
    relay(process.stdout, 1, arguments, names["change"])
    process.stdout.close()
    return process.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
