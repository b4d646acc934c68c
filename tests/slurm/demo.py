"""A Slurm cluster to look at: a suite run on it in one allocation, and again as jobs, whose orchestrator is killed meanwhile.

python tests/slurm/demo.py [--base FOLDER] [--config SUITE] [--select EXPR] [--nodes N]

The cluster is taken down however it ends: SIGINT, SIGTERM and SIGHUP end the command that runs, in order.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.slurm.cluster import Cluster, Settings, cluster, why_no_slurm  # noqa: E402
from tests.ssh.demo_cluster import INTERRUPTED, USAGE, Commands  # noqa: E402

FAILED = 1


def main() -> int:
    """Bring the cluster up, show the runs, take it down; the first exit code that is not 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--base", type=Path, default=Path("results"), help="seen by all nodes, as they are this machine"
    )
    parser.add_argument("--config", type=Path, default=ROOT / "config" / "quickstart.yaml")
    parser.add_argument("--select", help="benchmarks, instead of all")
    parser.add_argument("--nodes", type=int, default=8)
    arguments = parser.parse_args()
    if (why := why_no_slurm()) is not None:
        print(f"error: no cluster can be shown here: {why}", file=sys.stderr)
        return USAGE
    commands = Commands()
    print(f"== a controller and {arguments.nodes} nodes come up", flush=True)
    try:
        with cluster(Settings(nodes=arguments.nodes)) as made:
            os.environ.update(made.environ)
            return show(commands, made, arguments)
    finally:
        print("== the cluster is taken down", flush=True)


def show(commands: Commands, made: Cluster, arguments: argparse.Namespace) -> int:
    """One command after the other; the first exit code that is not 0, but for that of the command that is killed."""
    base = arguments.base.resolve()
    suite = ["--base", str(base), "--config", str(arguments.config)]
    suite += ["--select", arguments.select] if arguments.select else []
    run = ["run", *suite, "--profile", "quick", "--engine", "slurm", "--run-name"]
    worst = 0
    for title, words in (
        ("install, once: all nodes see the base", ["install", *suite]),
        ("prepare", ["prepare", *suite]),
        ("run in one allocation", [*run, "one-allocation"]),
        # The nodes share the processors of this machine: one job at a time measures undisturbed.
        ("run as jobs, until the orchestrator is killed", [*run, "as-jobs", "--submit", "--max-jobs", "1"]),
        ("resume: what has ended is harvested, what runs is adopted", ["resume", "--base", str(base)]),
        ("report", ["report", "--base", str(base)]),
    ):
        if commands.is_asked_to_end:
            return worst or INTERRUPTED
        print(f"== {title}\n$ milabench {' '.join(words)}", flush=True)
        if "--submit" in words:
            code = commands.run(words, kill_when=lambda: any(base.glob("runs/as-jobs.*/journal.s*.jsonl")))
            print(
                "== the orchestrator is " + ("killed; its jobs are not" if code == -signal.SIGKILL else "not killed"),
                flush=True,
            )
            print(made.run("squeue", "-o", "%.8i %.24j %.4t %.8M %R"), flush=True)
            code = 0 if code == -signal.SIGKILL else code or FAILED
        else:
            code = commands.run(words)
        worst = worst or code
        if code != 0 and words[0] in ("install", "prepare"):
            break
    return worst


if __name__ == "__main__":
    sys.exit(main())
