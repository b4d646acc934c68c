"""A cluster to look at: three machines with addresses of their own, a suite run over them, its report; then all is taken down.

python tests/ssh/demo_cluster.py [--base FOLDER] [--config SUITE] [--select EXPR]

The machines are taken down however it ends: SIGINT, SIGTERM and SIGHUP end the command that runs, in order, and when they
are sent again, at once.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.ssh.hosts import Hosts, in_namespaces, why_no_namespaces  # noqa: E402

VERBS = (("nodes", "check"), ("install",), ("prepare",), ("run",), ("report",))
GOES_ON = ("run",)  # a report tells also of what did not pass
USAGE, INTERRUPTED = 2, 130


class Commands:
    """One command after the other; signals are for the one that runs, and let no other follow."""

    def __init__(self) -> None:
        self.is_asked_to_end = False
        self._running: subprocess.Popen[bytes] | None = None
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_signal)

    def _on_signal(self, _: int, __: FrameType | None) -> None:
        self.is_asked_to_end = True
        if self._running is not None:
            self._running.send_signal(signal.SIGINT)

    def run(self, words: list[str], *, kill_when: Callable[[], bool] | None = None) -> int:
        """The exit code of `milabench WORDS`, which is killed once a condition holds."""
        # Not with us in the terminal's group, whose Ctrl-C it would hear a second time.
        self._running = subprocess.Popen([sys.executable, "-m", "milabench", *words], cwd=ROOT, process_group=0)
        if self.is_asked_to_end:  # a moment ago
            self._running.send_signal(signal.SIGINT)
        try:
            while kill_when is not None and self._running.poll() is None:
                if kill_when():
                    self._running.kill()
                time.sleep(0.1)
            return self._running.wait()
        finally:
            self._running = None


def main() -> int:
    """Brings the machines up, shows the verbs, takes them down; the first exit code that is not 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--base", type=Path, default=Path("results"), help="seen by all machines, as a shared file system is"
    )
    parser.add_argument("--config", type=Path, default=ROOT / "tests" / "suite" / "cluster.yaml")
    parser.add_argument("--select", help="benchmarks, in the place of all")
    parser.add_argument("--machines", type=int, default=3)
    arguments = parser.parse_args()
    if (why := why_no_namespaces()) is not None:
        print(f"error: no cluster can be shown here: {why}", file=sys.stderr)
        return USAGE
    commands = Commands()
    print(f"== {arguments.machines} machines come up", flush=True)
    try:
        with in_namespaces(arguments.machines) as cluster:
            return show(commands, cluster, arguments)
    finally:
        print("== the machines are taken down", flush=True)


def show(commands: Commands, cluster: Hosts, arguments: argparse.Namespace) -> int:
    """Every verb, one after the other; the first exit code that is not 0."""
    system, worst = cluster.folder / "cluster.yaml", 0
    system.write_text(system_file(cluster.key, cluster.known_hosts, {host.name: host.ip for host in cluster.hosts}))
    for verb in VERBS:
        if commands.is_asked_to_end:
            return worst or INTERRUPTED
        words = [*verb, "--base", str(arguments.base.resolve())]
        if verb != ("report",):
            words += ["--config", str(arguments.config), "--system", str(system)]
            words += ["--select", arguments.select] if arguments.select and verb != ("nodes", "check") else []
        print(f"== milabench {' '.join(verb)}", flush=True)
        code = commands.run(words)
        worst = worst or code
        if code != 0 and verb != GOES_ON:
            break
    return worst


def system_file(key: Path, known_hosts: Path, machines: dict[str, str]) -> str:
    """The system file of the cluster: one processor slot on each machine, for they share the real one."""
    lines = ["system:", "  arch: cpu", f"  sshkey: {key}", f"  known_hosts: {known_hosts}", "  nodes:"]
    lines += [f"    - {{name: {name}, ip: {ip}, gpu: {{count: 1}}}}" for name, ip in machines.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
