"""What is paid around a benchmark of one second (no torch, no probe): `python tests/perf/one_second.py [RUNS]`.

Prints the wall time of the whole command less that second, and its CPU time: the promise is at most 0.3 s. Beside it a bare
interpreter, started as often, says how fast the machine is and whether it does something else meanwhile.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SUITE = """\
profile: quick
second: {install_group: second, shell: true, command: ["sleep 1"], plan: {method: njobs, n: 1}, max_duration: 60, weight: 1.0}
"""
PROMISED_S = 0.3


def cost(argv: tuple[str, ...], environ: Mapping[str, str]) -> tuple[float, float]:
    """Wall and CPU seconds of a command; it and all of its children."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(argv, cwd=ROOT, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    took, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(runs: int) -> None:
    """Print one row for the interpreter and one for the command."""
    with tempfile.TemporaryDirectory() as folder:
        suite = Path(folder, "suite.yaml")
        suite.write_text(SUITE)
        environ = {**os.environ, "MILABENCH_LOCK_DIR": folder}
        environ.pop("PYTHONDONTWRITEBYTECODE", None)
        run = ("run", "--use-current-env", "--config", str(suite), "--base", folder, "--display", "none")
        command = (sys.executable, "-m", "milabench", *run)
        cost(command, environ)  # once for the byte code
        pairs = [(cost((sys.executable, "-c", "pass"), environ), cost(command, environ)) for _ in range(runs)]
    bare = statistics.median(wall for (wall, _), _ in pairs)
    walls = sorted(wall - 1.0 for _, (wall, _) in pairs)
    cpu = statistics.median(cpu for _, (_, cpu) in pairs)
    around = statistics.median(walls)
    print(f"bare interpreter: {bare * 1e3:.0f} ms")
    print(
        f"around one second: {around * 1e3:.0f} ms (best {walls[0] * 1e3:.0f} ms of {runs}), {cpu * 1e3:.0f} ms of CPU,"
        f" {around / bare:.1f} x a bare interpreter; promised: {PROMISED_S * 1e3:.0f} ms, {around / PROMISED_S:.2f} of it"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
