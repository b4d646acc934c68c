"""Connections to other machines by asyncssh: one for each machine, its host key checked, a loss noticed within seconds."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from milabench.devices.regular_file import open_regular
from milabench.errors import Unreachable, os_reason
from milabench.shown import last_line, visible_line

if TYPE_CHECKING:
    import asyncssh

KNOWN_HOSTS = Path("~/.ssh/known_hosts")
CONNECT_S = 10.0
# Two keep-alives without an answer: a machine that is gone is noticed within twelve seconds, a hiccup of eight is not a loss.
KEEPALIVE_S = 4.0
KEEPALIVE_COUNT = 2
TAIL_BYTES = 4096
WINDOW_BYTES = 1 << 18  # what a machine may send ahead of our reading
MOST_LINE_BYTES = 1 << 20
WORDS_S = 1.0
CLOSING_S = 1.0  # from the refusal of a channel to the end of the connection


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The address of a machine. Empty fields follow ~/.ssh/config and ssh's defaults.

    `transport` is `asyncssh`, `openssh` or `srun`. With `srun`, `host` is the node's name in Slurm, and `job` holds it.
    `accept_new` records the key of a machine that no known_hosts file names. A key that differs from a known one is refused.
    """

    name: str
    host: str
    port: int = 22
    user: str = ""
    key: str = ""
    known_hosts: str = ""
    transport: str = "asyncssh"
    proxy_jump: str = ""
    python: str = ""
    accept_new: bool = False
    job: str = ""

    @property
    def known_hosts_file(self) -> Path:
        """Where host keys are looked for, and new ones recorded."""
        return Path(self.known_hosts or KNOWN_HOSTS).expanduser()

    @property
    def shown(self) -> str:
        """user@host:port for a person."""
        return f"{self.user}@" * bool(self.user) + self.host + f":{self.port}" * (self.port != 22)


def require_key_files(address: Address) -> None:
    """Raise Unreachable for a key, or known hosts, that is not a file which can be read: a pipe would be waited for."""
    files = [(Path(address.key).expanduser(), "system.sshkey names the private key")] if address.key else []
    if address.known_hosts_file.exists() and not address.known_hosts_file.samefile(os.devnull):
        files.append((address.known_hosts_file, "system.known_hosts names a file of host keys"))
    for file, hint in files:
        try:
            open_regular(file).close()
        except OSError as error:
            what = "no such file" if isinstance(error, FileNotFoundError) else os_reason(error)
            raise Unreachable(f"{address.name}: {file}: {what}. {hint}") from None


class SshReader:
    """A channel's output as AgentLink reads it."""

    def __init__(self, reader: asyncssh.SSHReader[bytes]) -> None:
        self._reader = reader

    async def readline(self) -> bytes:
        """Return the next line. Empty at the end, also when the connection was lost. Raises ValueError for a line without end."""
        import asyncssh

        line = b""
        # One that is longer than the window comes in parts.
        while not line.endswith(b"\n"):
            if len(line) > MOST_LINE_BYTES:
                raise ValueError(f"a line of more than {MOST_LINE_BYTES} bytes")
            try:
                part = await self._reader.readline()
            except (asyncssh.Error, OSError):
                part = b""
            if not part:
                break
            line += part
        return line

    async def readexactly(self, n: int) -> bytes:
        """Return exactly `n` bytes. Raises EOFError at the end."""
        import asyncssh

        try:
            return await self._reader.readexactly(n)
        except (asyncssh.Error, OSError) as error:
            raise EOFError(str(error)) from None


class SshWriter:
    """A channel's input. `close` is its end of file, and leaves the output to be read."""

    def __init__(self, writer: asyncssh.SSHWriter[bytes]) -> None:
        self._writer = writer

    def write(self, data: bytes) -> None:
        """Queue bytes. Those for a channel that is gone are dropped."""
        with contextlib.suppress(OSError):
            self._writer.write(data)

    async def drain(self) -> None:
        """Wait until the queue has room. Raises BrokenPipeError when the channel is gone."""
        import asyncssh

        try:
            await self._writer.drain()
        except asyncssh.Error as error:
            raise BrokenPipeError(str(error)) from None

    def close(self) -> None:
        """End the agent's lease."""
        with contextlib.suppress(OSError):
            self._writer.write_eof()


async def line_of(reader: SshReader | asyncio.StreamReader) -> bytes:
    """Return the next line, also a line that is longer than the kept part of a stream. Empty at the end.

    Raises ValueError for a line without end.
    """
    if isinstance(reader, SshReader):
        return await reader.readline()
    line = b""
    while len(line) <= MOST_LINE_BYTES:
        try:
            return line + await reader.readuntil()
        except asyncio.IncompleteReadError as end:
            return line + end.partial
        except asyncio.LimitOverrunError as long:
            line += await reader.readexactly(max(long.consumed, 1))
    raise ValueError(f"a line of more than {MOST_LINE_BYTES} bytes")


def last_words(output: bytes) -> str:
    """Return the last line of a program's output, cut to the length of a message."""
    return visible_line(last_line(output.decode("utf-8", "backslashreplace"), "")[:300])


class SshChannel:
    """A command over a connection of asyncssh."""

    def __init__(self, process: asyncssh.SSHClientProcess[bytes], lost: Callable[[], str | None]) -> None:
        self.reader = SshReader(process.stdout)
        self.writer = SshWriter(process.stdin)
        self._process = process
        self._lost = lost
        self._words = b""
        self._listening = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        import asyncssh

        with contextlib.suppress(asyncssh.Error, OSError):
            while piece := await self._process.stderr.read(TAIL_BYTES):
                self._words = (self._words + piece)[-TAIL_BYTES:]

    async def describe_end(self) -> str:
        """Return how the command ended. asyncssh says None for exit status and signal alike when the connection was lost."""
        await self._process.wait_closed()
        await asyncio.wait({self._listening}, timeout=WORDS_S)
        code, signal = self._process.exit_status, self._process.exit_signal
        if signal is not None:
            return visible_line(f"the agent was ended by SIG{signal[0]}")[:TAIL_BYTES]
        if code is not None and code >= 0:
            return f"the agent ended with exit code {code}"
        return self._lost() or "the connection was lost"

    def last_stderr_line(self) -> str:
        """Return the last line on its standard error."""
        return last_words(self._words)


class SshConnection:
    """A connection of asyncssh."""

    is_our_file_system = False

    def __init__(self, address: Address, connection: asyncssh.SSHClientConnection, client: Any) -> None:
        self._address = address
        self._connection = connection
        self._client = client

    @property
    def lost(self) -> str | None:
        """Why it can be used no longer."""
        if not self._connection.is_closed():
            return None
        return visible_line(f"the connection was lost: {self._client.why or 'closed by the remote side'}")[:TAIL_BYTES]

    async def start(self, command: str) -> SshChannel:
        """Start a line of the login shell. Raises Unreachable."""
        import asyncssh

        try:
            process = await self._connection.create_process(command, encoding=None, window=WINDOW_BYTES)
        except (asyncssh.Error, OSError) as error:
            # A connection that was lost refuses channels a moment before it calls itself closed.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSING_S):
                    await self._connection.wait_closed()
            why = self.lost or f"the command could not be started: {error}"
            raise Unreachable(f"{self._address.name}: {why}") from None
        return SshChannel(process, lambda: self.lost)

    async def close(self) -> None:
        """End it and everything that runs over it."""
        self._connection.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSING_S):
                await self._connection.wait_closed()


async def connect_asyncssh(address: Address) -> SshConnection:
    """Connect to a machine. Raises Unreachable, with the node's name and a hint."""
    import asyncssh

    require_key_files(address)
    name = address.name
    client = _client(address)
    options: dict[str, Any] = {
        "known_hosts": _known_hosts(address),
        "keepalive_interval": KEEPALIVE_S,
        "keepalive_count_max": KEEPALIVE_COUNT,
        "connect_timeout": CONNECT_S,
        "login_timeout": 2 * CONNECT_S,
        "preferred_auth": "gssapi-with-mic,publickey,hostbased",  # a password prompt would hang
    }
    if address.port != 22:
        options["port"] = address.port
    if address.user:
        options["username"] = address.user
    if address.proxy_jump:
        options["tunnel"] = address.proxy_jump
    if address.key:
        options["client_keys"] = [str(Path(address.key).expanduser())]
    try:
        connection = await asyncssh.connect(address.host, client_factory=lambda: client, **options)
    except asyncssh.HostKeyNotVerifiable as error:
        raise Unreachable(f"{name}: {client.refusal or f'its host key cannot be verified: {error}'}") from None
    except asyncssh.PermissionDenied:
        raise Unreachable(f"{name}: {_no_key(address)}") from None
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError) as error:
        raise Unreachable(f"{name}: the key {address.key or 'in ~/.ssh'} cannot be used: {error}. {_AGENT}") from None
    except TimeoutError:
        raise Unreachable(f"{name}: {address.shown} did not answer within {CONNECT_S:g} s. Is it up?") from None
    except asyncssh.ConfigParseError as error:
        raise Unreachable(f"{name}: ~/.ssh/config: {error}") from None
    except asyncssh.Error as error:
        raise Unreachable(f"{name}: {address.shown}: {error.reason or error}") from None
    except OSError as error:
        if isinstance(error, FileNotFoundError) and error.filename:
            raise Unreachable(f"{name}: {error.filename}: no such file. system.sshkey names the private key") from None
        raise Unreachable(f"{name}: {_cannot_reach(address, error)}") from None
    return SshConnection(address, connection, client)


def _cannot_reach(address: Address, error: OSError) -> str:
    # The system's own message: asyncio's would repeat the address.
    text = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
    through = f" through {address.proxy_jump}" if address.proxy_jump else ""
    return f"{address.shown} cannot be reached{through}: {text.lower()}. Is it up, is the port right?"


_AGENT = "Load it into an ssh agent, or set another key with system.sshkey"


def _no_key(address: Address) -> str:
    tried = address.key or (
        "the keys of the ssh agent and ~/.ssh" if os.environ.get("SSH_AUTH_SOCK") else "the keys in ~/.ssh"
    )
    return (
        f"{address.shown} accepted no key (tried: {tried}). Set a key with system.sshkey,"
        " or put its public half into ~/.ssh/authorized_keys there"
    )


def _known_hosts(address: Address) -> object:
    """Return the host keys to check against. An empty list, which trusts no host, where there is no file yet."""
    import asyncssh

    file = address.known_hosts_file
    if not address.known_hosts and file.exists() and not address.accept_new:
        return ()  # ~/.ssh/config may name other files
    if not file.exists():
        if address.known_hosts and not address.accept_new:
            raise Unreachable(
                f"{address.name}: {file}: no such file. system.known_hosts lists the trusted host keys,"
                " and --accept-new-host-keys creates it"
            )
        return asyncssh.import_known_hosts("")
    try:
        return _keys_in(file)
    except (OSError, ValueError) as error:
        raise Unreachable(f"{address.name}: {file}: cannot be read: {error}") from None


def _keys_in(file: Path) -> asyncssh.SSHKnownHosts:
    """Return the keys in a known_hosts file. Raises OSError and ValueError."""
    status = file.stat()
    return _read_keys(str(file), status.st_mtime_ns, status.st_size, status.st_ino)


@lru_cache(maxsize=4)
def _read_keys(file: str, *_version: int) -> asyncssh.SSHKnownHosts:
    """Return the keys, read once for all connections: reading per connection would cost the square of the hosts."""
    import asyncssh

    return asyncssh.read_known_hosts(file)


def _client(address: Address) -> Any:
    """Return the asyncssh client that checks unknown host keys and notes why the connection ended."""
    import asyncssh

    class Client(asyncssh.SSHClient):
        refusal = ""
        why = ""

        def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
            file = address.known_hosts_file
            print_ = key.get_fingerprint()
            matches = _keys_in(file).match(host, addr, port) if file.exists() else ()
            shown = host if port == 22 else f"[{host}]:{port}"
            if any(matches):
                self.refusal = (
                    f"the host key of {shown} is {print_}, which differs from the one in {file}: possible"
                    " man-in-the-middle attack. If the machine was reinstalled, remove the old key with"
                    f" `ssh-keygen -f {file} -R '{shown}'`"
                )
                return False
            if not address.accept_new:
                self.refusal = (
                    f"the host key of {shown} ({print_}) is not in {file}. Compare it with the machine's own,"
                    " then add it, or record the current key with --accept-new-host-keys"
                )
                return False
            try:
                record_host_key(file, shown, key.export_public_key("openssh").decode())
            except OSError as error:
                self.refusal = f"{file}: the new host key of {shown} cannot be recorded: {os_reason(error)}"
                return False
            return True

        def connection_lost(self, exc: Exception | None) -> None:
            if isinstance(exc, asyncssh.ConnectionLost) and "timeout" in str(exc).lower():
                self.why = f"no answer for {KEEPALIVE_S * (KEEPALIVE_COUNT + 1):g} s"
            elif exc is not None:
                self.why = str(exc) or type(exc).__name__

    return Client()


def record_host_key(file: Path, host: str, public: str) -> None:
    """Append the key of a host to a known_hosts file, in a single write. Raises OSError."""
    kind, data, *_ = public.split()
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, f"{host} {kind} {data}\n".encode())
    finally:
        os.close(descriptor)
