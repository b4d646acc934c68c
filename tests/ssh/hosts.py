"""Real sshd's to test against: on loopback addresses for anybody, in network namespaces of their own for root."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:" + os.environ.get("PATH", ""))
NETWORK = "10.77.{block}"
CEILING_S = 20.0


def why_no_sshd() -> str | None:
    """Why sshd cannot be used here; None when it can."""
    if SSHD is None:
        return "not installed: apt-get install openssh-server"
    if shutil.which("ssh-keygen") is None:
        return "not installed: apt-get install openssh-client"
    return None


def why_no_namespaces() -> str | None:
    """Why hosts with an address of their own cannot be made here; None when they can."""
    if (why := why_no_sshd()) is not None:
        return why
    if os.geteuid() != 0:
        return "network namespaces need root"
    for tool in ("ip", "unshare", "nsenter", "setpriv"):
        if shutil.which(tool) is None:
            return "not installed: apt-get install iproute2 util-linux"
    probe = subprocess.run(["unshare", "--net", "--pid", "--fork", "true"], capture_output=True, check=False)
    return None if probe.returncode == 0 else "namespaces are not allowed here"


@dataclass
class Host:
    """One sshd."""

    name: str
    ip: str
    port: int
    folder: Path
    process: subprocess.Popen[bytes] | None = None
    cable: str = ""
    space: str = ""

    @property
    def home(self) -> Path:
        """A folder on it that no other host uses."""
        return self.folder / "home"

    @property
    def log(self) -> Path:
        """What its sshd says."""
        return self.folder / "log"

    @property
    def logins(self) -> int:
        """How many connections it has let in."""
        return self.log.read_text().count("Accepted publickey") if self.log.exists() else 0

    def entry(self, **more: object) -> dict[str, object]:
        """Its entry in a system file; a base of its own."""
        return {"name": self.name, "ip": self.ip, "port": self.port, "base": str(self.home / "base"), **more}


@dataclass
class Hosts:
    """Some hosts, the key that they accept, and the file of their host keys."""

    folder: Path
    hosts: list[Host] = field(default_factory=list)

    @property
    def key(self) -> Path:
        """The private key that they accept."""
        return self.folder / "id"

    @property
    def known_hosts(self) -> Path:
        """Their host keys."""
        return self.folder / "known_hosts"

    def system(self, **more: object) -> dict[str, object]:
        """A system file for all of them."""
        known = {"sshkey": str(self.key), "known_hosts": str(self.known_hosts)}
        return {"system": {**known, "nodes": [host.entry() for host in self.hosts], **more}}


def keygen(path: Path) -> None:
    """A new key pair."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)


def configure(hosts: Hosts, host: Host, *, home: Path | None = None, extra: str = "") -> Path:
    """The configuration of one sshd, with a host key of its own that our known_hosts names."""
    host.folder.mkdir(parents=True)
    host.home.mkdir()
    keygen(host.folder / "host")
    kind, data, *_ = (host.folder / "host.pub").read_text().split()
    with hosts.known_hosts.open("a") as file:
        shown = host.ip if host.port == 22 else f"[{host.ip}]:{host.port}"
        file.write(f"{shown} {kind} {data}\n")
    bin_ = Path(sys.executable).parent
    config = host.folder / "sshd_config"
    config.write_text(
        f"ListenAddress {host.ip}\nPort {host.port}\nHostKey {host.folder / 'host'}\n"
        f"AuthorizedKeysFile {hosts.folder / 'authorized_keys'}\nPidFile none\nUsePAM no\nStrictModes no\n"
        f"PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin yes\nMaxStartups 100\n"
        f"LogLevel INFO\n"
        f"SetEnv MILABENCH_LOCK_DIR={host.folder / 'locks'} XDG_CACHE_HOME={host.home / 'cache'}"
        f' PATH="{bin_}:/usr/local/bin:/usr/bin:/bin:/usr/sbin" HOME={home or host.home}\n{extra}'
    )
    return config


@contextlib.contextmanager
def on_loopback(count: int, *, folder: Path | None = None, extra: str = "") -> Iterator[Hosts]:
    """Hosts 127.0.0.2 and so on, all of them this machine and this user."""
    made = Path(tempfile.mkdtemp(prefix="milabench-hosts-", dir=folder))
    hosts = Hosts(folder=made)
    keygen(hosts.key)
    shutil.copy(f"{hosts.key}.pub", made / "authorized_keys")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    try:
        for number in range(count):
            host = Host(name=f"h{number}", ip=f"127.0.0.{number + 2}", port=_free_port(), folder=made / f"h{number}")
            config = configure(hosts, host, extra=extra)
            start(host, config)
            hosts.hosts.append(host)
        for host in hosts.hosts:
            _wait_for(host)
        yield hosts
    finally:
        for host in hosts.hosts:
            stop(host)
        shutil.rmtree(made, ignore_errors=True)


def start(host: Host, config: Path) -> None:
    """Starts a host's sshd, with everything below it in one process group."""
    assert SSHD is not None
    host.process = subprocess.Popen(
        [SSHD, "-D", "-E", str(host.log), "-f", str(config)], start_new_session=True, stderr=subprocess.DEVNULL
    )


def stop(host: Host) -> None:
    """Ends a host's sshd and the sessions that it serves."""
    if host.process is None:
        return
    for pid in [*sessions(host), host.process.pid]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    host.process.wait()
    host.process = None


def sessions(host: Host) -> list[int]:
    """The processes of sshd that serve somebody at this moment, the outermost first."""
    assert host.process is not None
    return children(host.process.pid)


def children(pid: int) -> list[int]:
    """The sshd processes below one."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            name, _, rest = path.read_text().rpartition(")")
            if int(rest.split()[1]) == pid and "sshd" in name:
                child = int(path.parent.name)
                found += [child, *children(child)]
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(host: Host) -> None:
    deadline = time.monotonic() + CEILING_S
    while True:
        try:
            with socket.create_connection((host.ip, host.port), timeout=1.0) as connection:
                if connection.recv(4).startswith(b"SSH"):
                    return
        except OSError:
            pass
        if time.monotonic() > deadline:
            raise AssertionError(f"sshd on {host.ip} port {host.port} does not answer")
        time.sleep(0.02)


@contextlib.contextmanager
def in_namespaces(count: int, *, folder: Path | None = None, extra: str = "") -> Iterator[Hosts]:
    """Hosts with a network address, a host name and processes of their own, on a bridge that this machine is on; for root."""
    made = Path(tempfile.mkdtemp(prefix="milabench-hosts-", dir=folder))
    hosts = Hosts(folder=made)
    keygen(hosts.key)
    shutil.copy(f"{hosts.key}.pub", made / "authorized_keys")
    Path("/run/sshd").mkdir(exist_ok=True)
    block, bridge = _new_bridge()
    try:
        network = NETWORK.format(block=block)
        names = {number: f"n{number}" for number in range(count)}
        lines = [f"{network}.{number + 11} {name}" for number, name in names.items()]
        (made / "hosts").write_text("\n".join(["127.0.0.1 localhost", f"{network}.1 control", *lines]) + "\n")
        (made / "nsswitch.conf").write_text("passwd: files\ngroup: files\nshadow: files\nhosts: files\n")
        (made / "resolv.conf").write_text("")
        for number, name in names.items():
            host = Host(name=name, ip=f"{network}.{number + 11}", port=22, folder=made / name)
            hosts.hosts.append(host)  # from now on it is taken down, however far it came
            config = configure(hosts, host, extra=extra)
            _plug_in(host, bridge, f"{bridge}v{number}")
            _boot(hosts, host, config)
        for host in hosts.hosts:
            _wait_for(host)
        yield hosts
    finally:
        for host in hosts.hosts:
            crash(host)
            _unplug(host)
        _ip("link", "del", bridge, check=False)
        shutil.rmtree(made, ignore_errors=True)


def _new_bridge() -> tuple[int, str]:
    """A bridge whose network nobody uses: the number of the network, and the bridge's name."""
    for block in range(os.getpid() % 200, 250):
        bridge = f"mb{block}"
        if _ip("link", "add", bridge, "type", "bridge", check=False):
            _ip("addr", "add", f"{NETWORK.format(block=block)}.1/24", "dev", bridge)
            _ip("link", "set", bridge, "up")
            return block, bridge
    raise AssertionError("no network is free")


def _plug_in(host: Host, bridge: str, cable: str) -> None:
    host.cable, host.space = cable, f"{bridge}{host.name}"
    space = host.space
    _ip("netns", "add", space)
    _ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", space)
    _ip("link", "set", cable, "master", bridge, "up")
    for words in (
        ("addr", "add", f"{host.ip}/24", "dev", "eth0"),
        ("link", "set", "eth0", "up"),
        ("link", "set", "lo", "up"),
    ):
        _ip("-n", space, *words)


def _unplug(host: Host) -> None:
    """Removes its network. Its end of the cable would go with it, but connections that were cut off keep that for minutes."""
    if not host.space:
        return
    _ip("link", "del", host.cable, check=False)
    deadline = time.monotonic() + CEILING_S
    while Path("/run/netns", host.space).exists() and time.monotonic() < deadline:
        if not _ip("netns", "del", host.space, check=False):
            time.sleep(0.05)


def _boot(hosts: Hosts, host: Host, config: Path) -> None:
    """Starts the first process of a host, which is its sshd."""
    binds = ("hosts", "nsswitch.conf", "resolv.conf")
    script = "".join(f"mount --bind {hosts.folder / name} /etc/{name} && " for name in binds)
    script += f"hostname {host.name} && exec {SSHD} -D -E {host.log} -f {config}"
    space = ("unshare", "--uts", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child")
    host.process = subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", "nsenter", f"--net=/run/netns/{host.space}", *space, "sh", "-c", script],
        start_new_session=True,
        stderr=subprocess.DEVNULL,
    )


def cut(host: Host) -> None:
    """Pulls the plug of its network."""
    _ip("link", "set", host.cable, "down")


def heal(host: Host) -> None:
    """Puts it back in."""
    _ip("link", "set", host.cable, "up")


def crash(host: Host) -> None:
    """Switches it off: everything on it ends at once."""
    if host.process is not None:
        host.process.kill()
        host.process.wait()
        host.process = None


def _ip(*words: str, check: bool = True) -> bool:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if check and done.returncode != 0:
        raise AssertionError(f"ip {' '.join(words)}: {done.stderr}")
    return done.returncode == 0
