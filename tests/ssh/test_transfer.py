"""Folders arrive as they are, what is there is not sent again, and what was cut off goes on where it stopped."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from milabench.errors import Unreachable
from milabench.execute.file_sync import RemoteFiles, storages
from milabench.execute.remote_host import RemoteHost
from tests.processes import started
from tests.ssh.conftest import address, until_async
from tests.ssh.hosts import Hosts, sessions

T = TypeVar("T")
DIGEST = 32  # bytes after each file


def with_files(machine: RemoteHost, do: Callable[[RemoteFiles], Awaitable[T]]) -> T:
    """What is done with the files of a machine."""

    async def work() -> T:
        try:
            files = await RemoteFiles.open(machine)
            try:
                return await do(files)
            finally:
                files.close()
        finally:
            await machine.close()

    return asyncio.run(work())


def send(machine: RemoteHost, folder: Path, there: Path, *, thorough: bool = True) -> int:
    """Sends a folder; how many bytes that took beside the request: those of the files, and DIGEST for each of them."""

    async def work(files: RemoteFiles) -> int:
        written: list[int] = []
        write = files._channel.writer.write

        def weigh(data: bytes) -> None:
            written.append(len(data))
            write(data)

        files._channel.writer.write = weigh  # type: ignore[method-assign]
        await files.send(folder, str(there), thorough=thorough)
        return sum(written[1:])

    return with_files(machine, work)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Something of everything."""
    made = tmp_path / "from"
    (made / "sub" / "empty").mkdir(parents=True)
    (made / "a").write_bytes(b"a" * 5000)
    (made / "sub" / "größe $(x).py").write_text("pass\n")
    (made / "run").write_text("#!/bin/sh\n")
    (made / "run").chmod(0o755)
    (made / "link").symlink_to("sub/nowhere")
    (made / "__pycache__").mkdir()
    (made / "__pycache__" / "a.pyc").write_bytes(b"x")
    return made


def listing(folder: Path) -> dict[str, object]:
    """What is in a folder: contents, modes, targets."""
    found: dict[str, object] = {}
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if "__pycache__" in name:
            continue
        if path.is_symlink():
            found[name] = str(path.readlink())
        elif path.is_file():
            found[name] = (path.read_bytes(), path.stat().st_mode)
        else:
            found[name] = None
    return found


@pytest.mark.parametrize("thorough", [True, False])
def test_only_what_changed_is_sent_and_what_is_gone_is_removed(
    machine: RemoteHost, folder: Path, tmp_path: Path, thorough: bool
) -> None:
    there = tmp_path / "to"

    def send_again() -> int:
        return send(RemoteHost(machine.address), folder, there, thorough=thorough)

    assert send_again() == 5000 + len("pass\n#!/bin/sh\n") + 3 * DIGEST
    assert listing(there) == listing(folder)
    assert send_again() == 0
    (folder / "a").write_bytes(b"b" * 6000)
    (folder / "run").unlink()
    (there / "stranger").mkdir()
    assert send_again() == 6000 + DIGEST
    assert listing(there) == listing(folder)


def test_a_file_that_was_altered_there_is_sent_again(machine: RemoteHost, folder: Path, tmp_path: Path) -> None:
    there = tmp_path / "to"
    send(RemoteHost(machine.address), folder, there)
    found = there / "a"
    before = found.stat()
    found.write_bytes(b"c" * 5000)
    os.utime(found, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert send(machine, folder, there) == 5000 + DIGEST
    assert listing(there) == listing(folder)


def test_a_transfer_that_was_cut_off_goes_on_where_it_stopped(hosts: Hosts, tmp_path: Path) -> None:
    source, there = tmp_path / "from", tmp_path / "to"
    source.mkdir()
    size = 256 << 20
    with (source / "big").open("wb") as file:
        file.write(os.urandom(1 << 20) * (size >> 20))
    host = hosts.hosts[0]

    async def cut_off(files: RemoteFiles) -> None:
        sending = asyncio.create_task(files.send(source, str(there)))
        parts = there / ".milabench-parts"
        await until_async(lambda: any(path.stat().st_size > 1 << 20 for path in parts.glob("*")), "a part has come")
        for pid in sessions(host):
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(Unreachable):
            await sending

    with_files(RemoteHost(address(hosts, host)), cut_off)
    assert not (there / "big").exists()
    assert DIGEST < send(RemoteHost(address(hosts, host)), source, there) <= DIGEST + size - (1 << 20)
    assert (there / "big").read_bytes() == (source / "big").read_bytes()
    assert not (there / ".milabench-parts").exists()


def test_two_control_planes_that_send_to_one_folder_take_turns(hosts: Hosts, tmp_path: Path) -> None:
    source, there = tmp_path / "from", tmp_path / "to"
    source.mkdir()
    for number in range(4):
        (source / f"big{number}").write_bytes(os.urandom(16 << 20))

    async def work() -> None:
        machines = [RemoteHost(address(hosts, hosts.hosts[0])) for _ in range(3)]
        files = await asyncio.gather(*map(RemoteFiles.open, machines))
        await asyncio.gather(*(each.send(source, str(there)) for each in files))
        await asyncio.gather(*(machine.close() for machine in machines))

    asyncio.run(work())
    assert listing(there) == listing(source)
    assert not (there / ".milabench-parts").exists()


def test_a_sender_that_is_gone_and_was_not_seen_to_go_holds_no_folder(tmp_path: Path) -> None:
    program = (
        "import sys; from milabench.execute.agent import file_server; file_server.SILENCE_S = 0.3;"
        "sys.exit(file_server.FileServer(sys.stdin.buffer).serve())"
    )
    request = {"do": "take", "root": str(tmp_path / "to"), "entries": [["a", "f", 0o644, 10, 0, ""]]}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with started([sys.executable, "-c", program], **pipes) as server:
        server.stdin.write(json.dumps(request).encode() + b"\nhalf")
        server.stdin.flush()
        answers = [json.loads(line) for line in server.stdout]
        server.stdin.close()
    assert answers[0]["need"] == [[0, 0]]
    assert answers[1] == {"ok": False, "error": "ValueError: nothing more came of a for 0.3 s"}
    assert server.returncode == 1


def test_a_folder_that_cannot_be_written_is_one_line_with_the_name(hosts: Hosts, folder: Path) -> None:
    host = hosts.hosts[1]
    with pytest.raises(Unreachable, match=r"^h1: .*(file|not) "):
        with_files(
            RemoteHost(address(hosts, host)), lambda files: files.send(folder, str(folder / "a" / "below a file"))
        )


def test_a_file_system_that_is_shared_is_found_out(hosts: Hosts, tmp_path: Path) -> None:
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"

    async def work(bases: dict[str, str]) -> tuple[dict[str, str], dict[str, str]]:
        machines = [RemoteHost(address(hosts, host)) for host in hosts.hosts]
        desks = {each.name: await RemoteFiles.open(each) for each in machines}
        try:
            return await storages(desks, bases, here)
        finally:
            for files in desks.values():
                files.close()
            await asyncio.gather(*(each.close() for each in machines))

    def told(h0: Path, h1: Path) -> dict[str, str]:
        shared, why = asyncio.run(work({"h0": str(h0), "h1": str(h1)}))
        assert why == {}
        return shared

    assert told(here, here) == {"h0": "", "h1": ""}
    assert told(elsewhere, elsewhere) == {"h0": "h0", "h1": "h0"}
    assert told(elsewhere, here) == {"h0": "h0", "h1": ""}
    assert told(elsewhere / "0", elsewhere / "1") == {"h0": "h0", "h1": "h1"}
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
