"""A whole Slurm on this machine: a controller and some slurmd on loopback, fake GPUs, everything in one folder.

python -m tests.slurm.cluster up FOLDER [--nodes 8] [--gpus 2] [--accounting] [--user nobody] ...
python -m tests.slurm.cluster down FOLDER

`up` returns when all nodes are idle, and prints what to put into the environment: `eval $(python -m ... up /tmp/s)`.
Partitions: `all`, the default; `short`, one minute and two nodes at most; `low`, whose jobs those of `high` preempt; `empty`,
without nodes. An executable FOLDER/prolog.d/NODE or FOLDER/epilog.d/NODE runs at the begin or the end of a job on that node.
"""

from __future__ import annotations

import argparse
import contextlib
import getpass
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.processes import is_gone
from tests.ssh.hosts import Host, Hosts, in_namespaces

SEARCHED = "/usr/sbin:/usr/local/sbin:" + os.environ.get("PATH", "/usr/bin:/bin")
LONGEST_FOLDER = 78
READY_S = 60.0  # on a busy machine; a second on an idle one
DEVICES = (
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
)  # Slurm believes in character devices only
CPU_GROUPS = Path("/sys/fs/cgroup/cpu")
CONTROLLER, DATABASE, ACCOUNTING = "slurmctld", "mariadbd", "slurmdbd"


def why_no_slurm(*, accounting: bool = False) -> str | None:
    """Why no cluster can be brought up here; None when one can."""
    needed = {"slurmctld": "slurmctld", "slurmd": "slurmd", "sbatch": "slurm-client"}
    if accounting:
        needed |= {
            "slurmdbd": "slurmdbd",
            "mariadbd": "mariadb-server-core",
            "my_print_defaults": "mariadb-client-core",
        }
    missing = [package for tool, package in needed.items() if shutil.which(tool, path=SEARCHED) is None]
    return f"not installed: apt-get install {' '.join(dict.fromkeys(missing))}" if missing else None


def why_no_slow_node() -> str | None:
    """Why no node can be slowed down here; None when one can."""
    return None if os.access(CPU_GROUPS, os.W_OK) else f"control groups of processors cannot be made below {CPU_GROUPS}"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a cluster is like. `extra`: further lines of slurm.conf; `addresses`: where slurmd's run elsewhere, by node.

    With `proctrack="cgroup"` (root) jobs are held by control groups, which Slurm names after the nodes: clusters that are up
    at the same time need a `prefix` each.
    """

    nodes: int = 8
    gpus: int = 2
    cpus: int = 4
    memory_mib: int = 4000
    user: str = ""
    accounting: bool = False
    prefix: str = "n"
    proctrack: str = "linuxproc"
    min_job_age_s: int = 300
    extra: str = ""
    addresses: Mapping[str, str] = field(default_factory=dict)


class Cluster:
    """A cluster in a folder of its own; brought up and taken down by the functions below."""

    def __init__(self, folder: Path, settings: Settings = Settings()) -> None:
        self.folder = folder
        self.settings = settings
        self.nodes = list(settings.addresses) or [f"{settings.prefix}{number + 1}" for number in range(settings.nodes)]
        self._ports: dict[str, int] = {}
        self._dies_with_us: tuple[str, ...] = ()
        self._ours: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def conf(self) -> Path:
        """Its slurm.conf, which is all that a client must know."""
        return self.folder / "slurm.conf"

    @property
    def environ(self) -> dict[str, str]:
        """The variables that make Slurm's commands talk to it."""
        return {"SLURM_CONF": str(self.conf)}

    @property
    def as_user(self) -> tuple[str, ...]:
        """What a command line begins with so that it is this cluster's user who types it."""
        if self.settings.user in ("", getpass.getuser()):
            return ()
        known = pwd.getpwnam(self.settings.user)
        return ("setpriv", f"--reuid={known.pw_uid}", f"--regid={known.pw_gid}", "--clear-groups", "--")

    def run(self, *argv: str, check: bool = True, **more: str) -> str:
        """What one of Slurm's commands prints, typed by the cluster's user."""
        done = subprocess.run(
            [*self.as_user, *argv],
            env={
                **{name: value for name, value in os.environ.items() if not name.startswith("SLURM")},
                **self.environ,
                **more,
            },
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0 or not check, f"{' '.join(argv)}: {done.stdout}{done.stderr}"
        return done.stdout

    def node_of(self, job: str) -> str:
        """The first of the nodes that a job has, or had."""
        fields = self.run("scontrol", "-o", "show", "job", job).split()
        nodes = next(field.partition("=")[2] for field in fields if field.startswith("NodeList="))
        return self.run("scontrol", "show", "hostnames", nodes).split()[0]

    def states(self) -> dict[str, str]:
        """The state of each node."""
        lines = self.run("sinfo", "-h", "-N", "-p", "all", "-o", "%N %T", check=False).splitlines()
        return dict(line.split(maxsplit=1) for line in lines)

    def wait(self, what: str = "idle", nodes: Sequence[str] = ()) -> None:
        """Wait for nodes, all of them if none is named, to be in a state."""
        deadline = time.monotonic() + READY_S
        while {name for name, state in self.states().items() if state == what} < set(nodes or self.nodes):
            assert time.monotonic() < deadline, f"not {what}: {self.states()}\n{self.logs()}"
            time.sleep(0.05)

    def logs(self) -> str:
        """The ends of what its daemons say."""
        return "\n".join(f"{path.name}: {path.read_text()[-1500:]}" for path in sorted(self.folder.glob("log/*")))

    # Daemons

    def start(self, name: str) -> None:
        """Start the controller or the slurmd of a node."""
        if name == CONTROLLER:
            self._daemon(name, "slurmctld", "-D", "-f", str(self.conf))
        else:
            self._daemon(name, "slurmd", "-D", "-N", name, "-f", str(self.conf))

    def stop(self, name: str, number: int = signal.SIGKILL) -> None:
        """End the controller or the slurmd of a node; the node's jobs go on."""
        self._end([int((self.folder / "pids" / name).read_text())], number)
        (self.folder / "pids" / name).unlink()

    def crash(self, node: str) -> None:
        """Switch a node off: its slurmd and all processes of jobs on it end at once."""
        self.stop(node)
        self._end_jobs(node)

    def slow(self, node: str, processors: float) -> None:
        """Give a node, with all its jobs from now on, only so much of a processor; see `why_no_slow_node`."""
        group = CPU_GROUPS / f"{self.folder.name}-{node}"
        group.mkdir()
        (group / "cpu.cfs_quota_us").write_text(str(round(processors * 100_000)))
        (group / "cgroup.procs").write_text((self.folder / "pids" / node).read_text())

    def hook(self, kind: str, node: str, script: str) -> None:
        """Make a script the `prolog` or the `epilog` of one node; an empty one takes it away."""
        path = self.folder / f"{kind}.d" / node
        path.unlink(missing_ok=True)
        if script:
            path.write_text(script)
            path.chmod(0o755)

    def job_processes(self, node: str = "", starting: str = "slurmstepd") -> list[int]:
        """The processes of jobs, those that manage them and those named `starting` included: on one node or on all."""
        wanted = [
            f"SLURM_CONF={self.conf}".encode(),
            b"SLURM_JOB_ID=",
            *([f"SLURMD_NODENAME={node}".encode()] * bool(node)),
        ]
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if (
                    path.name == str(os.getpid())
                    or (path / "stat").read_bytes().rpartition(b")")[2].split()[0] in b"ZX"
                ):
                    continue
                variables = (path / "environ").read_bytes().split(b"\0")
                is_of_a_job = all(any(variable.startswith(want) for variable in variables) for want in wanted)
                if is_of_a_job or (
                    (path / "comm").read_text().startswith(("slurmstepd", starting)) and self._manages_a_job(path, node)
                ):
                    found.append(int(path.name))
        return found

    def _manages_a_job(self, path: Path, node: str) -> bool:
        """Whether a slurmstepd is of our nodes: it writes into their logs."""
        logs = {self.folder / "log" / name for name in ([node] if node else self.nodes)}
        return any(link.readlink() in logs for link in (path / "fd").iterdir())

    def _daemon(self, name: str, program: str, *argv: str, **more: str) -> None:
        found = shutil.which(program, path=SEARCHED)
        assert found is not None, f"{program} is not installed"
        with (self.folder / "log" / f"{name}.err").open("ab") as err:
            process = subprocess.Popen(
                [*self._dies_with_us, *self.as_user, found, *argv],
                env={"PATH": SEARCHED, **self.environ, **more},
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=err,
                stderr=err,
                start_new_session=True,
            )
        self._ours[process.pid] = process
        (self.folder / "pids" / name).write_text(str(process.pid))

    def _end(self, pids: Sequence[int], number: int = signal.SIGKILL) -> None:
        """End processes and wait for that."""
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        deadline = time.monotonic() + READY_S
        for pid in pids:
            while not (self._ours[pid].poll() is not None if pid in self._ours else is_gone(pid)):
                assert time.monotonic() < deadline, f"{pid} does not end: {Path(f'/proc/{pid}/cmdline').read_bytes()!r}"
                time.sleep(0.01)

    def _end_jobs(self, node: str = "") -> None:
        """End the processes of jobs, whose slurmd has ended, until two looks find none.

        What starts a process and ends while we look may be missed once, and so may what slurmd was about to make a slurmstepd.
        """
        looks_without = 0
        while looks_without < 2:
            found = self.job_processes(node, starting="slurmd")
            self._end(found)
            looks_without = 0 if found else looks_without + 1

    # Up and down

    def up(self, *, outlives_us: bool = False) -> None:
        """Bring it up; returns when all nodes are idle. Without `outlives_us` its daemons end when this process is killed."""
        self._dies_with_us = (
            () if outlives_us or not shutil.which("setpriv") else ("setpriv", "--pdeathsig", "KILL", "--")
        )
        # A step's socket lies deeper, and one whose path has 108 bytes is not made: its job would be cancelled without a word.
        assert len(os.fsencode(self.folder)) <= LONGEST_FOLDER, f"{self.folder}: too long a path for slurmd's sockets"
        for name in ("state", "spool", "log", "pids", "gpu", "prolog.d", "epilog.d"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)
        for kind in ("prolog", "epilog"):
            text = f'#!/bin/sh\nhook={self.folder}/{kind}.d/$SLURMD_NODENAME\n[ ! -x "$hook" ] || exec "$hook"\n'
            (self.folder / kind).write_text(text)
            (self.folder / kind).chmod(0o755)
        needed = [CONTROLLER, *(name for name in self.nodes if name not in self.settings.addresses)]
        self._ports = dict(zip([*needed, ACCOUNTING], _free_ports(len(needed) + 1), strict=True))
        self._devices()
        self.conf.write_text(self._slurm_conf())
        if self.settings.proctrack == "cgroup":
            (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nConstrainRAMSpace=yes\n")
        if self.as_user:
            known = pwd.getpwnam(self.settings.user)
            for path in (self.folder, *self.folder.rglob("*")):
                os.chown(path, known.pw_uid, known.pw_gid)
        if self.settings.accounting:
            self._accounting()
        self.start(CONTROLLER)
        for name in self.nodes:
            if name not in self.settings.addresses:
                self.start(name)
        if not self.settings.addresses:
            self.wait()

    def down(self) -> None:
        """End all that runs on it, and it; the folder stays."""
        names = [path.name for path in (self.folder / "pids").iterdir()]
        for name in sorted(names, key=(DATABASE, ACCOUNTING).__contains__):
            self.stop(name)
        self._end_jobs()
        has_groups = "ProctrackType=proctrack/cgroup" in self.conf.read_text()
        groups = [f"slurm_{path.name}" for path in (self.folder / "spool").iterdir() if has_groups and path.is_dir()]
        for name in (*groups, f"{self.folder.name}-*"):
            for group in CPU_GROUPS.parent.glob(f"*/{name}"):
                for path in sorted([group, *group.rglob("*/")], reverse=True):
                    with contextlib.suppress(OSError):
                        path.rmdir()

    def _devices(self) -> None:
        """Fake GPUs: device files of our own where that is allowed, else those that every machine has."""
        self._gpus = [str(self.folder / "gpu" / f"g{number}") for number in range(self.settings.gpus)]
        try:
            for name in self._gpus:
                os.mknod(name, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        except OSError:
            assert self.settings.gpus <= len(DEVICES), f"as an ordinary user at most {len(DEVICES)} fake GPUs"
            self._gpus = list(DEVICES[: self.settings.gpus])
        files = "".join(f"Name=gpu File={name}\n" for name in self._gpus)
        (self.folder / "gres.conf").write_text(files)

    def _slurm_conf(self) -> str:
        known, names = self.settings, ",".join(self.nodes)
        user, at = known.user or getpass.getuser(), self.folder
        host = next(iter(known.addresses.values()), "127.0.0.1").rpartition(".")[0] + ".1"
        lines = [
            "ClusterName=test",
            f"SlurmctldHost={socket.gethostname() if known.addresses else 'localhost'}({host})",
            f"SlurmctldPort={self._ports[CONTROLLER]}",
            f"SlurmUser={user}",
            f"SlurmdUser={user}",
            "AuthType=auth/none",
            "CredType=cred/none",
            f"StateSaveLocation={at}/state",
            f"SlurmdSpoolDir={at}/spool/%n",
            f"SlurmctldPidFile={at}/state/pid",
            f"SlurmdPidFile={at}/spool/%n.pid",
            f"SlurmctldLogFile={at}/log/slurmctld",
            f"SlurmdLogFile={at}/log/%n",
            f"ProctrackType=proctrack/{known.proctrack}",
            f"TaskPlugin=task/{'cgroup' if known.proctrack == 'cgroup' else 'none'}",
            "MpiDefault=none",
            "SwitchType=switch/none",
            "JobAcctGatherType=jobacct_gather/linux",
            "JobAcctGatherFrequency=1",
            ""
            if known.proctrack == "cgroup"
            else "JobAcctGatherParams=OverMemoryKill",  # one of the two keeps to limits
            "SelectType=select/cons_tres",
            "SelectTypeParameters=CR_Core_Memory",
            "DefMemPerCPU=100",
            "SchedulerType=sched/backfill",
            "SchedulerParameters=bf_interval=1,sched_interval=2",
            "PreemptType=preempt/partition_prio",
            "PreemptMode=CANCEL",
            "EnforcePartLimits=ALL",
            f"Prolog={at}/prolog",
            f"Epilog={at}/epilog",
            "PrologFlags=Alloc",
            "GresTypes=gpu",
            "ReturnToService=2",
            "SlurmdParameters=config_overrides",
            "SlurmdTimeout=5",
            "SlurmctldTimeout=10",
            "KillWait=2",
            "InactiveLimit=0",
            f"MinJobAge={known.min_job_age_s}",
            "PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE PriorityTier=10 PreemptMode=OFF",
            "PartitionName=short Nodes=ALL MaxTime=1 MaxNodes=2 PriorityTier=10 PreemptMode=OFF",
            "PartitionName=low Nodes=ALL PriorityTier=1 PreemptMode=CANCEL GraceTime=0",
            "PartitionName=high Nodes=ALL PriorityTier=20 PreemptMode=OFF",
            "PartitionName=empty",
            known.extra,
        ]
        gres = f" Gres=gpu:{known.gpus}" if known.gpus else ""
        has = f"CPUs={known.cpus} RealMemory={known.memory_mib}{gres} State=UNKNOWN"
        if known.addresses:
            lines += [f"NodeName={name} NodeAddr={ip} {has}" for name, ip in known.addresses.items()]
        else:
            ports = ",".join(str(self._ports[name]) for name in self.nodes)
            lines.append(f"NodeName={names} NodeHostname=localhost NodeAddr=127.0.0.1 Port=[{ports}] {has}")
        if known.accounting:
            lines += [
                "AccountingStorageType=accounting_storage/slurmdbd",
                "AccountingStorageHost=localhost",
                f"AccountingStoragePort={self._ports[ACCOUNTING]}",
                "AccountingStorageTRES=gres/gpu",
            ]
        else:
            lines += ["JobCompType=jobcomp/filetxt", f"JobCompLoc={at}/jobcomp"]
        return "\n".join(lines) + "\n"

    def _accounting(self) -> None:
        """A database without a network and without passwords, and the daemon in front of it."""
        data, door = self.folder / "data", self.folder / "db.sock"
        mine = ["--no-defaults", f"--datadir={data}", f"--socket={door}", "--skip-networking", "--skip-grant-tables"]
        mine += [
            "--innodb-buffer-pool-size=32M",
            "--innodb-flush-log-at-trx-commit=0",
            "--innodb-lock-wait-timeout=900",
        ]
        user = self.settings.user or getpass.getuser()
        install = shutil.which("mariadb-install-db", path=SEARCHED)
        assert install is not None
        self.run(install, "--no-defaults", f"--datadir={data}", f"--user={user}", "--skip-test-db")
        self._daemon(DATABASE, "mariadbd", *mine, f"--user={user}")
        self._answers(door.exists, DATABASE)
        conf = self.folder / "slurmdbd.conf"
        lines = [f"SlurmUser={user}", "AuthType=auth/none", "DbdHost=localhost", f"DbdPort={self._ports[ACCOUNTING]}"]
        lines += [f"LogFile={self.folder}/log/slurmdbd", f"PidFile={self.folder}/state/dbd.pid", "StorageUser=root"]
        lines += ["StorageType=accounting_storage/mysql", "StorageHost=localhost", "StorageLoc=slurm"]
        conf.write_text("\n".join(lines) + "\n")
        conf.chmod(0o600)
        if self.as_user:
            shutil.chown(conf, user)
        self._daemon(ACCOUNTING, "slurmdbd", "-D", MYSQL_UNIX_PORT=str(door))
        self._answers(lambda: _listens(self._ports[ACCOUNTING]), ACCOUNTING)

    def _answers(self, condition: Callable[[], bool], name: str) -> None:
        deadline = time.monotonic() + READY_S
        while not condition():
            assert time.monotonic() < deadline, f"{name} does not answer\n{self.logs()}"
            time.sleep(0.05)


@contextlib.contextmanager
def cluster(settings: Settings = Settings()) -> Iterator[Cluster]:
    """A cluster that is up; at the end nothing of it is left."""
    made = Path(
        tempfile.mkdtemp(prefix="mb-slurm-")
    )  # short: slurmd makes sockets in it, whose paths may have 107 bytes
    it = Cluster(made, settings)
    try:
        it.up()
        yield it
    finally:
        it.down()
        shutil.rmtree(made, ignore_errors=True)


@contextlib.contextmanager
def on_hosts(count: int, settings: Settings = Settings()) -> Iterator[tuple[Cluster, Hosts]]:
    """A cluster whose nodes have a network address and processes of their own, and the hosts that they are; for root.

    `tests.ssh.hosts` has what cuts a host's network or switches it off; `boot` starts its slurmd again.
    """
    with in_namespaces(count) as hosts:
        made = Path(tempfile.mkdtemp(prefix="mb-slurm-"))
        it = Cluster(made, replace(settings, addresses={host.name: host.ip for host in hosts.hosts}))
        try:
            it.up()
            for host in hosts.hosts:
                boot(it, hosts, host)
            it.wait()
            yield it, hosts
        finally:
            it.down()
            shutil.rmtree(made, ignore_errors=True)


def boot(it: Cluster, hosts: Hosts, host: Host) -> None:
    """Start the slurmd of a host, on it."""
    slurmd = shutil.which("slurmd", path=SEARCHED)
    known = ("-F", "none", "-i", str(hosts.key), "-o", f"UserKnownHostsFile={hosts.known_hosts}")
    command = f"{slurmd} -N {host.name} -f {it.conf}"
    subprocess.run(["ssh", *known, "-n", f"root@{host.ip}", command], check=True, capture_output=True)


def _free_ports(count: int) -> list[int]:
    """Ports that nothing listens on, all of them held until the last is found."""
    with contextlib.ExitStack() as held:
        found = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in found:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in found]


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0):
        return True
    return False


def main() -> int:
    """Bring a cluster up or take it down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("up", "down"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--cpus", type=int, default=4)
    parser.add_argument("--user", default="", help="runs all of it as this user; for root")
    parser.add_argument("--accounting", action="store_true", help="slurmdbd and MariaDB")
    parser.add_argument("--prefix", default="n", help="of the nodes' names")
    parser.add_argument("--proctrack", default="linuxproc", choices=("linuxproc", "pgid", "cgroup"))
    parser.add_argument("--min-job-age", dest="min_job_age_s", type=int, default=300, metavar="SECONDS")
    parser.add_argument("--extra", default="", help="further lines of slurm.conf")
    known = vars(parser.parse_args())
    verb, folder = known.pop("verb"), known.pop("folder").resolve()
    it = Cluster(folder, Settings(**known))
    if verb == "down":
        it.down()
        return 0
    if (why := why_no_slurm(accounting=it.settings.accounting)) is not None:
        print(f"error: no cluster can be brought up here: {why}", file=sys.stderr)
        return 2
    it.up(outlives_us=True)
    for name, value in it.environ.items():
        print(f"export {name}={value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
