"""A cluster to look at: three machines with addresses of their own, a suite run over them, its report; then all is taken down.

python tests/ssh/demo_cluster.py [--base FOLDER] [--config SUITE] [--select EXPR]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.ssh.hosts import in_namespaces, why_no_namespaces  # noqa: E402

VERBS = (("nodes", "check"), ("install",), ("prepare",), ("run",), ("report",))


def main() -> int:
    """Brings the machines up, shows the verbs, takes them down; the first exit code that is not 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--base", type=Path, default=Path("results"), help="seen by all machines, as a shared file system is"
    )
    parser.add_argument("--config", type=Path, default=ROOT / "tests" / "suite" / "cluster.yaml")
    parser.add_argument("--select", help="benchmarks, in the place of all")
    parser.add_argument("--machines", type=int, default=3)
    arguments = parser.parse_args()
    if (why := why_no_namespaces()) is not None:
        print(f"demo-cluster: {why}", file=sys.stderr)
        return 2
    base = arguments.base.resolve()
    with in_namespaces(arguments.machines) as cluster:
        system = cluster.folder / "cluster.yaml"
        system.write_text(system_file(cluster.key, cluster.known_hosts, {host.name: host.ip for host in cluster.hosts}))
        for verb in VERBS:
            words = [*verb, "--base", str(base)]
            if verb != ("report",):
                words += ["--config", str(arguments.config), "--system", str(system)]
                words += ["--select", arguments.select] if arguments.select and verb != ("nodes", "check") else []
            print(f"== milabench {' '.join(verb)}", flush=True)
            code = subprocess.run([sys.executable, "-m", "orchestrator", *words], cwd=ROOT, check=False).returncode
            if code != 0 and verb != ("run",):  # a report tells also of what did not pass
                return code
    return 0


def system_file(key: Path, known_hosts: Path, machines: dict[str, str]) -> str:
    """The system file of the cluster: one processor slot on each machine, for they share the real one."""
    lines = ["system:", "  arch: cpu", f"  sshkey: {key}", f"  known_hosts: {known_hosts}", "  nodes:"]
    lines += [f"    - {{name: {name}, ip: {ip}, gpu: {{count: 1}}}}" for name, ip in machines.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
