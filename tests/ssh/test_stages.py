"""However far a connection comes before it hangs: a signal ends the command, a deadline the waiting and says where."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from milabench.errors import INTERRUPTED, Unreachable
from milabench.execute import agent_client, remote_host
from milabench.execute.agent_client import list_marked
from milabench.execute.remote_host import RemoteHost, remote_node
from milabench.execute.ssh import Address
from tests.commands import ROOT
from tests.processes import started, until
from tests.programs.hanging_sshd import HOST, STAGES
from tests.ssh.conftest import PROGRAMS, carrying
from tests.ssh.conftest import address as address_of
from tests.ssh.hosts import Hosts, keygen

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # of what was left half open, as at any interruption

SAYS = {
    "silent": "let nobody in",
    "no command": "its shell ran no command. Does it wait for input at login?",
    "garbage": "its shell ran no command. Does it wait for input at login?",
    "no unpacking": "it did not take and unpack the agent's files",
    "no newline": "its shell never stops printing at login",
    "no hello": "the agent did not start",
}


@pytest.fixture
def hanging(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[[str, str], Address]]:
    """Starts such a server: stage, transport."""
    key, known = tmp_path / "id", tmp_path / "known_hosts"
    keygen(key)
    processes: list[subprocess.Popen[str]] = []

    def start(stage: str, transport: str) -> Address:
        argv = [sys.executable, str(PROGRAMS / "hanging_sshd.py"), stage, f"{key}.pub"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        process: subprocess.Popen[str] = subprocess.Popen(argv, **pipes)  # type: ignore[call-overload]
        processes.append(process)
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        with known.open("a") as file:
            file.write(f"[{HOST}]:{told['port']} {told['key']}")
        files = {"key": str(key), "known_hosts": str(known)}
        return Address(name="far", host=HOST, port=told["port"], transport=transport, **files)

    yield start
    for process in processes:
        process.kill()
        process.communicate()


@pytest.mark.e2e
@pytest.mark.long
def test_one_deadline_ends_the_waiting_and_says_how_far_it_came(
    hanging: Callable[[str, str], Address], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (agent_client, remote_host):
        monkeypatch.setattr(module, "START_S", 5.0)
    monkeypatch.setattr(remote_host, "ASK_S", 1.0)
    machines = {
        (stage, transport): RemoteHost(hanging(stage, transport))
        for stage in STAGES
        for transport in ("asyncssh", "openssh")
    }

    async def said(machine: RemoteHost) -> str:
        node = remote_node(machine, "stages")
        try:
            await node.open()
        except Unreachable as error:
            return str(error)
        finally:
            await node.close()
            await machine.close()
        return ""

    async def all_of_them() -> list[str]:
        return await asyncio.gather(*map(said, machines.values()))

    for (stage, _), text in zip(machines, asyncio.run(all_of_them()), strict=True):
        assert text.startswith("far: ")
        assert "\n" not in text
        assert SAYS[stage] in text


def clients_of(port: int) -> list[str]:
    """The processes of ssh that lead to a port."""
    lines = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout.splitlines()
    return [line for line in lines if line.startswith("ssh ") and f" {port} " in f"{line} "]


@pytest.mark.parametrize("transport", ["asyncssh", "openssh"])
@pytest.mark.parametrize("stage", [stage for stage in STAGES if stage != "no newline"])
def test_a_signal_ends_a_question_and_a_run_at_any_stage(
    hanging: Callable[[str, str], Address],
    system: Callable[[dict[str, Any]], Path],
    environ: dict[str, str],
    tmp_path: Path,
    stage: str,
    transport: str,
) -> None:
    address = hanging(stage, transport)
    reached = tmp_path / "id.pub.reached"
    entry = {"name": "far", "ip": address.host, "port": address.port, "base": str(tmp_path / "far")}
    files = {"sshkey": address.key, "known_hosts": address.known_hosts}
    system({"system": {**files, "transport": transport, "nodes": [entry]}})
    mark = f"stages-{os.getpid()}-{address.port}"
    run = [str(tmp_path / "base"), mark, [asdict(address)], [{"id": "s", "argv": ["true"], "node": "far"}]]
    request = json.dumps([*run, {"grace_s": 1.0}, 20.0])
    commands = {
        "question": ([sys.executable, "-m", "milabench", "nodes", "check"], INTERRUPTED, "interrupted", signal.SIGINT),
        "run": ([sys.executable, str(PROGRAMS / "remote_control.py"), request], 0, "ended s cancelled", signal.SIGTERM),
    }
    for command, code, word, number in commands.values():
        env = {**environ, "PYTHONPATH": str(ROOT)}
        both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        with started(command, cwd=tmp_path, env=env, **both) as process:
            until(lambda process=process: reached.exists() or process.poll() is not None)  # type: ignore[misc]
            process.send_signal(number)
            output, _ = process.communicate()
        reached.unlink()
        assert (process.returncode, word in output, "Traceback" in output) == (code, True, False), output
    assert carrying(mark) == []
    assert clients_of(address.port) == []


def test_a_login_shell_that_says_our_words_or_ends_in_no_newline_is_no_obstacle(hosts: Hosts) -> None:
    host = hosts.hosts[0]
    greeting = host.home / ".bashrc"
    greeting.write_text("echo milabench-boot ready; echo milabench-boot need; printf 'the end of it: '\n")
    try:
        for transport in ("asyncssh", "openssh"):
            machine = RemoteHost(address_of(hosts, host, transport=transport))

            async def ask(machine: RemoteHost = machine) -> object:
                try:
                    return await list_marked(machine.ask, "nobody")
                finally:
                    await machine.close()

            assert asyncio.run(ask()) == []
    finally:
        greeting.unlink()
