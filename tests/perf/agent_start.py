"""What a start of the agent costs on another machine: CPU, median of several, in turn.

    python tests/perf/agent_start.py [OTHER_AGENT]

Prints the milliseconds of a bare interpreter, of the whole line that a login shell is given, with the agent sent before, and
of the agent alone, as unpacked there. With OTHER_AGENT, the file of another agent that Python is given by its path, also how
many times as much that one costs, unpacked the same way: a single file, or a package, from a folder of its own.
"""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from milabench.execute.agent_bootstrap import (  # noqa: E402
    agent_files,
    boot_line,
    deterministic_zip,
)

RUNS = 31
FLAGS = ("-u", "-I", "-S", "-X", "utf8")
WORDS = ("serve", "--run-id", "agent-start")


def cpu_ms(argv: list[str], content: bytes, env: dict[str, str]) -> float:
    """CPU milliseconds of a command and all that it starts, given this on its standard input."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(argv, input=content, stdout=subprocess.DEVNULL, check=True, env=env)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3


def main(other: Path | None) -> None:
    """Print a line for each."""
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "XDG_CACHE_HOME": folder}
        line = ["/bin/sh", "-c", boot_line(WORDS, sign="boot", python=sys.executable)]
        archive = deterministic_zip(agent_files())
        cpu_ms(line, len(archive).to_bytes(8, "big") + archive, env)  # unpacks
        (program,) = Path(folder).glob("milabench/agent-*/milabench/execute/agent/__main__.py")
        commands = {
            "a bare interpreter": [sys.executable, *FLAGS, "-c", "pass"],
            "the shell's line": line,
            "the agent": [sys.executable, *FLAGS, str(program), *WORDS],
        }
        if other is not None:
            copy = Path(folder) / "other" / other.name
            copy.parent.mkdir()
            shutil.copy(other, copy)
            commands["the other agent"] = [sys.executable, *FLAGS, str(copy), *WORDS]
        costs: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(RUNS):
            for name, argv in commands.items():
                costs[name].append(cpu_ms(argv, b"", env))
    median = {name: statistics.median(values) for name, values in costs.items()}
    for name, value in median.items():
        print(f"{name:20} {value:6.1f} ms of CPU")
    if other is not None:
        print(f"the other agent costs {median['the other agent'] / median['the agent']:.2f} x as much")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
