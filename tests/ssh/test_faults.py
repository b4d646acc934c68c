"""What is wrong with a node or on the way to it: one line, the right outcome, and the run goes on elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pwd
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from milabench.errors import Unreachable
from milabench.execute import agent_bootstrap, ssh
from milabench.execute.agent_client import list_marked
from milabench.execute.api import Frame, Outcome, Progress, StepRequest
from milabench.execute.file_sync import RemoteFiles
from milabench.execute.remote_host import RemoteHost, remote_node
from tests.commands import PYTHON, ROOT, Said
from tests.processes import started, until
from tests.ssh.conftest import PROGRAMS, address, carrying, step, until_async
from tests.ssh.hosts import Hosts
from tests.ssh.test_life_and_death import TREE, gone, marker, said

System = Callable[[dict[str, Any]], Path]
Milabench = Callable[..., Said]


def python_of(folder: Path, environment: str, python: str = sys.executable) -> str:
    """A Python of a node that is started with these variables."""
    path = folder / "python-there"
    path.write_text(f'#!/bin/sh\nexport {environment}\nexec {shlex.quote(python)} "$@"\n')
    path.chmod(0o755)
    return str(path)


def system_of(hosts: Hosts, folder: Path, **of_first: Any) -> dict[str, Any]:
    """A system file of nodes with bases of this test; the first one is special."""
    made = hosts.system()
    for number, entry in enumerate(made["system"]["nodes"]):  # type: ignore[index]
        entry["base"] = str(folder / f"base{number}")
    made["system"]["nodes"][0].update(of_first)  # type: ignore[index]
    return made


@pytest.mark.parametrize("ahead_s", [3600, -3600])
def test_a_node_whose_clock_is_off_is_refused_and_its_records_are_placed_on_ours(
    hosts: Hosts, system: System, milabench: Milabench, tmp_path: Path, ahead_s: int
) -> None:
    if (compiler := shutil.which("cc")) is None:
        pytest.skip("not installed: apt-get install gcc")
    skewed = tmp_path / "clock.so"
    source = str(PROGRAMS / "clock_ahead.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(skewed), source, "-ldl"], check=True)
    python = python_of(tmp_path, f"LD_PRELOAD={skewed} CLOCK_AHEAD_S={ahead_s}")
    system(system_of(hosts, tmp_path, python=python))
    where = "ahead" if ahead_s > 0 else "behind"
    refused = milabench("prepare", "--select", "good")
    assert refused.code == 5
    assert re.search(rf"^error: h0: clock: its clock is (3600|3599)\.\d s {where}. Set both by NTP$", refused.err, re.M)
    assert milabench("prepare", "--select", "good", "--ignore-node-checks").code == 0
    ran = milabench("run", "--select", "good", "--ignore-node-checks", "--display", "none")
    assert ran.code == 0, ran.err
    (run,) = (tmp_path / "base" / "runs").glob("run.*")
    stamps = {
        name: json.loads((run / f"good.D0.{name}.data").read_text().splitlines()[-1])["t"]
        for name in ("node0", "node1")
    }
    assert abs(stamps["node0"] - stamps["node1"] - ahead_s) < 600  # so it was off
    assert re.search(rf"^clock \(h0\) +(3600|3599) s {where} when it began", milabench("report").out, re.M)
    shown = milabench("replay", "--display", "plain", "--speed", "1000").err
    assert max(float(second) for second in re.findall(r"^\[ *([0-9.]+)s\]", shown, re.M)) < 600


@contextlib.contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    """A file system in memory; skips where none can be mounted."""
    folder.mkdir(parents=True)
    if os.geteuid() != 0:
        pytest.skip("only root can mount a file system")
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(folder)], check=False)
    if made.returncode != 0:
        pytest.skip("mounting is not allowed here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def outcomes(hosts: Hosts, *steps: Any, lease_s: float = 20.0) -> list[Outcome]:
    """How steps end that run at the same time, each on its node."""

    async def work() -> list[Outcome]:
        mark = marker()
        machines = [RemoteHost(address(hosts, host)) for host in hosts.hosts]
        nodes = {each.name: remote_node(each, mark, grace_s=1.0, lease_s=lease_s) for each in machines}
        requests = [StepRequest(step=one) for one in steps]
        try:
            return await asyncio.gather(*(nodes[one.step.node].run(one, lambda _: None) for one in requests))
        finally:
            await asyncio.gather(*(node.close() for node in nodes.values()))
            await asyncio.gather(*(machine.close() for machine in machines))

    return asyncio.run(work())


def test_a_disk_that_fills_there_fails_its_step_and_the_others_go_on(hosts: Hosts, tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=256k") as disk:
        fill = step("sh", "-c", "cat /dev/zero > here", name="fill", node="h0", cwd=str(disk))
        beside = step("sleep", "0.5", name="beside", node="h0")
        elsewhere = step("sh", "-c", "echo x > here", name="elsewhere", node="h1", cwd=str(tmp_path))
        filled, near, far = outcomes(hosts, fill, beside, elsewhere)
        assert (filled.name, filled.why) == ("failed", "no-space")
        assert "No space left on device" in filled.detail
        assert [near.name, far.name] == ["passed", "passed"]
        source = tmp_path / "from"
        source.mkdir()
        (source / "big").write_bytes(bytes(1 << 20))
        (disk / "here").unlink()

        async def send() -> None:
            machine = RemoteHost(address(hosts, hosts.hosts[0]))
            try:
                await (await RemoteFiles.open(machine)).send(source, str(disk / "to"))
            finally:
                await machine.close()

        with pytest.raises(Unreachable, match=rf"^h0: {disk}/to/big: no space left on device$"):
            asyncio.run(send())
        assert not (disk / "to" / "big").exists()


def test_a_program_on_a_file_system_that_is_mounted_noexec_is_said(hosts: Hosts, tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=256k,noexec") as disk:
        program = disk / "program"
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
        refused, beside = outcomes(hosts, step(str(program), name="a"), step("true", name="b", cwd=str(disk)))
        assert (refused.name, refused.why) == ("failed", "environment")
        assert refused.detail == f"cannot start {program}: its file system is mounted noexec"
        assert beside.name == "passed"


@pytest.mark.skipif(
    not pwd.getpwuid(os.geteuid()).pw_shell.endswith("bash"), reason="the login shell is not bash, which reads .bashrc"
)
@pytest.mark.parametrize("transport", ["asyncssh", "openssh"])
def test_an_old_python_that_comes_first_is_passed_over_and_none_at_all_is_said(
    hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, transport: str
) -> None:
    old = tmp_path / "bin" / "python3"
    old.parent.mkdir()
    old.write_text('#!/bin/sh\n[ "$1" = -V ] && echo Python 3.7.17\nexit 1\n')
    old.chmod(0o755)
    host = hosts.hosts[0]
    machine = RemoteHost(address(hosts, host, transport=transport))

    async def answer() -> object:
        try:
            return await list_marked(machine.ask, "nobody")
        except Unreachable as error:
            return str(error)
        finally:
            await machine.close()

    profile = host.home / ".bashrc"
    try:
        profile.write_text(f"PATH={old.parent}:$PATH\n")
        assert asyncio.run(answer()) == []
        monkeypatch.setattr(agent_bootstrap, "PYTHONS", ("python3",))
        told = asyncio.run(answer())
        assert str(told).startswith("h0: no Python 3.8 or later: python3 on its PATH gives 'Python 3.7.17'. Install it")
        profile.write_text("PATH=/nowhere\n")
        told = asyncio.run(answer())
        assert re.match(r"h0: no Python 3\.8 or later: python3 on its PATH gives '.*not found'\. Install it", str(told))
    finally:
        profile.unlink()


def test_a_run_whose_agent_hangs_at_its_start_is_interrupted_and_can_be_resumed(
    hosts: Hosts, system: System, milabench: Milabench, environ: dict[str, str], tmp_path: Path
) -> None:
    """What was asked of the node before was answered; only the agent of the run does not come."""
    hangs = tmp_path / "hangs"
    python = tmp_path / "python-there"
    script = f'case " $* " in *" serve "*) test -e {hangs} && echo $$ > {hangs} && exec sleep 600;; esac'
    python.write_text(f'#!/bin/sh\n{script}\nexec {PYTHON} "$@"\n')
    python.chmod(0o755)
    system(system_of(hosts, tmp_path, python=str(python)))
    assert milabench("prepare", "--select", "good").code == 0
    hangs.touch()
    command = [sys.executable, "-m", "milabench", "run", "--select", "good", "--display", "plain"]
    try:
        with started(command, cwd=ROOT, env=environ, stderr=subprocess.PIPE, text=True) as process:
            until(lambda: hangs.read_text() or process.poll() is not None)
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate()
        assert process.returncode == 130, errors
        assert "Traceback" not in errors
    finally:
        os.kill(int(hangs.read_text()), signal.SIGKILL)
        hangs.unlink()
    (run,) = (tmp_path / "base" / "runs").glob("run.*")
    last = json.loads((run / "journal.jsonl").read_text().splitlines()[-1])
    assert (last["run"], last["verdict"]) == ("ended", "interrupted")
    resumed = milabench("resume", "--display", "plain")
    assert resumed.code == 0, resumed.err


class Link:
    """A bad link to a host."""

    def __init__(self, port: int, state: Path) -> None:
        self.port = port
        self._state = state

    def becomes(self, state: str) -> None:
        """Change what it does."""
        new = self._state.with_suffix(".new")
        new.write_text(state)
        new.replace(self._state)


@pytest.fixture
def link(hosts: Hosts, tmp_path: Path) -> Iterator[Callable[[float], Link]]:
    """Makes a link to the first host, with a delay in seconds."""
    made: list[subprocess.Popen[str]] = []

    def start(delay_s: float) -> Link:
        host, state = hosts.hosts[0], tmp_path / "link"
        state.write_text("well")
        argv = [
            sys.executable,
            str(PROGRAMS / "bad_link.py"),
            host.ip,
            str(host.port),
            host.ip,
            str(delay_s),
            str(state),
        ]
        made.append(subprocess.Popen(argv, stdout=subprocess.PIPE, text=True))
        assert made[-1].stdout is not None
        return Link(int(made[-1].stdout.readline()), state)

    yield start
    for process in made:
        process.kill()
        process.communicate()


def known_on(hosts: Hosts, port: int, file: Path) -> str:
    """A file of host keys in which the first host has another port too."""
    old, kind, data = hosts.known_hosts.read_text().splitlines()[0].split()
    file.write_text(f"{old} {kind} {data}\n[{hosts.hosts[0].ip}]:{port} {kind} {data}\n")
    return str(file)


@pytest.mark.e2e
@pytest.mark.long
@pytest.mark.parametrize("transport", ["asyncssh", "openssh"])
def test_a_slow_link_costs_time_only_and_one_that_drops_everything_the_steps_beyond_it(
    hosts: Hosts,
    link: Callable[[float], Link],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    transport: str,
) -> None:
    monkeypatch.setattr(ssh, "KEEPALIVE_S", 1.0)
    monkeypatch.setattr("milabench.execute.openssh.KEEPALIVE_S", 1.0)
    slow = link(0.15)
    there = replace(
        address(hosts, hosts.hosts[0], transport=transport),
        port=slow.port,
        known_hosts=known_on(hosts, slow.port, tmp_path / "known_hosts"),
    )
    mark = marker()

    async def work() -> list[Outcome]:
        machines = [RemoteHost(there), RemoteHost(address(hosts, hosts.hosts[1]))]
        nodes = [remote_node(each, mark, grace_s=1.0, lease_s=3.0) for each in machines]
        begun: list[Progress] = []
        short = await nodes[0].run(StepRequest(step=step("true")), lambda _: None)
        running = asyncio.create_task(nodes[0].run(StepRequest(step=step(*TREE)), begun.append))
        beside = asyncio.create_task(nodes[1].run(StepRequest(step=step("sleep", "2", node="h1")), lambda _: None))
        await until_async(lambda: '"deaf"' in said([one for one in begun if isinstance(one, Frame)]), "the tree stands")
        slow.becomes("silent")
        lost = await running
        slow.becomes("well")
        again = await nodes[0].run(StepRequest(step=step("true")), lambda _: None)
        done = [short, await beside, lost, again]
        await asyncio.gather(*(node.close() for node in nodes))
        await asyncio.gather(*(each.close() for each in machines))
        return done

    short, beside, lost, again = asyncio.run(work())
    assert [short.name, beside.name, again.name] == ["passed", "passed", "passed"]
    assert (lost.name, lost.why) == ("failed", "lost-node")
    assert "\n" not in lost.detail
    until(lambda: gone(mark), "nothing is left")
    assert carrying(mark) == []
