"""Copies folders to other machines: only missing parts, from where the last attempt stopped, once per file system."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from milabench.errors import Unreachable
from milabench.events.removal import remove
from milabench.execute.agent_bootstrap import Channel
from milabench.execute.inventory import sha256_of
from milabench.execute.remote_host import ASK_S, RemoteHost, connect_all, read_answer
from milabench.shown import visible_line

if TYPE_CHECKING:
    from milabench.execute.messages import FilesAnswer, HostFacts

_T = TypeVar("_T")
PIECE_BYTES = 1 << 20
TAKE_S = 3600.0
SLOWEST_BYTES_PER_S = 1 << 22
LEFT_OUT = ("__pycache__", ".git", ".milabench-parts")
LAST = ".complete"  # marks that everything else is there


class RemoteFiles:
    """The file server on another machine. Requests are sequential."""

    def __init__(self, name: str, channel: Channel) -> None:
        self.name = name
        self._channel = channel
        self._turn = asyncio.Lock()

    @classmethod
    async def open(cls, machine: RemoteHost) -> RemoteFiles:
        """Start a file server on a machine. Raises Unreachable."""
        return cls(machine.name, await machine.agent("files"))

    def close(self) -> None:
        """Close the channel."""
        self._channel.writer.close()

    async def facts(self, *disks: str) -> HostFacts:
        """Return the machine's facts as its agent reports them. Raises Unreachable."""
        from milabench.execute.messages import InvalidMessage, require_devices

        facts = (await self._ask("facts", disks=disks)).get("facts", {})
        try:
            require_devices(facts)
        except InvalidMessage as error:
            raise Unreachable(f"{self.name}: {error}") from None
        return facts

    async def mark(self, path: str) -> None:
        """Create an empty file on the machine. Raises Unreachable."""
        await self._ask("mark", path=path)

    async def look(self, paths: Sequence[str]) -> tuple[bool, ...]:
        """Return which of these paths exist on the machine. Raises Unreachable."""
        found = (await self._ask("look", paths=paths)).get("found", [])
        if len(found) != len(paths):
            raise Unreachable(f"{self.name}: it was asked for {len(paths)} paths, and answered of {len(found)}")
        return tuple(found)

    async def forget(self, *paths: str) -> None:
        """Remove files on the machine. Raises Unreachable."""
        await self._ask("forget", paths=paths)

    async def link(self, path: str, target: str) -> None:
        """Create a symbolic link on the machine, replacing an older link. Raises Unreachable."""
        await self._ask("link", path=path, target=target)

    async def send(self, folder: Path, target: str, *, keep: bool = False, thorough: bool = True) -> None:
        """Make the remote folder `target` equal to the local one. `keep` leaves its other contents.

        `thorough` compares contents. Else a file with the same size and time counts as the same, right for files that only
        milabench writes and much less to read. Raises Unreachable, also for a full disk.
        """
        # In a thread, as all reading here: the loop must answer keep-alives, or the machine takes us for lost.
        entries = await asyncio.to_thread(lambda: list(_entries(folder, thorough=thorough)))
        files = [entry for entry in entries if entry[1] == "f"]
        # The machine reads what it has, perhaps after another control plane has sent its own.
        within_s = TAKE_S + sum(entry[3] for entry in files) / SLOWEST_BYTES_PER_S
        async with self._turn:
            need = (await self._request("take", within_s, root=target, entries=entries, keep=keep)).get("need", [])
            with contextlib.suppress(BrokenPipeError, ConnectionError):  # the answer says why
                for number, offset in need:
                    if number >= len(files) or offset > files[number][3]:
                        raise Unreachable(f"{self.name}: its answer to 'take' asks for a file that is not there")
                    await self._send_file(folder / files[number][0], files[number][3], offset)
            await self._answer("take", within_s)

    async def _send_file(self, path: Path, size: int, offset: int) -> None:
        """Send a file from an offset on, then the digest of the whole file."""
        digest = hashlib.sha256()
        remaining = size
        with path.open("rb") as file:
            while remaining:
                piece = await asyncio.to_thread(file.read, min(remaining, PIECE_BYTES))
                if not piece:
                    raise Unreachable(f"{self.name}: {path} became shorter while it was sent. Try again")
                digest.update(piece)
                sent = size - remaining
                remaining -= len(piece)
                if sent + len(piece) > offset:
                    await self._write(piece[max(0, offset - sent) :])
        await self._write(digest.digest())

    async def _write(self, data: bytes) -> None:
        self._channel.writer.write(data)
        try:
            async with asyncio.timeout(ASK_S):
                await self._channel.writer.drain()
        except TimeoutError:
            raise Unreachable(f"{self.name}: it took nothing of a transfer for {ASK_S:g} s") from None

    async def _ask(self, what: str, **fields: Any) -> FilesAnswer:
        async with self._turn:
            return await self._request(what, ASK_S, **fields)

    async def _request(self, what: str, within_s: float, **fields: Any) -> FilesAnswer:
        with contextlib.suppress(OSError):  # the answer, or its absence, is more specific
            await self._write(json.dumps({"do": what, **fields}).encode() + b"\n")
        return await self._answer(what, within_s)

    async def _answer(self, what: str, within_s: float) -> FilesAnswer:
        from milabench.execute.messages import FILES

        answer = await read_answer(self._channel, FILES, self.name, what, within_s)
        if not answer.get("ok"):
            raise Unreachable(f"{self.name}: {visible_line(str(answer.get('error')))}")
        return answer


def _entries(folder: Path, *, thorough: bool) -> Iterator[list[Any]]:
    """Yield the entries of a folder for the agent's `take`: folders before their content, `complete` markers last."""
    last = []
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in LEFT_OUT)
        for name in [*folders, *sorted(files)]:
            path = Path(root, name)
            entry = _entry(path, path.relative_to(folder).as_posix(), thorough=thorough)
            if entry is not None and name == LAST:
                last.append(entry)
            elif entry is not None:
                yield entry
    yield from last


def _entry(path: Path, name: str, *, thorough: bool) -> list[Any] | None:
    status = path.lstat()
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISLNK(status.st_mode):
        return [name, "l", str(path.readlink())]
    if stat.S_ISDIR(status.st_mode):
        return [name, "d", mode]
    if not stat.S_ISREG(status.st_mode):
        return None
    digest = sha256_of(path) if thorough else ""
    return [name, "f", mode, status.st_size, status.st_mtime_ns, digest]


@contextlib.asynccontextmanager
async def remote_files_of(
    machines: Sequence[RemoteHost],
) -> AsyncIterator[tuple[dict[str, RemoteFiles], dict[str, str]]]:
    """Yield RemoteFiles for each machine that can be reached, by name, and the reason for each of the others."""
    reached, why = await connect_all(machines)

    async def opened(machine: RemoteHost) -> RemoteFiles | None:
        try:
            return await RemoteFiles.open(machine)
        except Unreachable as error:
            why[machine.name] = str(error)
            return None

    files = [remote for remote in await asyncio.gather(*map(opened, reached.values())) if remote is not None]
    try:
        yield {remote.name: remote for remote in files}, why
    finally:
        for remote in files:
            remote.close()


async def storages(
    remotes: Mapping[str, RemoteFiles], bases: Mapping[str, str], here: Path
) -> tuple[dict[str, str], dict[str, str]]:
    """Return which nodes share a file system, and why the base of a node cannot be used.

    For each the first node that sees the same base, empty where that is ours: every node leaves a file of its own in its
    base, and looks which of the others' files it sees.
    """
    token = f".milabench-{os.urandom(8).hex()}"
    ours = here / f"{token}-here"
    with contextlib.suppress(OSError):  # then no node shares it
        here.mkdir(parents=True, exist_ok=True)
        ours.touch()
    names = list(remotes)
    marks = {name: f"{token}-{number}" for number, name in enumerate(names)}
    why: dict[str, str] = {}

    async def asked(name: str, ask: Callable[[], Awaitable[_T]]) -> _T | None:
        try:
            return await ask()
        except Unreachable as error:
            why[name] = str(error)
            return None

    def own(name: str) -> str:
        return f"{bases[name]}/{marks[name]}"

    try:
        await asyncio.gather(*(asked(name, partial(remotes[name].mark, own(name))) for name in names))
        usable = [name for name in names if name not in why]
        candidates = [f"{token}-here", *marks.values()]
        looks = (asked(at, partial(remotes[at].look, [f"{bases[at]}/{mark}" for mark in candidates])) for at in usable)
        looked = {name: seen or () for name, seen in zip(usable, await asyncio.gather(*looks), strict=True)}
        marked = [name for name in usable if name not in why]
        await asyncio.gather(*(asked(name, partial(remotes[name].forget, own(name))) for name in marked))
        for name in usable:
            if not any(looked[name]) and name not in why:
                why[name] = f"{name}: does not see the file that it has made in {bases[name]}"
        return {name: ["", *names][looked[name].index(True)] for name in usable if name not in why}, why
    finally:
        remove(ours)
