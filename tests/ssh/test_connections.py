"""Who is let in and who is not: keys, host keys, Pythons, addresses; each refusal is one line with the node's name."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from milabench.errors import Unreachable
from milabench.execute import remote_host
from milabench.execute.agent.unpack import files_below
from milabench.execute.agent_bootstrap import agent_files
from milabench.execute.agent_client import list_marked
from milabench.execute.openssh import OpensshConnection
from milabench.execute.remote_host import HostPool, RemoteHost, connect_all
from tests.processes import is_gone, until
from tests.ssh.conftest import address
from tests.ssh.hosts import Hosts, keygen, sessions

pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning"
)  # asyncssh leaves a refused connection to the collector


def refusal(machine: RemoteHost) -> str:
    """Why a machine cannot be asked anything."""

    async def ask() -> str:
        try:
            await list_marked(machine.ask, "nobody")
        except Unreachable as error:
            return str(error)
        finally:
            await machine.close()
        return ""

    said = asyncio.run(ask())
    assert "\n" not in said
    return said


def test_an_agent_is_sent_once_and_answers(machine: RemoteHost, hosts: Hosts) -> None:
    assert refusal(machine) == ""
    (folder,) = (hosts.hosts[0].home / "cache" / "milabench").iterdir()
    assert sorted(files_below(str(folder))) == sorted(agent_files())
    before = folder.stat()
    assert refusal(RemoteHost(machine.address)) == ""
    assert folder.stat() == before


@pytest.mark.parametrize("damage", ["altered", "removed", "added", "a pipe", "replaced by a file"])
def test_an_agent_that_was_altered_there_is_sent_again(machine: RemoteHost, hosts: Hosts, damage: str) -> None:
    assert refusal(machine) == ""
    (folder,) = (hosts.hosts[0].home / "cache" / "milabench").iterdir()
    module = folder / "milabench" / "execute" / "agent" / "orphans.py"
    if damage == "altered":
        module.write_bytes(b"altered")
    elif damage == "removed":
        module.unlink()
    elif damage == "a pipe":
        module.unlink()
        os.mkfifo(module)
    elif damage == "added":
        module.with_name("json.py").write_bytes(b"altered")
    else:
        shutil.rmtree(folder)
        folder.write_bytes(b"altered")
    assert refusal(RemoteHost(machine.address)) == ""
    assert list(folder.parent.iterdir()) == [folder]
    assert sorted(files_below(str(folder))) == sorted(agent_files())


def test_an_unknown_host_key_is_refused_unless_new_ones_are_accepted(
    machine: RemoteHost, hosts: Hosts, tmp_path: Path
) -> None:
    known = tmp_path / "ssh" / "known_hosts"
    wary = replace(machine.address, known_hosts=str(known))
    said = refusal(RemoteHost(wary))
    assert said.startswith("h0: ")
    assert "--accept-new-host-keys" in said
    assert refusal(RemoteHost(replace(wary, accept_new=True))) == ""
    recorded = known.read_text().splitlines()
    kind, data, *_ = (hosts.hosts[0].folder / "host.pub").read_text().split()
    assert any(line.split()[1:3] == [kind, data] for line in recorded)
    assert refusal(RemoteHost(wary)) == ""


@pytest.mark.parametrize("accept_new", [False, True])
def test_a_host_key_that_changed_is_refused_also_when_new_ones_are_accepted(
    machine: RemoteHost, tmp_path: Path, accept_new: bool
) -> None:
    keygen(tmp_path / "other")
    kind, data, *_ = (tmp_path / "other.pub").read_text().split()
    known = tmp_path / "known_hosts"
    known.write_text(f"[{machine.address.host}]:{machine.address.port} {kind} {data}\n")
    before = known.read_text()
    said = refusal(RemoteHost(replace(machine.address, known_hosts=str(known), accept_new=accept_new)))
    assert said.startswith("h0: ")
    assert "differs from the one in" in said
    assert known.read_text() == before


def test_a_key_that_is_not_accepted_is_said(machine: RemoteHost, tmp_path: Path) -> None:
    keygen(tmp_path / "stranger")
    said = refusal(RemoteHost(replace(machine.address, key=str(tmp_path / "stranger"))))
    assert said.startswith("h0: ")
    assert "accept" in said
    assert "system.sshkey" in said


def test_a_key_that_is_not_there_is_said(hosts: Hosts, tmp_path: Path) -> None:
    said = refusal(RemoteHost(address(hosts, hosts.hosts[0], key=str(tmp_path / "gone"))))
    assert said.startswith("h0: ")
    assert str(tmp_path / "gone") in said


def test_a_machine_without_a_python_is_said(machine: RemoteHost) -> None:
    said = refusal(RemoteHost(replace(machine.address, python="/opt/none/python3")))
    assert said.startswith("h0: no Python 3.8 or later: /opt/none/python3")


def test_a_python_that_is_too_old_is_said_with_its_version(machine: RemoteHost, tmp_path: Path) -> None:
    old = tmp_path / "python"
    old.write_text('#!/bin/sh\n[ "$1" = -V ] && echo Python 3.6.8\nexit 1\n')
    old.chmod(0o755)
    said = refusal(RemoteHost(replace(machine.address, python=str(old))))
    assert "Python 3.6.8" in said


def test_a_machine_that_does_not_answer_is_said(hosts: Hosts) -> None:
    said = refusal(RemoteHost(address(hosts, hosts.hosts[0], port=1)))
    assert said.startswith("h0: ")
    assert "cannot be reached" in said or "did not answer" in said


def test_a_shell_that_talks_at_login_is_no_obstacle(machine: RemoteHost, hosts: Hosts) -> None:
    greeting = hosts.hosts[0].home / ".bashrc"
    greeting.write_text("echo welcome to this machine; echo and mind the step >&2\n")
    try:
        assert refusal(machine) == ""
    finally:
        greeting.unlink()


def test_what_ssh_config_says_is_honoured(hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = hosts.hosts[0]
    config = tmp_path / ".ssh" / "config"
    config.parent.mkdir(mode=0o700)
    config.write_text(
        f"Host shelf\n  HostName {host.ip}\n  Port {host.port}\n  IdentityFile {hosts.key}\n"
        f"  UserKnownHostsFile {hosts.known_hosts}\n"
    )
    shutil.copy(hosts.known_hosts, tmp_path / ".ssh" / "known_hosts")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert refusal(RemoteHost(replace(address(hosts, host), host="shelf", port=22, key="", known_hosts=""))) == ""


def test_a_machine_behind_another_is_reached_through_it(
    hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = hosts.hosts
    config = tmp_path / ".ssh" / "config"
    config.parent.mkdir(mode=0o700)
    config.write_text(f"Host {first.ip}\n  IdentityFile {hosts.key}\n")
    shutil.copy(hosts.known_hosts, tmp_path / ".ssh" / "known_hosts")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert refusal(RemoteHost(address(hosts, second, proxy_jump=f"{first.ip}:{first.port}"))) == ""


def test_all_connections_are_opened_and_the_failures_named(hosts: Hosts) -> None:
    machines = [RemoteHost(address(hosts, host)) for host in hosts.hosts]
    machines.append(RemoteHost(address(hosts, hosts.hosts[0], name="gone", port=1)))

    async def work() -> tuple[dict[str, RemoteHost], dict[str, str]]:
        try:
            return await connect_all(machines)
        finally:
            for machine in machines:
                await machine.close()

    reached, why = asyncio.run(work())
    assert (list(reached), list(why)) == ([machine.name for machine in machines[:-1]], ["gone"])


def killed(pids: Sequence[int]) -> None:
    """Kills processes and waits for their end."""
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    until(lambda: all(map(is_gone, pids)))


@pytest.mark.parametrize("noticed", ["at rest", "with the question"])
def test_what_a_command_asks_of_a_machine_goes_over_one_connection_that_is_opened_anew_when_it_was_lost(
    machine: RemoteHost, hosts: Hosts, monkeypatch: pytest.MonkeyPatch, noticed: str
) -> None:
    host, by = hosts.hosts[0], HostPool()
    before = host.logins
    asked = by.machine(machine.address)
    assert by.machine(replace(machine.address, accept_new=True)) is asked
    for _ in range(2):
        assert by.run(lambda: list_marked(asked.ask, "nobody")) == []
    assert host.logins == before + 1
    if noticed == "at rest":
        killed(sessions(host))  # while nobody looks
    else:
        starting = remote_host.start_agent

        async def start_agent(*arguments: Any, **more: Any) -> Any:
            if host.logins == before + 1:
                killed(sessions(host))  # nothing is awaited before the connection is used
            return await starting(*arguments, **more)

        monkeypatch.setattr(remote_host, "start_agent", start_agent)
    assert by.run(lambda: list_marked(asked.ask, "nobody")) == []
    assert host.logins == before + 2
    by.close()
    assert by.run(lambda: list_marked(asked.ask, "nobody")) == []
    by.close()


def test_a_master_connection_that_was_killed_is_opened_anew(hosts: Hosts) -> None:
    host, by = hosts.hosts[0], HostPool()
    asked = by.machine(address(hosts, host, transport="openssh"))
    assert by.run(lambda: list_marked(asked.ask, "nobody")) == []
    before = host.logins
    assert isinstance(asked._connection, OpensshConnection)
    words = {b"ControlMaster=yes", f"ControlPath={asked._connection._folder / 's'}".encode()}
    commands = Path("/proc").glob("[0-9]*/cmdline")
    masters = [int(path.parent.name) for path in commands if words <= set(content(path).split(b"\0"))]
    assert len(masters) == 1
    killed(masters)
    for _ in range(2):  # a client of its own for each would be two
        assert by.run(lambda: list_marked(asked.ask, "nobody")) == []
    assert host.logins == before + 1
    by.close()


def content(path: Path) -> bytes:
    """What is in a file; nothing of one that is gone."""
    try:
        return path.read_bytes()
    except OSError:
        return b""
