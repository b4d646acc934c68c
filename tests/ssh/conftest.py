"""Real machines to reach, as far as this one can play them, and the command with a base and a home of its own."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from milabench.execute.remote_host import RemoteHost
from milabench.execute.ssh import Address
from milabench.plan.model import Step
from tests.commands import ROOT, Said, milabench_in
from tests.processes import CEILING_S
from tests.ssh.hosts import Host, Hosts, on_loopback, why_no_sshd

PROGRAMS = ROOT / "tests" / "programs"
SUITE = ROOT / "tests" / "suite" / "odd.yaml"


async def until_async(condition: Callable[[], Any], what: str = "") -> Any:
    """What the condition says once it is true, while the loop goes on."""
    deadline = time.monotonic() + CEILING_S
    while not (found := condition()):
        assert time.monotonic() < deadline, f"never came true: {what or condition}"
        await asyncio.sleep(0.02)
    return found


def carrying(text: str) -> list[int]:
    """The live processes on this machine whose environment holds this text."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            state = (path / "stat").read_bytes().rpartition(b")")[2].split()[0]
            if state not in (b"Z", b"X") and text.encode() in (path / "environ").read_bytes():
                found.append(int(path.name))
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]


def address(hosts: Hosts, host: Host, **more: Any) -> Address:
    """How a host is reached."""
    known = {"key": str(hosts.key), "known_hosts": str(hosts.known_hosts)}
    return Address(**{"name": host.name, "host": host.ip, "port": host.port, **known, **more})


def step(*argv: str, name: str = "s", node: str = "h0", **more: Any) -> Step:
    """A step that needs no observation."""
    return Step(**{"id": name, "bench": name, "phase": "run", "argv": argv, "node": node, "needs_data": False, **more})


def python(code: str) -> tuple[str, ...]:
    """A command that runs some Python."""
    return (sys.executable, "-c", code)


@pytest.fixture(scope="package")
def hosts() -> Iterator[Hosts]:
    """Two sshd's on loopback addresses; everything on them is this machine, but for base, cache and locks."""
    if (why := why_no_sshd()) is not None:
        pytest.skip(why)
    with on_loopback(2) as made:
        yield made


@pytest.fixture(params=["asyncssh", "openssh"])
def machine(request: pytest.FixtureRequest, hosts: Hosts) -> RemoteHost:
    """The first host, by either transport."""
    return RemoteHost(address(hosts, hosts.hosts[0], transport=request.param))


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """The user's variables: an empty home, and a base that is new."""
    home = tmp_path / "home"
    home.mkdir()
    return {
        **os.environ,
        "HOME": str(home),
        "MILABENCH_BASE": str(tmp_path / "base"),
        "MILABENCH_LOCK_DIR": str(tmp_path / "locks"),
        "MILABENCH_USE_CURRENT_ENV": "1",
        "MILABENCH_CONFIG": str(SUITE),
    }


@pytest.fixture
def milabench(environ: dict[str, str]) -> Callable[..., Said]:
    """Runs `milabench ARGUMENTS` to its end."""
    return milabench_in(environ)


@pytest.fixture
def system(tmp_path: Path, environ: dict[str, str]) -> Callable[[dict[str, Any]], Path]:
    """Writes a system file and makes it the one that is used."""

    def write(value: dict[str, Any]) -> Path:
        path = tmp_path / "cluster.yaml"
        path.write_text(yaml.safe_dump(value))
        environ["MILABENCH_SYSTEM"] = str(path)
        return path

    return write
